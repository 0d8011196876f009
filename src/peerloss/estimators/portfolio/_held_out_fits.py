"""Fit one candidate such that every row gets a probability from models that have not seen its label."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import log_loss
from threadpoolctl import threadpool_limits

from peerloss._probabilities import label_frequencies

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator

    from peerloss._classifier import FitInput
    from peerloss._validation import FloatArray, IntArray
    from peerloss.estimators.folds import Folds

#: Numbers of boosting rounds that are compared, one after the other until the held-out loss increases.
ROUNDS = (10, 15, 20, 30, 40, 60, 80, 110, 150, 200)
#: Most trees of a boosting with more than 40 rounds; a round has one tree per class.
MAX_BOOSTED_TREES = 800


def fit_fold(
    estimator: BaseEstimator, data: FitInput, train: IntArray, test: IntArray
) -> tuple[Any, FloatArray]:
    """Fit to the rows ``train``; return the model and its probabilities of the rows ``test``."""
    model: Any = clone(estimator)
    with threadpool_limits(1):  # small fits are slower on several threads
        if stops_early(model):
            return _fit_rounds(model, data, train, test)
        model.fit(data.X[train], data.codes[train], **_weights(model, data.weight[train]))
        return model, model.predict_proba(data.X[test])


def stops_early(model: Any) -> bool:
    """Return whether the number of boosting rounds is chosen on held-out rows, which takes several fits."""
    return isinstance(model, HistGradientBoostingClassifier) and bool(model.warm_start)


def fit_out_of_bag(forest: BaseEstimator, data: FitInput) -> tuple[Any, FloatArray]:
    """Fit a forest to all rows of positive weight; return it and its out-of-bag probabilities, (n, K).

    The probability of a row averages the trees whose bootstrap sample does not contain it, so one fit
    replaces a fit per fold. Rows in every sample, and rows of weight zero, get the label frequencies.
    """
    model: Any = clone(forest).set_params(oob_score=True)
    rows = np.flatnonzero(data.weight > 0)
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Some inputs do not have OOB scores")
        model.fit(data.X[rows], data.codes[rows], **_weights(model, data.weight[rows]))
    found = np.nan_to_num(model.oob_decision_function_)
    proba = np.tile(label_frequencies(data.codes, len(data.classes), data.weight), (len(data.codes), 1))
    has_tree = found.sum(axis=1) > 0
    proba[rows[has_tree]] = found[has_tree]
    del model.oob_decision_function_, model.oob_score_  # as large as the table, and never used again
    return model, proba


def join_folds(folds: Folds, parts: list[FloatArray], data: FitInput) -> FloatArray:
    """Average the held-out probabilities of each row; a row that is never held out gets the frequencies."""
    total = np.zeros((len(data.codes), len(data.classes)))
    times = np.zeros(len(data.codes))
    for (_, test), part in zip(folds, parts, strict=True):
        total[test] += part
        times[test] += 1
    prior = label_frequencies(data.codes, len(data.classes), data.weight)
    joined: FloatArray = np.where(times[:, None] > 0, total / np.maximum(times, 1)[:, None], prior)
    return joined


def sample_rows(train: IntArray, codes: IntArray, max_rows: int, *, seed: int) -> IntArray:
    """Return ``max_rows`` of the rows ``train``, drawn at random with every class among them, or all rows."""
    if len(train) <= max_rows:
        return train
    drawn = np.random.default_rng(seed).permutation(train)
    first = np.unique(codes[drawn], return_index=True)[1]  # one row per class
    chosen = np.r_[drawn[first], np.delete(drawn, first)][:max_rows]
    return np.sort(chosen)


def _fit_rounds(model: Any, data: FitInput, train: IntArray, test: IntArray) -> tuple[Any, FloatArray]:
    """Fit boosting with the number of rounds that has the smallest log loss on the held-out noisy labels.

    The choice of one number by a fifth of the rows makes their probabilities only slightly optimistic.
    """
    X, y, weights = data.X[train], data.codes[train], _weights(model, data.weight[train])
    best_loss, best_rounds, proba = np.inf, ROUNDS[0], np.empty(0)
    max_rounds = max(40, MAX_BOOSTED_TREES // len(data.classes))
    for rounds in (rounds for rounds in ROUNDS if rounds <= max_rounds):
        model.set_params(max_iter=rounds).fit(X, y, **weights)
        found = model.predict_proba(data.X[test])
        classes = np.arange(len(data.classes))
        weight = data.weight[test] if data.weight[test].any() else None
        loss = log_loss(data.codes[test], found, sample_weight=weight, labels=classes)
        if loss >= best_loss:
            break
        best_loss, best_rounds, proba = loss, rounds, found
    del model._predictors[best_rounds:]  # noqa: SLF001 - faster than another fit with fewer rounds
    return model.set_params(max_iter=best_rounds), proba


def _weights(model: Any, weight: FloatArray) -> dict[str, FloatArray]:
    """Return the argument of ``fit`` for sample weights."""
    if not np.ptp(weight):  # weighted binning of equal weights would make boosting ten times slower
        return {}
    step = f"{model.steps[-1][0]}__" if hasattr(model, "steps") else ""
    return {f"{step}sample_weight": weight}
