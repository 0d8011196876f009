"""The probability that each label is wrong: P(clean ≠ given | x, given label).

With p the clean posterior at x and T the noise, P(clean = k | x, ỹ) = p_k·T[k, ỹ] / Σ_j p_j·T[j, ỹ].
Ranking by it compares rows of different labels correctly for any T. Self-confidence does so for symmetric
noise only, and one threshold per class for one kind of asymmetric noise only. The *reported* noise is that of
:func:`~peerloss.posterior.estimate_class_noise`, as in ``PeerClassifier``, unless labels flip near the
boundary. For more than two classes the ranking uses it too, with p from
:mod:`peerloss.posterior.many_classes`. Tables (n, K) are read in blocks and not copied; other arrays have one
entry per row.

Two classes: with hundreds of rows the rates are uncertain, and a single pair of rates would do more harm than
good. The labels of a class may be few because of noise or because the class is small, and how labels of the
two classes compare depends on which is true. So every pair of a grid is a candidate with its own clean curve
η = σ(a·s + b) of the score s = logit p̃, and p_error is averaged over the candidates in proportion to their
posterior probability. A wrong difference of the rates costs more than a wrong sum. Therefore nearly all of
the prior lies on equal rates, which give about the order of self-confidence, and evidence is needed to depart
from it.

If classes are unequal, labels that are wrong only near the boundary look like noise that flips the smaller
class, because hardly any of its labels are confident. One more candidate describes such labels: they flip
with probability 2η(1 − η), ½ at the boundary and 0 far from it. Then η̃ = ½ + ½(2η − 1)³ flattens in the
middle of the scores, while class-conditional noise flattens at both ends.

A flexible model on many rows flattens by itself, which hides the noise from the curve, but not from the
confident joint. The joint counts overlap of the classes as noise, so it has the weight of a few rows only.

At a candidate, a calibrated p̃ is ½(1 + e_neg − e_pos) at η = ½. The curve is expected to pass through that
point with the slope that calibration gives. :func:`peerloss.posterior.fit_clean_posterior` has no such
expectation, because its scores need not be calibrated; it ranked worse on development sets.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import expit, logit, logsumexp

from peerloss._probabilities import blocks, label_frequencies, take
from peerloss.noise.estimate import confident_joint, explain_chance_level
from peerloss.posterior._noise_rates import DIFFERENCE_SCALE, estimate_class_noise
from peerloss.posterior.many_classes import sample_rows
from peerloss.posterior.noise_posterior import NoisePosterior
from peerloss.posterior.score_curves import (
    CLIP,
    RANKING,
    ScoreCurves,
    class_noise,
    fit_label_curves,
    group_by_score,
)
from peerloss.posterior.unexplained_noise import unexplained_share

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from peerloss._validation import BoolArray, FloatArray, IntArray
    from peerloss.noise import NoiseModel

#: Above this probability of noise near the boundary, noise counts as that and not as class-conditional.
BOUNDARY_PROBABILITY = 0.5
#: Standard deviation of e_neg − e_pos about 0 in the part of the prior for equal rates, and how much more
#: probable that part is than the part with ``DIFFERENCE_SCALE``.
EQUAL_RATES_SCALE, EQUAL_RATES_WEIGHT = 0.03, 32.0
#: One more candidate, for almost no noise in either class. Without it, confident labels that are right would
#: count as evidence for noise near the boundary.
ALMOST_NO_NOISE = 0.001
#: Prior weight of noise near the boundary, relative to all pairs of rates together.
BOUNDARY_WEIGHT = 1e-4
#: Scores are log-odds only approximately, so a label counts as this share of one label.
EVIDENCE = 0.6
#: More than two classes: the ranking averages over candidates for T as long as rows times classes times
#: candidates stay below this; else it uses the mean T.
RANKING_CELLS = 5_000_000
#: The confident joint counts as if the clean class of this times √n rows of each class were known.
CONFIDENT_ROWS = 0.5


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
    """The reported T, averaged over rows if labels flip near the boundary; ``None`` if not estimated."""
    noise_low: FloatArray | None = None
    noise_high: FloatArray | None = None
    """Ends of the 90 % intervals of each entry of T."""
    ranking_noise: NoiseModel | None = None
    """The T behind ``p_error``; for two classes its prior differs from that of ``noise``."""
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
    """
    reason = explain_chance_level(proba, codes)
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
        return np.where(np.arange(2) == codes[:, None], 1.0 - found.p_error[:, None], found.p_error[:, None])
    assert found.ranking_noise is not None  # noqa: S101 - for mypy
    certain = NoisePosterior(found.ranking_noise.transition[None], np.ones(1))
    return certain.given_label(proba, codes, likelihood)[0]


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
    if likelihood is None and (other := unexplained_share(codes, 2)):
        one_given_label += other * (np.asarray(proba[:, 1], dtype=np.float64) - one_given_label)
    evidence = np.ones(n) if likelihood is None else likelihood[:, 0] * (1.0 - one) + likelihood[:, 1] * one
    noise, (low, high) = ranking.noise, ranking.interval()
    prior = np.array([1.0 - one.mean(), one.mean()])
    as_labelled = float(np.where(np.asarray(proba[:, 1]) > 0.5, one, 1.0 - one).mean())
    corrected = float(np.maximum(one, 1.0 - one).mean())
    if ranking.near_boundary <= BOUNDARY_PROBABILITY:
        estimate = estimate_class_noise(proba, codes)
        noise, low, high = estimate.noise, estimate.low, estimate.high
        prior = estimate.posterior.clean_prior(label_frequencies(codes, 2))
        as_labelled, corrected = _expected_accuracies(estimate.posterior, proba, codes)
    return LabelPosterior(
        p_error=np.clip(np.where(codes == 1, 1.0 - one_given_label, one_given_label), 0.0, 1.0),
        most_probable=(one_given_label > 0.5).astype(np.int64),
        clean_prior=prior,
        noise=noise,
        noise_low=low,
        noise_high=high,
        ranking_noise=ranking.noise,
        accuracy_as_labelled=as_labelled,
        accuracy_corrected=corrected,
        near_boundary=ranking.near_boundary,
        log_evidence=float(np.log(np.maximum(evidence, 1e-300)).mean()),
    )


def _of_many_classes(proba: NDArray[Any], codes: IntArray, likelihood: FloatArray | None) -> LabelPosterior:
    n, k = proba.shape
    estimate = estimate_class_noise(proba, codes)
    posterior = estimate.posterior.thinned(RANKING_CELLS // (n * k))
    as_labelled, corrected = _expected_accuracies(estimate.posterior, proba, codes)
    p_given, most_probable = np.empty(n), np.empty(n, dtype=np.int64)
    prior, evidence = np.zeros(k), 0.0
    other = 0.0 if likelihood is not None else unexplained_share(codes, k)
    for rows in blocks(n, k):
        given = None if likelihood is None else likelihood[rows]
        clean, label_proba = posterior.given_label(proba[rows], codes[rows], given)
        evidence += float(np.log(label_proba).sum())
        prior += np.ones(len(clean)) @ clean
        if other:
            clean += other * (proba[rows] - clean)
        p_given[rows] = take(clean, codes[rows])
        most_probable[rows] = clean.argmax(axis=1)
    return LabelPosterior(
        p_error=np.clip(1.0 - p_given, 0.0, 1.0),
        most_probable=most_probable,
        clean_prior=prior / prior.sum(),
        noise=estimate.noise,
        noise_low=estimate.low,
        noise_high=estimate.high,
        ranking_noise=estimate.noise,
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


@dataclass(frozen=True, eq=False)
class RankingPosterior(ScoreCurves):
    """Candidate kinds of noise; the rates of noise near the boundary are averages over rows."""

    is_boundary_noise: BoolArray
    """(G,) candidates for noise near the boundary, which is not class-conditional."""

    @property
    def near_boundary(self) -> float:
        """The posterior probability of noise near the boundary."""
        return float(self.weights[self.is_boundary_noise].sum())

    def given_label(self, clean: FloatArray, codes: IntArray, likelihood: FloatArray | None) -> FloatArray:
        """Return P(clean = 1 | score, label), averaged over the candidates, shape (n,).

        ``clean`` is P(clean = 1 | score) under each candidate, (G, n). ``likelihood``, P(reports on the row |
        clean), (n, 2), replaces the rates if several annotators reported.
        """
        if likelihood is None:
            rates = np.repeat(self.rates.T[:, :, None], clean.shape[1], axis=2)
            rates[:, self.is_boundary_noise] = _boundary_flips(clean[self.is_boundary_noise])
            label_if_zero = np.where(codes == 1, rates[0], 1.0 - rates[0])
            label_if_one = np.where(codes == 0, rates[1], 1.0 - rates[1])
        else:
            label_if_zero, label_if_one = likelihood.T
        one, zero = clean * label_if_one, (1.0 - clean) * label_if_zero
        return np.asarray(self.weights @ (one / np.maximum(one + zero, 1e-300)))


def ranking_score(proba: NDArray[Any]) -> FloatArray:
    """Return the log-odds of class 1, shape (n,)."""
    return np.asarray(logit(np.clip(np.asarray(proba[:, 1], dtype=np.float64), CLIP, 1.0 - CLIP)))


def fit_ranking(proba: NDArray[Any], codes: IntArray) -> RankingPosterior:
    """Fit a clean curve to the labels for each kind of noise, and weight the kinds."""
    pairs = np.vstack([np.full((1, 2), ALMOST_NO_NOISE), RANKING.pairs()])
    score, ones, zeros = group_by_score(ranking_score(proba), codes, np.ones(len(codes)), RANKING)
    of_classes = _fit_curves(score, ones, zeros, pairs)
    of_boundary = _fit_curves(score, ones, zeros, np.zeros((1, 2)), at_boundary=True)
    slopes, intercepts, evidence = map(np.concatenate, zip(of_classes, of_boundary, strict=True))
    clean = expit(slopes[-1] * score + intercepts[-1])
    rows = (ones + zeros) * np.stack([1.0 - clean, clean])
    flipped = (rows * _boundary_flips(clean)).sum(axis=1) / np.maximum(rows.sum(axis=1), 1e-300)
    rates = np.vstack([pairs, RANKING.rates[np.abs(flipped[:, None] - RANKING.rates).argmin(axis=1)]])
    prior = _log_prior(pairs, float(codes.mean()))
    prior = np.append(prior, np.log(BOUNDARY_WEIGHT) + logsumexp(prior))
    kept, weights = RANKING.keep(EVIDENCE * evidence + _log_joint(proba, codes, rates) + prior)
    is_boundary = np.arange(len(rates)) == len(pairs)
    return RankingPosterior(
        rates[kept], weights, slopes[kept], intercepts[kept], 0.0, 1.0, is_boundary_noise=is_boundary[kept]
    )


def _boundary_flips(clean: FloatArray) -> FloatArray:
    return 2.0 * clean * (1.0 - clean)


def _log_joint(proba: NDArray[Any], codes: IntArray, grid: FloatArray) -> FloatArray:
    """Return how well each pair explains the labels of confident rows."""
    _, joint = confident_joint(proba, codes)
    shares = joint / np.maximum(joint.sum(axis=1, keepdims=True), 1e-300)
    (kept_0, left_0), (left_1, kept_1) = CONFIDENT_ROWS * np.sqrt(len(codes)) * shares
    e_neg, e_pos = grid.T
    zeros = left_0 * np.log(e_neg) + kept_0 * np.log1p(-e_neg)
    return np.asarray(zeros + (left_1 * np.log(e_pos) + kept_1 * np.log1p(-e_pos)))


def _log_prior(grid: FloatArray, share_of_ones: float) -> FloatArray:
    """Return the log prior of each pair: uniform in the size of the rates, a mixture in their difference."""
    steps = [ALMOST_NO_NOISE, *RANKING.rates]
    widths = dict(zip(steps, np.gradient(steps), strict=True))
    area = np.array([widths[n] * widths[p] for n, p in grid])
    difference = grid[:, 0] - grid[:, 1]
    equal = np.exp(-((difference / EQUAL_RATES_SCALE) ** 2) / 2.0) / EQUAL_RATES_SCALE
    about_half = (difference - (share_of_ones - 0.5)) / DIFFERENCE_SCALE  # α* = ½
    other = np.exp(-(about_half**2) / 2.0) / DIFFERENCE_SCALE
    return np.asarray(np.log(area * (EQUAL_RATES_WEIGHT * equal + other) + 1e-300))


def _fit_curves(
    score: FloatArray, ones: FloatArray, zeros: FloatArray, grid: FloatArray, *, at_boundary: bool = False
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Fit η̃ = e_neg + (1 − Σe)·σ(e^t·x + c) for all pairs, x being η's log-odds if p̃ is calibrated.

    With ``at_boundary`` the curve is that of noise near the boundary, and x is the score. Returns slopes and
    intercepts in terms of the score, and the log evidence of each pair.
    """
    difference, gain = grid[:, :1] - grid[:, 1:], 1.0 - grid.sum(axis=1, keepdims=True)
    middle, steepness = logit((1.0 + difference) / 2.0), (1.0 - difference**2) / gain
    x = steepness * (score - middle)

    def tilted_log_odds(at: FloatArray) -> tuple[FloatArray, FloatArray]:
        tilted = np.exp(at[0]) * x
        return tilted + at[1], tilted

    def boundary_noise(clean: FloatArray) -> tuple[FloatArray, FloatArray]:
        return 0.5 + (2.0 * clean - 1.0) ** 3 / 2.0, 3.0 * (2.0 * clean - 1.0) ** 2

    noise = boundary_noise if at_boundary else class_noise(grid[:, :1], gain)
    at, evidence = fit_label_curves(ones, zeros, tilted_log_odds, noise, np.zeros((2, len(grid), 1)), RANKING)
    slopes = np.exp(at[0]) * steepness
    return slopes[:, 0], (at[1] - slopes * middle)[:, 0], evidence
