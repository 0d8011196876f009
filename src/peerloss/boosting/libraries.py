"""LightGBM and XGBoost behind one interface, and categorical columns as the codes that both read."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from peerloss.exceptions import InvalidInputError
from peerloss.metrics import peer_score

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from peerloss._validation import FloatArray, IntArray
    from peerloss.boosting._objectives import PeerObjective

BACKENDS = ("lightgbm", "xgboost")


class Rows(NamedTuple):
    """Training or validation rows: features with NaN for missing values, class codes, weights."""

    X: FloatArray
    codes: IntArray
    weight: FloatArray

    def take(self, index: IntArray) -> Rows:
        """Return the rows at ``index``."""
        return Rows(self.X[index], self.codes[index], self.weight[index])


@dataclass(frozen=True)
class BoosterSettings:
    """The settings of a training run, except the rows."""

    objective: PeerObjective
    n_classes: int
    categorical: list[int]
    n_estimators: int
    learning_rate: float
    num_leaves: int
    max_depth: int
    min_child_samples: int
    subsample: float
    colsample_bytree: float
    reg_lambda: float
    early_stopping_rounds: int | None
    seed: int
    n_jobs: int


class TrainedBooster(NamedTuple):
    """A booster with the rounds up to the best one, their number, and the validation scores."""

    booster: Any
    n_rounds: int
    scores: list[float]
    """Peer score of the validation rows after each round."""
    n_splits: int


def import_backend(backend: str) -> Any:
    """Import LightGBM or XGBoost when it is first used; the error explains how to install it."""
    try:
        return import_module(backend)
    except ImportError as error:
        raise ImportError(
            f"`backend`={backend!r} needs the package {backend}, which cannot be imported ({error}). "
            'Install it with: pip install "peerloss[boost]"'
        ) from error


def train(backend: str, settings: BoosterSettings, rows: Rows, validation: Rows | None) -> TrainedBooster:
    """Train with the named library; the peer score of the ``validation`` rows decides when to stop."""
    scores: list[float] = []

    def score(raw: FloatArray) -> float:
        predicted = raw.argmax(axis=1) if raw.ndim == 2 else (raw > 0).astype(np.int64)
        codes, weight = validation.codes, validation.weight  # type: ignore[union-attr]  # not called without
        scores.append(peer_score(codes, predicted, alpha=settings.objective.alpha, sample_weight=weight))
        return scores[-1]

    run = _train_lightgbm if backend == "lightgbm" else _train_xgboost
    booster, n_rounds = run(settings, rows, validation, score)
    n_rounds = int(np.argmax(scores)) + 1 if scores else n_rounds
    if backend == "lightgbm":
        return TrainedBooster(booster, n_rounds, scores, int(booster.feature_importance("split").sum()))
    booster = booster[:n_rounds]
    n_splits = sum(booster.get_score(importance_type="weight").values())
    return TrainedBooster(booster, n_rounds, scores, int(n_splits))


def raw_scores(backend: str, trained: TrainedBooster, settings: BoosterSettings, X: FloatArray) -> FloatArray:
    """Return raw scores, (n,) for two classes and (n, K) for more."""
    if backend == "lightgbm":
        scores = trained.booster.predict(X, raw_score=True, num_threads=settings.n_jobs)
    else:
        scores = trained.booster.predict(_dmatrix(settings, X), output_margin=True)
    return np.asarray(scores, dtype=np.float64)


def _train_lightgbm(
    settings: BoosterSettings, rows: Rows, validation: Rows | None, score: Callable[[FloatArray], float]
) -> tuple[Any, int]:
    lightgbm = import_backend("lightgbm")
    parameters: dict[str, Any] = {
        "objective": settings.objective,
        "learning_rate": settings.learning_rate,
        "num_leaves": settings.num_leaves,
        "max_depth": settings.max_depth,
        "min_data_in_leaf": settings.min_child_samples,
        "bagging_fraction": settings.subsample,
        "bagging_freq": int(settings.subsample < 1.0),
        "feature_fraction": settings.colsample_bytree,
        "lambda_l2": settings.reg_lambda,
        "seed": settings.seed,
        "num_threads": settings.n_jobs,
        "deterministic": True,
        "force_col_wise": True,  # deterministic training needs a fixed layout; this one suits short tables
        "feature_pre_filter": False,
        "metric": "None",
        "verbosity": -1,
    }
    if settings.n_classes > 2:
        parameters["num_class"] = settings.n_classes
    data = lightgbm.Dataset(
        rows.X, rows.codes, weight=rows.weight, categorical_feature=settings.categorical, params=parameters
    )
    extra: dict[str, Any] = {}
    if validation is not None:
        held_out = lightgbm.Dataset(validation.X, validation.codes, weight=validation.weight, reference=data)
        extra = {
            "valid_sets": [held_out],
            "feval": lambda raw, _: ("peer_score", score(raw), True),
            "callbacks": [lightgbm.early_stopping(settings.early_stopping_rounds, verbose=False)],
        }
    booster = lightgbm.train(parameters, data, settings.n_estimators, **extra)
    return booster, booster.current_iteration()


def _train_xgboost(
    settings: BoosterSettings, rows: Rows, validation: Rows | None, score: Callable[[FloatArray], float]
) -> tuple[Any, int]:
    xgboost = import_backend("xgboost")
    parameters: dict[str, Any] = {
        "tree_method": "hist",
        "grow_policy": "lossguide",
        "learning_rate": settings.learning_rate,
        "max_leaves": settings.num_leaves,
        "max_depth": max(settings.max_depth, 0),
        # XGBoost bounds the sum of Hessians in a leaf, not its rows; the Hessian of a row is ¼ at score 0.
        "min_child_weight": settings.min_child_samples / 4.0,
        "subsample": settings.subsample,
        "colsample_bytree": settings.colsample_bytree,
        "reg_lambda": settings.reg_lambda,
        "seed": settings.seed,
        "nthread": settings.n_jobs,
        "base_score": 0.0,
        "disable_default_eval_metric": True,
    }
    if settings.n_classes > 2:
        parameters["num_class"] = settings.n_classes
    extra: dict[str, Any] = {}
    if validation is not None:
        extra = {
            "evals": [(_dmatrix(settings, validation.X, validation.codes, validation.weight), "validation")],
            "custom_metric": lambda raw, _: ("peer_score", score(raw)),
            "maximize": True,
            "early_stopping_rounds": settings.early_stopping_rounds,
            "verbose_eval": False,
        }
    data = _dmatrix(settings, rows.X, rows.codes, rows.weight)
    booster = xgboost.train(parameters, data, settings.n_estimators, obj=settings.objective, **extra)
    return booster, booster.num_boosted_rounds()


def _dmatrix(
    settings: BoosterSettings, X: FloatArray, codes: IntArray | None = None, weight: FloatArray | None = None
) -> Any:
    types = ["c" if i in set(settings.categorical) else "q" for i in range(X.shape[1])]
    return import_backend("xgboost").DMatrix(
        X, codes, weight=weight, feature_types=types, enable_categorical=True, nthread=settings.n_jobs
    )


@dataclass(frozen=True)
class CategoricalColumns:
    """The categorical columns and their categories."""

    categories: dict[int, pd.Index]
    """Position of a column → its categories in the order of their codes; positions ascend."""

    @classmethod
    def learn(cls, X: Any, categorical_features: Sequence[int | str] | None) -> CategoricalColumns:
        """Find the categorical columns: the given ones, and those of a DataFrame with dtype ``category``."""
        positions = set() if categorical_features is None else _positions(X, categorical_features)
        if isinstance(X, pd.DataFrame):
            positions |= {i for i, dtype in enumerate(X.dtypes) if isinstance(dtype, pd.CategoricalDtype)}
        if not positions:
            return cls({})
        frame = _as_frame(X)
        return cls({i: pd.Categorical(frame.iloc[:, i]).categories for i in sorted(positions)})

    def encode(self, X: Any) -> Any:
        """Replace each categorical column by its codes; missing values and unseen categories become NaN."""
        if not self.categories:
            return X
        frame = _as_frame(X)
        columns = [frame.iloc[:, i] for i in range(frame.shape[1])]
        for i, categories in self.categories.items():
            codes = categories.get_indexer(pd.Index(columns[i])).astype(np.float64)
            known = np.where(codes < 0, np.nan, codes)
            columns[i] = pd.Series(known, index=frame.index, name=columns[i].name)
        return pd.concat(columns, axis=1)


def _as_frame(X: Any) -> pd.DataFrame:
    return X if isinstance(X, pd.DataFrame) else pd.DataFrame(np.asarray(X))


def _positions(X: Any, wanted: Sequence[int | str]) -> set[int]:
    names = list(X.columns) if isinstance(X, pd.DataFrame) else []
    width = np.shape(X)[1] if np.ndim(X) == 2 else 0
    if isinstance(wanted, str):
        raise InvalidInputError(
            f"`categorical_features` must be a list of column names or positions; got {wanted!r}. "
            f"Pass [{wanted!r}]."
        )
    found = set()
    for column in wanted:
        if isinstance(column, str) and column in names:
            found.add(names.index(column))
        elif isinstance(column, int | np.integer) and 0 <= column < width:
            found.add(int(column))
        else:
            raise InvalidInputError(
                f"`categorical_features` must contain names of columns of `X` or positions below {width}; "
                f"got {column!r}." + (f" The columns are {names}." if names else " Pass positions.")
            )
    return found
