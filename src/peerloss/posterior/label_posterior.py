"""How probable it is that each label is wrong: P(clean ≠ given | x, given label).

With p the clean posterior at x and T the noise, P(clean = k | x, ỹ) = p_k·T[k, ỹ] / Σ_j p_j·T[j, ỹ].
Ranking by it compares rows of different labels correctly, which neither self-confidence (right for
symmetric noise) nor one threshold per class (right for one kind of asymmetric noise) do everywhere.

The *reported* noise is that of :func:`~peerloss.posterior.estimate_class_noise`, as in the classifiers. For
more than two classes the ranking uses it too, with p from :mod:`peerloss.posterior.many_classes`. For two
classes, p and T of the ranking come from :mod:`peerloss.posterior._ranking`. Memory does not grow with the
number of rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from peerloss._probabilities import blocks, normalise_rows, row_sums, take
from peerloss.noise.estimate import explain_chance_level
from peerloss.posterior._noise_rates import estimate_class_noise, log_odds
from peerloss.posterior._ranking import fit_ranking, ranking_score
from peerloss.posterior.many_classes import fit_ranking_curve, sample_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from peerloss._validation import BoolArray, FloatArray, IntArray
    from peerloss.noise import NoiseModel

#: Above this probability of noise near the boundary, noise counts as that and not as class-conditional.
BOUNDARY_PROBABILITY = 0.5


@dataclass(frozen=True, eq=False, kw_only=True)
class LabelPosterior:
    """Estimates for each row, and the estimated noise."""

    p_error: FloatArray
    """(n,) P(clean ≠ given)."""
    most_probable: IntArray
    """(n,) the most probable clean class given features and label."""
    clean_prior: FloatArray
    """(K,)"""
    noise: NoiseModel | None = None
    """The reported T; ``None`` if it cannot be estimated. If labels flip near the boundary, the rates are
    averages over rows."""
    noise_low: FloatArray | None = None
    noise_high: FloatArray | None = None
    """Ends of the 90 % intervals of each entry of T."""
    ranking_noise: NoiseModel | None = None
    """The T behind ``p_error``. For two classes it differs from ``noise``, because its prior was chosen for
    ranking."""
    accuracy_as_labelled: float
    """Expected clean accuracy of a classifier that takes the labels as they are."""
    accuracy_corrected: float
    """Expected clean accuracy of a classifier that knows the noise."""
    reason: str = ""
    """Why the noise cannot be estimated; empty if it can."""
    near_boundary: float = 0.0
    """The probability that labels flip near the boundary between two classes, and not by class."""
    model_ignored: str = ""
    """Why only the annotators' reports and not the model's probabilities were used; empty if both were."""
    log_evidence: float = 0.0
    """Mean of log Σ_k P(clean = k | x)·likelihood_k, if a likelihood was given."""

    @property
    def is_class_conditional(self) -> bool:
        """Whether a T is estimated that describes single rows."""
        return self.noise is not None and self.near_boundary <= BOUNDARY_PROBABILITY


def label_posterior(
    proba: NDArray[Any],
    codes: IntArray,
    *,
    likelihood: FloatArray | None = None,
    reported: FloatArray | None = None,
) -> LabelPosterior:
    """Return the posterior of every row's label.

    A model that predicts the given labels no better than chance is not used. Then ``reported`` replaces it;
    without ``reported``, rows are ranked by the model's confidence in their label. ``reported`` also replaces
    a model that explains the reports of several annotators worse than the class frequencies alone do.

    Parameters
    ----------
    proba
        Out-of-fold probabilities of the noisy labels, (n, K).
    codes
        The given labels, 0..K-1.
    likelihood
        P(reports on the row | clean = k), (n, K), if several annotators reported: it replaces T[k, ỹ]. T is
        then that of the given labels.
    reported
        P(clean = k | reports on the row), (n, K), from the annotators' reports alone.
    """
    reason = explain_chance_level(proba, codes)
    if reason and reported is not None:
        return replace(posterior_of_reports(reported, codes), model_ignored=reason)
    if reason:
        return _by_self_confidence(proba, codes, reason)
    found = (_of_two_classes if proba.shape[1] == 2 else _of_many_classes)(proba, codes, likelihood)
    if likelihood is None or reported is None:
        return found
    without = float(np.log(np.maximum(likelihood @ reported.mean(axis=0), 1e-300)).mean())
    if found.log_evidence > without:
        return found
    reason = (
        "the model explains the annotators' reports worse than the class frequencies do (mean "
        f"log-likelihood {found.log_evidence:.3f} and {without:.3f})"
    )
    return replace(posterior_of_reports(reported, codes), model_ignored=reason)


def posterior_of_reports(reported: FloatArray, codes: IntArray) -> LabelPosterior:
    """Return the posterior of every row's label from the annotators' reports alone."""
    return label_posterior(reported, codes, likelihood=np.ones_like(reported))


def class_probabilities(
    found: LabelPosterior, proba: NDArray[Any], codes: IntArray, likelihood: FloatArray
) -> FloatArray:
    """Return P(clean = k | features, label) of every row, shape (n, K).

    ``found`` was computed from ``proba`` and ``codes`` and has an estimated noise; ``likelihood`` is
    P(label or reports of the row | clean = k), shape (n, K).
    """
    if proba.shape[1] == 2:
        return np.where(np.arange(2) == codes[:, None], 1.0 - found.p_error[:, None], found.p_error[:, None])
    assert found.ranking_noise is not None  # noqa: S101 - for mypy
    curve = fit_ranking_curve(proba, codes, found.ranking_noise.transition)
    return normalise_rows(curve.apply(proba) * likelihood)


def _by_self_confidence(proba: NDArray[Any], codes: IntArray, reason: str) -> LabelPosterior:
    n, k = proba.shape
    best = np.concatenate([proba[rows].argmax(axis=1) for rows in blocks(n, k)]).astype(np.int64)
    accuracy = float(take(proba, best).mean())
    return LabelPosterior(
        p_error=np.clip(1.0 - take(proba, codes), 0.0, 1.0),
        most_probable=best,
        clean_prior=np.asarray(proba.mean(axis=0), dtype=np.float64),
        accuracy_as_labelled=accuracy,
        accuracy_corrected=accuracy,
        reason=reason,
    )


def _of_two_classes(proba: NDArray[Any], codes: IntArray, likelihood: FloatArray | None) -> LabelPosterior:
    n = len(proba)
    ranking = fit_ranking(proba, codes)
    one, one_given_label = np.empty(n), np.empty(n)
    for rows in blocks(n, len(ranking.weights)):
        clean = ranking.candidates(ranking_score(proba[rows]))
        one[rows] = ranking.weights @ clean
        one_given_label[rows] = ranking.given_label(
            clean, codes[rows], None if likelihood is None else likelihood[rows]
        )
    evidence = np.ones(n) if likelihood is None else likelihood[:, 0] * (1.0 - one) + likelihood[:, 1] * one
    noise, (low, high) = ranking.noise, ranking.interval()
    if ranking.near_boundary <= BOUNDARY_PROBABILITY:
        estimate = estimate_class_noise(proba, codes)
        noise, low, high = estimate.noise, estimate.low, estimate.high
        assert estimate.posterior is not None  # noqa: S101 - for mypy
        for rows in blocks(n, len(estimate.posterior.weights)):
            one[rows] = estimate.posterior.transform(log_odds(proba[rows]))
    return LabelPosterior(
        p_error=np.clip(np.where(codes == 1, 1.0 - one_given_label, one_given_label), 0.0, 1.0),
        most_probable=(one_given_label > 0.5).astype(np.int64),
        clean_prior=np.array([1.0 - one.mean(), one.mean()]),
        noise=noise,
        noise_low=low,
        noise_high=high,
        ranking_noise=ranking.noise,
        accuracy_as_labelled=float(np.where(np.asarray(proba[:, 1]) > 0.5, one, 1.0 - one).mean()),
        accuracy_corrected=float(np.maximum(one, 1.0 - one).mean()),
        near_boundary=ranking.near_boundary,
        log_evidence=float(np.log(np.maximum(evidence, 1e-300)).mean()),
    )


def _of_many_classes(proba: NDArray[Any], codes: IntArray, likelihood: FloatArray | None) -> LabelPosterior:
    n, k = proba.shape
    estimate = estimate_class_noise(proba, codes)
    transition = estimate.noise.transition
    label_given_clean = np.ascontiguousarray(transition.T)
    curve = fit_ranking_curve(proba, codes, transition)
    sample = proba[sample_rows(n, k)]
    sampled = curve.apply(sample)
    p_given = np.empty(n)
    most_probable = np.empty(n, dtype=np.int64)
    prior, evidence = np.zeros(k), 0.0
    for rows in blocks(n, k):
        clean = curve.apply(proba[rows])
        clean *= label_given_clean[codes[rows]] if likelihood is None else likelihood[rows]
        evidence += float(np.log(np.maximum(row_sums(clean), 1e-300)).sum())
        normalise_rows(clean)
        p_given[rows] = take(clean, codes[rows])
        most_probable[rows] = clean.argmax(axis=1)
        prior += np.ones(len(clean)) @ clean
    return LabelPosterior(
        p_error=np.clip(1.0 - p_given, 0.0, 1.0),
        most_probable=most_probable,
        clean_prior=prior / prior.sum(),
        noise=estimate.noise,
        noise_low=estimate.low,
        noise_high=estimate.high,
        ranking_noise=estimate.noise,
        accuracy_as_labelled=float(take(sampled, sample.argmax(axis=1)).mean()),
        accuracy_corrected=float(sampled.max(axis=1).mean()),
        log_evidence=evidence / n,
    )


def suspicious_first(p_error: FloatArray) -> IntArray:
    """Return the positions of the rows, most probable errors first; ties keep the order of the rows."""
    return np.argsort(-p_error, kind="stable")


def flag_suspects(p_error: FloatArray, order: IntArray) -> BoolArray:
    """Flag the first rows in ``order``, as many as maximise the expected F1 of the flags.

    Flagging the m most probable errors has expected F1 close to 2·Σ_{i ≤ m} p_i / (m + Σ p). A threshold of ½
    would flag too few rows if errors are many and hard to detect.
    """
    found = np.cumsum(p_error[order])
    flagged = np.zeros(len(p_error), dtype=bool)
    if found[-1] > 0:
        f1 = 2.0 * found / (np.arange(1, len(p_error) + 1) + found[-1])
        flagged[order[: int(f1.argmax()) + 1]] = True
    return flagged
