"""Two classes: rank labels by P(wrong), averaged over every noise that the labels leave possible.

With hundreds of rows the noise rates are uncertain. A single pair of rates would then cost more than it
gains: whether a class has few labels because of noise or because it is small decides how labels of the two
classes compare. So every pair of a grid is a candidate with its own clean curve η = σ(a·s + b) of the score
s = logit p̃, and p_error is averaged over the candidates in proportion to their posterior probability. A wrong
difference of the rates costs more than a wrong sum. Therefore nearly all of the prior lies on equal rates,
which keep about the order of self-confidence, so that evidence is needed to depart from it.

If classes are unequal, labels that are wrong only near the boundary look like noise that flips the smaller
class: hardly any of its labels are confident. One more candidate stands for them. A label then flips with
probability 2η(1 − η), ½ at the boundary and 0 far from it. Then η̃ = ½ + ½(2η − 1)³ flattens in the middle of
the scores, while class-conditional noise flattens at both ends.

A flexible model on many rows flattens by itself, which hides the noise from the curve, but not from the
confident joint. The joint counts overlap of the classes as noise, so it has the weight of a few rows only.

At a candidate, a calibrated p̃ is ½(1 + e_neg − e_pos) at η = ½. The curve is expected to pass through that
point with the slope that calibration gives. :func:`peerloss.posterior.fit_clean_posterior` has no such
expectation, because its scores need not be calibrated; it ranked worse on development sets.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from scipy.special import expit, logit, logsumexp

from peerloss.noise.estimate import confident_joint
from peerloss.posterior._noise_rates import (
    CLIP,
    DIFFERENCE_SCALE,
    RANKING,
    CleanPosterior,
    RatePrior,
    class_noise,
    fit_label_curves,
    group_by_score,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from peerloss._validation import BoolArray, FloatArray, IntArray

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
#: The confident joint counts as if the clean class of this times √n rows of each class were known.
CONFIDENT_ROWS = 0.5


@dataclass(frozen=True, eq=False)
class RankingPosterior(CleanPosterior):
    """Candidate kinds of noise with their weights and clean curves; created by :func:`fit_ranking`.

    The rates of noise near the boundary are averages over rows.
    """

    prior: ClassVar[RatePrior] = RANKING
    is_boundary_noise: BoolArray
    """(G,) candidates for noise near the boundary, which is not class-conditional."""

    @property
    def near_boundary(self) -> float:
        """The posterior probability of noise near the boundary."""
        return float(self.weights[self.is_boundary_noise].sum())

    def given_label(self, clean: FloatArray, codes: IntArray, likelihood: FloatArray | None) -> FloatArray:
        """Return P(clean = 1 | score, label), averaged over the candidates, shape (n,).

        Parameters
        ----------
        clean
            P(clean = 1 | score) under each candidate, shape (G, n).
        codes
            The given labels.
        likelihood
            P(reports on the row | clean), shape (n, 2), which replaces the rates if several annotators
            reported.
        """
        if likelihood is None:
            rates = np.repeat(self.rates.T[:, :, None], clean.shape[1], axis=2)
            rates[:, self.is_boundary_noise] = _boundary_flips(clean[self.is_boundary_noise])
            label_if_zero = np.where(codes == 1, rates[0], 1.0 - rates[0])
            label_if_one = np.where(codes == 0, rates[1], 1.0 - rates[1])
        else:
            label_if_zero, label_if_one = likelihood.T
        one, zero = clean * label_if_one, (1.0 - clean) * label_if_zero
        averaged: FloatArray = self.weights @ (one / np.maximum(one + zero, 1e-300))
        return averaged


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
    explained: FloatArray = left_0 * np.log(e_neg) + kept_0 * np.log1p(-e_neg)
    explained += left_1 * np.log(e_pos) + kept_1 * np.log1p(-e_pos)
    return explained


def _log_prior(grid: FloatArray, share_of_ones: float) -> FloatArray:
    """Return the log prior of each pair: uniform in the size of the rates, a mixture in their difference."""
    steps = [ALMOST_NO_NOISE, *RANKING.rates]
    widths = dict(zip(steps, np.gradient(steps), strict=True))
    area = np.array([widths[n] * widths[p] for n, p in grid])
    difference = grid[:, 0] - grid[:, 1]
    equal = np.exp(-((difference / EQUAL_RATES_SCALE) ** 2) / 2.0) / EQUAL_RATES_SCALE
    about_half = (difference - (share_of_ones - 0.5)) / DIFFERENCE_SCALE  # α* = ½
    other = np.exp(-(about_half**2) / 2.0) / DIFFERENCE_SCALE
    prior: FloatArray = np.log(area * (EQUAL_RATES_WEIGHT * equal + other) + 1e-300)
    return prior


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

    def log_odds(at: FloatArray) -> tuple[FloatArray, FloatArray]:
        tilted = np.exp(at[0]) * x
        return tilted + at[1], tilted

    def boundary_noise(clean: FloatArray) -> tuple[FloatArray, FloatArray]:
        return 0.5 + (2.0 * clean - 1.0) ** 3 / 2.0, 3.0 * (2.0 * clean - 1.0) ** 2

    noise = boundary_noise if at_boundary else class_noise(grid[:, :1], gain)
    at, evidence = fit_label_curves(ones, zeros, log_odds, noise, np.zeros((2, len(grid), 1)), RANKING)
    slopes = np.exp(at[0]) * steepness
    return slopes[:, 0], (at[1] - slopes * middle)[:, 0], evidence
