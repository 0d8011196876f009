"""LightGBM and XGBoost behind one interface, and categorical columns as the codes that both read."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from peerloss._installing import install_command
from peerloss.exceptions import InvalidInputError
from peerloss.metrics import peer_score

if TYPE_CHECKING:
    from collections.abc import Sequence

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

    objective: PeerObjective | None
    """``None`` is the cross entropy of the library."""
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
    """A booster, the number of rounds that predictions use, and the scores that chose it."""

    booster: Any
    n_rounds: int
    scores: list[float]
    """Metric of the held-out rows after each round; empty if no rows were held out."""
    n_splits: int


def import_backend(backend: str) -> Any:
    """Import LightGBM or XGBoost when it is first used; the error explains how to install it."""
    try:
        return import_module(backend)
    except ImportError as error:
        raise ImportError(
            f"`backend`={backend!r} needs the package {backend}, which cannot be imported ({error}). "
            f"Install it with: {install_command('boost')}"
        ) from error


def train(
    backend: str,
    settings: BoosterSettings,
    rows: Rows,
    *,
    held_out: Rows | None = None,
    eval_rows: Sequence[Rows] = (),
) -> tuple[TrainedBooster, list[dict[str, list[float]]]]:
    """Train with the named library.

    The metric of the ``held_out`` rows is the noisy log loss of the library's own objective, or the noisy
    peer score of a :class:`PeerObjective`. Training stops once it has not improved for
    ``early_stopping_rounds``. All rounds are kept; ``n_rounds`` counts those up to the best. The metric of
    ``eval_rows`` is only recorded.

    Returns
    -------
    The booster, and for each of ``eval_rows`` the metric after each round under the metric's name.
    """
    watched = [*([] if held_out is None else [held_out]), *eval_rows]
    run = _train_lightgbm if backend == "lightgbm" else _train_xgboost
    booster, history = run(settings, rows, watched, stops=held_out is not None)
    scores = history.pop(0) if held_out is not None else []
    n_rounds = booster.current_iteration() if backend == "lightgbm" else booster.num_boosted_rounds()
    if scores:
        best = np.argmin(scores) if settings.objective is None else np.argmax(scores)
        n_rounds = min(n_rounds, int(best) + 1)
    name = "log_loss" if settings.objective is None else "peer_score"
    n_splits = int(_importances(backend, booster, gain=False).sum())
    return TrainedBooster(booster, n_rounds, scores, n_splits), [{name: values} for values in history]


def truncate(backend: str, trained: TrainedBooster) -> TrainedBooster:
    """Return the booster without the rounds after the best one."""
    if backend == "lightgbm":
        text = trained.booster.model_to_string(num_iteration=trained.n_rounds)
        return trained._replace(booster=import_backend("lightgbm").Booster(model_str=text))
    return trained._replace(booster=trained.booster[: trained.n_rounds])


def raw_scores(
    backend: str,
    trained: TrainedBooster,
    settings: BoosterSettings,
    X: FloatArray,
    *,
    n_rounds: int | None = None,
) -> FloatArray:
    """Return raw scores of all rounds or the first ``n_rounds``, (n,) for two classes, (n, K) for more."""
    if backend == "lightgbm":
        scores = trained.booster.predict(
            X, raw_score=True, num_iteration=n_rounds or -1, num_threads=settings.n_jobs
        )
    else:
        scores = trained.booster.predict(
            _dmatrix(settings, X), output_margin=True, iteration_range=(0, n_rounds or 0)
        )
    return np.asarray(scores, dtype=np.float64)


def feature_importances(backend: str, trained: TrainedBooster) -> FloatArray:
    """Return the share of each feature in the total gain of all splits; zeros if there are no splits."""
    gain = _importances(backend, trained.booster, gain=True)
    return np.asarray(gain / gain.sum() if gain.any() else gain)


def _importances(backend: str, booster: Any, *, gain: bool) -> FloatArray:
    """Return the number of splits, or their total gain, of each feature."""
    if backend == "lightgbm":
        kind = "gain" if gain else "split"
        return np.asarray(booster.feature_importance(kind), dtype=np.float64)
    found = booster.get_score(importance_type="total_gain" if gain else "weight")
    values = np.zeros(booster.num_features())
    for name, value in found.items():  # features without a split are left out; the others are named f0, f1, …
        values[int(name[1:])] = value
    return values


def _peer_score(settings: BoosterSettings, raw: FloatArray, data: Any) -> float:
    predicted = raw.argmax(axis=1) if raw.ndim == 2 else (raw > 0).astype(np.int64)
    weight = data.get_weight()
    codes = np.asarray(data.get_label(), dtype=np.int64)
    alpha = settings.objective.alpha  # type: ignore[union-attr]  # only called with a peer objective
    return peer_score(codes, predicted, alpha=alpha, sample_weight=weight if np.size(weight) else None)


def _has_stalled(scores: Sequence[float], settings: BoosterSettings) -> bool:
    """Return whether the best round is at least ``early_stopping_rounds`` rounds ago."""
    best = np.argmin(scores) if settings.objective is None else np.argmax(scores)
    patience = settings.early_stopping_rounds
    return patience is not None and len(scores) - 1 - int(best) >= patience


def _train_lightgbm(
    settings: BoosterSettings, rows: Rows, watched: Sequence[Rows], *, stops: bool
) -> tuple[Any, list[list[float]]]:
    lightgbm = import_backend("lightgbm")
    several = settings.n_classes > 2
    own = ("multiclass", "multi_logloss") if several else ("binary", "binary_logloss")
    metric = own[1] if settings.objective is None else "peer_score"
    parameters: dict[str, Any] = {
        "objective": own[0] if settings.objective is None else settings.objective,
        "metric": metric if settings.objective is None else "None",
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
        "verbosity": -1,
    }
    if several:
        parameters["num_class"] = settings.n_classes
    data = lightgbm.Dataset(
        rows.X, rows.codes, weight=rows.weight, categorical_feature=settings.categorical, params=parameters
    )
    names = [str(i) for i in range(len(watched))]
    history: dict[str, dict[str, list[float]]] = {}

    def stop(env: Any) -> None:
        if stops and _has_stalled(history[names[0]][metric], settings):
            # LightGBM keeps the rounds up to the one named here: all of them.
            raise lightgbm.callback.EarlyStopException(env.iteration, env.evaluation_result_list)

    stop.order = 100  # type: ignore[attr-defined]  # after `record_evaluation`, whose order is 20
    extra: dict[str, Any] = {}
    if watched:
        extra = {
            "valid_sets": [
                lightgbm.Dataset(part.X, part.codes, weight=part.weight, reference=data) for part in watched
            ],
            "valid_names": names,
            "callbacks": [lightgbm.record_evaluation(history), stop],
        }
    if watched and settings.objective is not None:
        extra["feval"] = lambda raw, part: (metric, _peer_score(settings, raw, part), True)
    booster = lightgbm.train(parameters, data, settings.n_estimators, **extra)
    return booster, [history[name][metric] for name in names]


def _train_xgboost(
    settings: BoosterSettings, rows: Rows, watched: Sequence[Rows], *, stops: bool
) -> tuple[Any, list[list[float]]]:
    xgboost = import_backend("xgboost")
    several = settings.n_classes > 2
    own = ("multi:softprob", "mlogloss") if several else ("binary:logistic", "logloss")
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
    }
    if several:
        parameters["num_class"] = settings.n_classes
    names = [str(i) for i in range(len(watched))]
    extra: dict[str, Any] = {}
    if settings.objective is None:
        metric = own[1]
        parameters |= {"objective": own[0], "eval_metric": metric}
    else:
        metric = "peer_score"
        parameters |= {"base_score": 0.0, "disable_default_eval_metric": True}
        extra = {"obj": settings.objective}
        extra["custom_metric"] = lambda raw, part: (metric, _peer_score(settings, raw, part))
    if stops and settings.early_stopping_rounds is not None:
        extra["callbacks"] = [
            xgboost.callback.EarlyStopping(
                rounds=settings.early_stopping_rounds,
                metric_name=metric,
                data_name=names[0],
                maximize=settings.objective is not None,
            )
        ]
    parts = [_dmatrix(settings, part.X, part.codes, part.weight) for part in watched]
    history: dict[str, dict[str, list[float]]] = {}
    booster = xgboost.train(
        parameters,
        _dmatrix(settings, rows.X, rows.codes, rows.weight),
        settings.n_estimators,
        evals=list(zip(parts, names, strict=True)),
        evals_result=history,
        verbose_eval=False,
        **extra,
    )
    return booster, [history[name][metric] for name in names]


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
