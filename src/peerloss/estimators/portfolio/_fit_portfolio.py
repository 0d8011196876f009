"""Fit the portfolio: every candidate on every fold, calibrated out of fold, weighted and averaged."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from sklearn.base import clone
from threadpoolctl import threadpool_limits

from peerloss._probabilities import label_frequencies
from peerloss.estimators.portfolio._candidates import candidate_models, fit_networks
from peerloss.posterior.calibrator import Calibrator, log_scores

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sklearn.base import BaseEstimator

    from peerloss._classifier import FitInput
    from peerloss._validation import FloatArray, IntArray
    from peerloss.estimators.folds import Folds

    #: Called with the number of finished steps and the total number of steps.
    Listener = Callable[[int, int], None]

_LISTENER: ContextVar[Listener | None] = ContextVar("listener", default=None)
#: Candidates with a smaller weight are left out of the average.
MIN_WEIGHT = 0.01


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Call ``listener(done, total)`` after each step of the fits inside the block, however deep they are."""
    token = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(token)


@dataclass(frozen=True)
class Member:
    """A candidate: its models, one per fold, and its calibration."""

    name: str
    models: list[Any]
    calibrator: Calibrator

    def proba(self, X: FloatArray) -> FloatArray:
        """Return calibrated probabilities of the noisy label, the mean over the folds, shape (n, K)."""
        averaged = np.mean([model.predict_proba(X) for model in self.models], axis=0)
        return self.calibrator.proba(log_scores(averaged))


@dataclass(frozen=True)
class Portfolio:
    """The fitted candidates."""

    members: list[Member]
    """Candidates with a positive weight."""
    weights: FloatArray
    """Their weights, which sum to one."""
    oof_proba: FloatArray
    """Weighted average of the out-of-fold probabilities of the noisy label, (n, K)."""
    candidates: pd.DataFrame
    """One row per candidate that did not diverge: weight, brier, behind."""
    candidate_proba: list[FloatArray]
    """Out-of-fold probabilities of each row of ``candidates``, (n, K)."""
    diverged: tuple[str, ...]
    """Names of the networks that diverged."""


def fit_portfolio(data: FitInput, folds: Folds, *, seed: int, n_jobs: int | None, device: str) -> Portfolio:
    """Fit all candidates to the noisy labels of standardised features; ``folds`` may hold a row out twice."""
    fitted = _fit_models(data, folds, seed, n_jobs)
    fitted |= fit_networks(data, folds, seed=seed, device=device)
    members, held_out = [], []
    for name, parts in fitted.items():
        if not parts:
            continue
        scores = log_scores(_join(folds, [proba for _, proba in parts], data))
        calibrator = Calibrator.fit(scores, data.codes, data.weight)
        held_out.append(calibrator.proba(scores))
        members.append(Member(name, [model for model, _ in parts], calibrator))
    weights, brier, behind = weigh(held_out, data.codes, data.weight)
    weights = np.where(weights < MIN_WEIGHT, 0.0, weights)
    weights /= weights.sum()
    return Portfolio(
        members=[member for member, w in zip(members, weights, strict=True) if w > 0],
        weights=weights[weights > 0],
        oof_proba=np.tensordot(weights, np.array(held_out), axes=1),
        candidates=pd.DataFrame(
            {"weight": weights, "brier": brier, "behind": behind},
            index=pd.Index([member.name for member in members], name="candidate"),
        ),
        candidate_proba=held_out,
        diverged=tuple(name for name, parts in fitted.items() if not parts),
    )


def _fit_models(
    data: FitInput, folds: Folds, seed: int, n_jobs: int | None
) -> dict[str, list[tuple[Any, FloatArray]]]:
    """Return models and held-out probabilities of each fold by the name of the candidate."""
    candidates = candidate_models(len(data.codes), data.X.shape[1], seed=seed)
    # Fold by fold: fast and slow candidates alternate, so that the estimated remaining time is reliable.
    tasks = [delayed(_fit_fold)(model, data, *fold) for fold in folds for model in candidates.values()]
    fitted = _run(tasks, n_jobs)
    return {name: fitted[i :: len(candidates)] for i, name in enumerate(candidates)}


def _run(tasks: list[Any], n_jobs: int | None) -> list[Any]:
    """Run joblib's delayed calls; the networks count as one more step in the reports of progress."""
    listener = _LISTENER.get()
    if listener is None:
        return list(Parallel(n_jobs=n_jobs)(tasks))
    results: list[Any] = []
    listener(0, len(tasks) + 1)
    for result in Parallel(n_jobs=n_jobs, return_as="generator")(tasks):
        results.append(result)
        listener(len(results), len(tasks) + 1)
    return results


def _fit_fold(
    estimator: BaseEstimator, data: FitInput, train: IntArray, test: IntArray
) -> tuple[Any, FloatArray]:
    model: Any = clone(estimator)
    weight, weights = data.weight[train], {}
    if np.ptp(weight):  # weighted binning of equal weights would make boosting ten times slower
        step = f"{model.steps[-1][0]}__" if hasattr(model, "steps") else ""
        weights = {f"{step}sample_weight": weight}
    with threadpool_limits(1):  # small fits are slower on several threads
        model.fit(data.X[train], data.codes[train], **weights)
        return model, model.predict_proba(data.X[test])


def _join(folds: Folds, parts: list[FloatArray], data: FitInput) -> FloatArray:
    """Average the held-out probabilities of each row; a row that is never held out gets the frequencies."""
    total = np.zeros((len(data.codes), len(data.classes)))
    times = np.zeros(len(data.codes))
    for (_, test), part in zip(folds, parts, strict=True):
        total[test] += part
        times[test] += 1
    prior = label_frequencies(data.codes, len(data.classes), data.weight)
    joined: FloatArray = np.where(times[:, None] > 0, total / np.maximum(times, 1)[:, None], prior)
    return joined


def weigh(
    probabilities: list[FloatArray], codes: IntArray, weight: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Weight candidates by the Brier score of their out-of-fold probabilities on the noisy labels.

    Returns the weights, which sum to one, the Brier scores, and the distances to the best one in standard
    errors.

    The noisy posterior minimises this score on noisy labels, and every peer classifier follows from the noisy
    posterior. The Brier score is a proper score of probabilities, so it has far less sampling noise than the
    0-1 peer score of decisions. A candidate t standard errors behind the best one has weight ∝ exp(−t²/2):
    candidates that the data cannot distinguish are averaged, which is better than choosing one.
    """
    onehot = np.eye(probabilities[0].shape[1])[codes]
    losses = np.array([((p - onehot) ** 2).sum(axis=1) for p in probabilities])
    share = weight / weight.sum()
    brier = losses @ share
    difference = losses - losses[brier.argmin()]
    mean = difference @ share
    error = np.sqrt((difference - mean[:, None]) ** 2 @ share * (share**2).sum())
    behind = np.divide(mean, error, out=np.zeros_like(mean), where=error > 0)
    weights = np.exp(-(behind**2) / 2.0)
    return weights / weights.sum(), brier, behind
