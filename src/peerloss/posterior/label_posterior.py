"""The probability that each label is wrong: P(clean ≠ given | x, given label).

With p the clean posterior at x and T the noise, P(clean = k | x, ỹ) = p_k·T[k, ỹ] / Σ_j p_j·T[j, ỹ].
Ranking by it compares rows of different labels correctly for any T. Self-confidence does so for symmetric
noise only, and one threshold per class for one kind of asymmetric noise only. The *reported* noise is that of
:func:`~peerloss.posterior.estimate_class_noise`, as in ``PeerClassifier``, unless labels flip near the
boundary. For more than two classes the ranking uses it too, with p from
:mod:`peerloss.posterior.many_classes`. Tables (n, K) are read in blocks and not copied; other arrays have one
entry per row.

Two classes: every pair of rates of a grid is a candidate with its own clean curve
(:mod:`peerloss.posterior.rate_curves`), and p_error is averaged over the candidates in proportion to their
posterior probability. Noise near the boundary (:mod:`peerloss.posterior.boundary_noise`) is one more
candidate. P(clean | score, label) is a function of one score, which is tabulated.

"No label is wrong" is always a candidate. Labels of classes that overlap are then not taken for errors unless
their frequencies level off. Its probability decides whether anything is flagged (:func:`flag_suspects`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from peerloss._probabilities import blocks, label_frequencies, take
from peerloss.noise.estimate import explain_chance_level
from peerloss.posterior._noise_rates import bayes, estimate_class_noise, fit_clean_posterior
from peerloss.posterior.boundary_noise import fit_boundary_noise
from peerloss.posterior.many_classes import sample_rows
from peerloss.posterior.noise_posterior import NoisePosterior
from peerloss.posterior.unexplained_noise import unexplained_share

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from peerloss._validation import BoolArray, FloatArray, IntArray
    from peerloss.noise import NoiseModel
    from peerloss.posterior._noise_rates import TabulatedPosterior

#: Above this probability of noise near the boundary, noise counts as that and not as class-conditional.
BOUNDARY_PROBABILITY = 0.5
#: More than two classes: the ranking averages over candidates for T as long as rows times classes times
#: candidates stay below this; else it uses the mean T.
RANKING_CELLS = 5_000_000


@dataclass(frozen=True, eq=False, kw_only=True)
class LabelPosterior:
    """Estimates for each row, and the estimated noise."""

    p_error: FloatArray
    """(n,) P(clean ≠ given)."""
    likeliest_other: IntArray
    """(n,) the most probable clean class other than the given label."""
    p_other: FloatArray
    """(n,) its probability, given features and label."""
    clean_given_label: Callable[[IntArray], FloatArray]
    """Return P(clean = k | features, label) of the rows at these positions, shape (rows, K)."""
    clean_prior: FloatArray
    """(K,)"""
    noise: NoiseModel | None = None
    """The reported T, averaged over rows if labels flip near the boundary; ``None`` if not estimated."""
    noise_low: FloatArray | None = None
    noise_high: FloatArray | None = None
    """Ends of the 90 % intervals of each entry of T."""
    no_noise: float = 0.0
    """The probability that no label is wrong."""
    error_rate_interval: tuple[float, float] | None = None
    """Ends of the 90 % interval of the share of wrong labels; ``None`` if the noise is not estimated."""
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
        """Whether the noise is estimated and depends on the class alone, so that T describes every row."""
        return self.noise is not None and self.near_boundary <= BOUNDARY_PROBABILITY


def label_posterior(
    proba: NDArray[Any],
    codes: IntArray,
    *,
    likelihood: FloatArray | None = None,
    reported: FloatArray | None = None,
    reason: str = "",
) -> LabelPosterior:
    """Return the posterior of every row's label.

    A model that predicts the given labels no better than chance is not used. Then ``reported`` replaces it;
    without ``reported``, rows are ranked by the model's confidence in their label. ``reported`` also replaces
    a model that explains the reports of several annotators worse than the class frequencies alone do.

    Parameters
    ----------
    proba, codes
        Out-of-fold probabilities of the noisy labels, (n, K), and the given labels, 0..K-1.
    likelihood
        P(reports on the row | clean = k), (n, K), if several annotators reported: it replaces T[k, ỹ]. T is
        then that of the given labels.
    reported
        P(clean = k | reports on the row), (n, K), from the annotators' reports alone.
    reason
        Why the model cannot be used, if that is known already.
    """
    reason = reason or explain_chance_level(proba, codes)
    if not reason:
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
    if reported is None:
        return _by_self_confidence(proba, codes, reason)
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
        return _of_two(found.p_error, codes)
    assert found.noise is not None  # noqa: S101 - for mypy
    certain = NoisePosterior(found.noise.transition[None], np.ones(1))
    return certain.given_label(proba, codes, likelihood)[0]


def _of_two(p_error: FloatArray, codes: IntArray) -> FloatArray:
    return np.where(np.arange(2) == codes[:, None], 1.0 - p_error[:, None], p_error[:, None])


def likeliest_other(clean: NDArray[Any], codes: IntArray) -> tuple[IntArray, FloatArray]:
    """Return the most probable class of each row other than its label, and its probability."""
    others = np.array(clean, dtype=np.float64)
    others[np.arange(len(codes)), codes] = -1.0
    best = others.argmax(axis=1).astype(np.int64)
    return best, np.clip(take(others, best), 0.0, 1.0)


def _by_self_confidence(proba: NDArray[Any], codes: IntArray, reason: str) -> LabelPosterior:
    n, k = proba.shape
    other, p_other = np.empty(n, dtype=np.int64), np.empty(n)
    for rows in blocks(n, k):
        other[rows], p_other[rows] = likeliest_other(proba[rows], codes[rows])
    accuracy = float(np.maximum(p_other, take(proba, codes)).mean())
    return LabelPosterior(
        p_error=np.clip(1.0 - take(proba, codes), 0.0, 1.0),
        likeliest_other=other,
        p_other=p_other,
        clean_given_label=lambda rows: np.asarray(proba[rows], dtype=np.float64),
        clean_prior=np.asarray(proba.mean(axis=0), dtype=np.float64),
        accuracy_as_labelled=accuracy,
        accuracy_corrected=accuracy,
        reason=reason,
    )


def _of_two_classes(proba: NDArray[Any], codes: IntArray, likelihood: FloatArray | None) -> LabelPosterior:
    score = np.asarray(proba[:, 1], dtype=np.float64)
    by_class = fit_clean_posterior(codes, score)
    boundary = fit_boundary_noise(codes, score, by_class)

    def averaged(first: TabulatedPosterior, second: TabulatedPosterior) -> FloatArray:
        share = boundary.probability
        return (1.0 - share) * first.transform(score) + share * second.transform(score)

    one = averaged(by_class.tabulate(), boundary.tabulate())
    if likelihood is None:
        zero_label, one_label = (
            averaged(by_class.tabulate_given_label(label), boundary.tabulate_given_label(label))
            for label in (0, 1)
        )
        one_given_label, evidence = np.where(codes == 1, one_label, zero_label), np.ones(len(codes))
        other = unexplained_share(codes, 2)
        one_given_label += other * (score - one_given_label)
    else:
        other = 0.0
        one_given_label = bayes(one, likelihood[:, 1], likelihood[:, 0])
        evidence = likelihood[:, 0] * (1.0 - one) + likelihood[:, 1] * one
    posterior = by_class.noise_posterior()
    noise, (low, high) = posterior.noise, posterior.interval()
    noisy_prior = label_frequencies(codes, 2)
    least, most = posterior.error_rate_interval(noisy_prior)
    if boundary.probability <= BOUNDARY_PROBABILITY:
        prior = posterior.clean_prior(noisy_prior)
        as_labelled, corrected = _expected_accuracies(posterior, proba, codes)
    else:
        noise = boundary.average_noise(score)
        low, high = np.minimum(low, noise.transition), np.maximum(high, noise.transition)
        prior = np.array([1.0 - one.mean(), one.mean()])
        average = float(prior @ noise.flip_rates)
        least, most = min(least, average), max(most, average)
        as_labelled = float(np.where(score > 0.5, one, 1.0 - one).mean())
        corrected = float(np.maximum(one, 1.0 - one).mean())
    p_error = np.clip(np.where(codes == 1, 1.0 - one_given_label, one_given_label), 0.0, 1.0)
    return LabelPosterior(
        p_error=p_error,
        likeliest_other=1 - codes.astype(np.int64),
        p_other=p_error,
        clean_given_label=lambda rows: _of_two(p_error[rows], codes[rows]),
        clean_prior=prior,
        noise=noise,
        noise_low=low,
        noise_high=high,
        no_noise=(1.0 - other) * (1.0 - boundary.probability) * posterior.no_noise,
        error_rate_interval=(least, most),
        accuracy_as_labelled=as_labelled,
        accuracy_corrected=corrected,
        near_boundary=boundary.probability,
        log_evidence=float(np.log(np.maximum(evidence, 1e-300)).mean()),
    )


def _of_many_classes(proba: NDArray[Any], codes: IntArray, likelihood: FloatArray | None) -> LabelPosterior:
    n, k = proba.shape
    estimate = estimate_class_noise(proba, codes)
    posterior = estimate.posterior.thinned(RANKING_CELLS // (n * k))
    as_labelled, corrected = _expected_accuracies(estimate.posterior, proba, codes)
    p_given, best, p_best = np.empty(n), np.empty(n, dtype=np.int64), np.empty(n)
    prior, evidence = np.zeros(k), 0.0
    other = 0.0 if likelihood is not None else unexplained_share(codes, k)

    def clean_given_label(some: IntArray) -> FloatArray:
        reported = None if likelihood is None else likelihood[some]
        clean, _ = posterior.given_label(proba[some], codes[some], reported)
        return clean + other * (proba[some] - clean) if other else clean

    for rows in blocks(n, k):
        given = None if likelihood is None else likelihood[rows]
        clean, label_proba = posterior.given_label(proba[rows], codes[rows], given)
        evidence += float(np.log(label_proba).sum())
        prior += np.ones(len(clean)) @ clean
        if other:
            clean += other * (proba[rows] - clean)
        p_given[rows] = take(clean, codes[rows])
        best[rows], p_best[rows] = likeliest_other(clean, codes[rows])
    return LabelPosterior(
        p_error=np.clip(1.0 - p_given, 0.0, 1.0),
        likeliest_other=best,
        p_other=p_best,
        clean_given_label=clean_given_label,
        clean_prior=prior / prior.sum(),
        noise=estimate.noise,
        noise_low=estimate.low,
        noise_high=estimate.high,
        no_noise=(1.0 - other) * estimate.posterior.no_noise,
        error_rate_interval=estimate.posterior.error_rate_interval(label_frequencies(codes, k)),
        accuracy_as_labelled=as_labelled,
        accuracy_corrected=corrected,
        log_evidence=evidence / n,
    )


def _expected_accuracies(
    posterior: NoisePosterior, proba: NDArray[Any], codes: IntArray
) -> tuple[float, float]:
    """Return the expected clean accuracy of plain decisions and of decisions that account for the noise."""
    some = sample_rows(*proba.shape)
    proba, codes = np.asarray(proba[some], dtype=np.float64), codes[some]
    every_row = np.ones(len(codes))
    decisions = proba.argmax(axis=1), posterior.transform(proba).argmax(axis=1)
    plain, corrected = (posterior.weights @ posterior.accuracies(d, codes, every_row)[0] for d in decisions)
    return float(np.clip(plain, 0.0, 1.0)), float(np.clip(corrected, 0.0, 1.0))


def suspicious_first(p_error: FloatArray) -> IntArray:
    """Return the positions of the rows, most probable errors first; ties keep the order of the rows."""
    return np.argsort(-p_error, kind="stable")


def flag_suspects(
    p_error: FloatArray, order: IntArray, *, no_noise: float = 0.0, precision: float | None = None
) -> BoolArray:
    """Flag the first rows in ``order``: as many as maximise the expected F1, or as ``precision`` allows.

    If some labels are wrong, flagging the m most probable errors has expected F1 close to 2·Σ_{i ≤ m} p_i /
    (m + Σ p), where p is ``p_error`` divided by the probability that some are. A threshold of ½ would flag
    too few rows if errors are many and hard to detect. If no label is wrong, which has probability
    ``no_noise``, the F1 is 1 without flags and 0 with any. So nothing is flagged unless noise is probable.

    With ``precision`` the number of flags is the largest whose expected share of errors is at least that.
    """
    count = np.arange(1, len(p_error) + 1)
    found = np.cumsum(p_error[order])
    n_flags = 0
    if precision is not None:
        n_flags = int((found >= precision * count).sum())  # the mean of the first m falls with m
    elif found[-1] > 0:
        some = max(1.0 - no_noise, 1e-300)
        f1 = np.minimum(2.0 * found / (some * count + found[-1]), 1.0)
        n_flags = int(f1.argmax()) + 1 if some * f1.max() > no_noise else 0
    flagged = np.zeros(len(p_error), dtype=bool)
    flagged[order[:n_flags]] = True
    return flagged
