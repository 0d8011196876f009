"""LightGBM and XGBoost behind one interface; each is imported when it is first used."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from peerloss.metrics import peer_score

if TYPE_CHECKING:
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
    """Import LightGBM or XGBoost; the error explains how to install it."""
    try:
        return import_module(backend)
    except ImportError as error:
        raise ImportError(
            f"`backend`={backend!r} needs the package {backend}, which cannot be imported ({error}). "
            'Install it with: pip install "peerloss[boost]"'
        ) from error


def train(backend: str, plan: BoosterSettings, rows: Rows, validation: Rows | None) -> TrainedBooster:
    """Train with the named library; the peer score of the ``validation`` rows decides when to stop."""
    return (_train_lightgbm if backend == "lightgbm" else _train_xgboost)(plan, rows, validation)


def raw_scores(backend: str, trained: TrainedBooster, plan: BoosterSettings, X: FloatArray) -> FloatArray:
    """Return raw scores, (n,) for two classes and (n, K) for more."""
    if backend == "lightgbm":
        scores = trained.booster.predict(X, raw_score=True, num_threads=plan.n_jobs)
    else:
        data = _dmatrix(plan, X)
        scores = trained.booster.predict(data, output_margin=True)
    return np.asarray(scores, dtype=np.float64)


def _validation_score(plan: BoosterSettings, raw: FloatArray, rows: Rows) -> float:
    predicted = raw.argmax(axis=1) if raw.ndim == 2 else (raw > 0).astype(np.int64)
    return peer_score(rows.codes, predicted, alpha=plan.objective.alpha, sample_weight=rows.weight)


def _train_lightgbm(plan: BoosterSettings, rows: Rows, validation: Rows | None) -> TrainedBooster:
    lightgbm = import_backend("lightgbm")
    parameters: dict[str, Any] = {
        "objective": plan.objective,
        "learning_rate": plan.learning_rate,
        "num_leaves": plan.num_leaves,
        "max_depth": plan.max_depth,
        "min_data_in_leaf": plan.min_child_samples,
        "bagging_fraction": plan.subsample,
        "bagging_freq": int(plan.subsample < 1.0),
        "feature_fraction": plan.colsample_bytree,
        "lambda_l2": plan.reg_lambda,
        "seed": plan.seed,
        "num_threads": plan.n_jobs,
        "deterministic": True,
        "force_col_wise": True,  # deterministic training needs a fixed layout; this one suits short tables
        "feature_pre_filter": False,
        "metric": "None",
        "verbosity": -1,
    }
    if plan.n_classes > 2:
        parameters["num_class"] = plan.n_classes
    data = lightgbm.Dataset(
        rows.X, rows.codes, weight=rows.weight, categorical_feature=plan.categorical, params=parameters
    )
    scores: list[float] = []
    extra: dict[str, Any] = {}
    if validation is not None:

        def metric(raw: FloatArray, _: Any) -> tuple[str, float, bool]:
            scores.append(_validation_score(plan, raw, validation))
            return "peer_score", scores[-1], True

        extra = {
            "valid_sets": [
                lightgbm.Dataset(validation.X, validation.codes, weight=validation.weight, reference=data)
            ],
            "feval": metric,
            "callbacks": [lightgbm.early_stopping(plan.early_stopping_rounds, verbose=False)],
        }
    booster = lightgbm.train(parameters, data, plan.n_estimators, **extra)
    n_rounds = int(np.argmax(scores)) + 1 if scores else booster.current_iteration()
    n_splits = int(booster.feature_importance("split").sum())
    return TrainedBooster(booster, n_rounds, scores, n_splits)


def _train_xgboost(plan: BoosterSettings, rows: Rows, validation: Rows | None) -> TrainedBooster:
    xgboost = import_backend("xgboost")
    parameters: dict[str, Any] = {
        "tree_method": "hist",
        "grow_policy": "lossguide",
        "learning_rate": plan.learning_rate,
        "max_leaves": plan.num_leaves,
        "max_depth": max(plan.max_depth, 0),
        # XGBoost bounds the sum of Hessians in a leaf, not its rows; the Hessian of a row is ¼ at score 0.
        "min_child_weight": plan.min_child_samples / 4.0,
        "subsample": plan.subsample,
        "colsample_bytree": plan.colsample_bytree,
        "reg_lambda": plan.reg_lambda,
        "seed": plan.seed,
        "nthread": plan.n_jobs,
        "base_score": 0.0,
        "disable_default_eval_metric": True,
    }
    if plan.n_classes > 2:
        parameters["num_class"] = plan.n_classes
    scores: list[float] = []
    extra: dict[str, Any] = {}
    if validation is not None:

        def metric(raw: FloatArray, _: Any) -> tuple[str, float]:
            scores.append(_validation_score(plan, raw, validation))
            return "peer_score", scores[-1]

        extra = {
            "evals": [(_dmatrix(plan, validation.X, validation.codes, validation.weight), "validation")],
            "custom_metric": metric,
            "maximize": True,
            "early_stopping_rounds": plan.early_stopping_rounds,
            "verbose_eval": False,
        }
    data = _dmatrix(plan, rows.X, rows.codes, rows.weight)
    booster = xgboost.train(parameters, data, plan.n_estimators, obj=plan.objective, **extra)
    n_rounds = int(np.argmax(scores)) + 1 if scores else booster.num_boosted_rounds()
    booster = booster[:n_rounds]
    n_splits = sum(booster.get_score(importance_type="weight").values())
    return TrainedBooster(booster, n_rounds, scores, int(n_splits))


def _dmatrix(
    plan: BoosterSettings, X: FloatArray, codes: IntArray | None = None, weight: FloatArray | None = None
) -> Any:
    types = ["c" if i in set(plan.categorical) else "q" for i in range(X.shape[1])]
    return import_backend("xgboost").DMatrix(
        X, codes, weight=weight, feature_types=types, enable_categorical=True, nthread=plan.n_jobs
    )
