"""Two classes: noise rates and a clean posterior from noisy labels and a score.

Class-conditional noise squeezes the posterior, η̃ = e_neg + (1 − e_neg − e_pos)·η: however sure the score,
noisy labels agree with it no more often than 1 − e_pos on one side and 1 − e_neg on the other. Where their
curve over the score levels off tells the rates. The model is a logistic curve between two unknown floors,
η = σ(a·z + b) for the standardised score z. The rates are not guessed but averaged over a grid in proportion
to how well they explain the labels, so that few rows lead to caution.

It rests on the score being a log-odds of the clean class up to scale, as the scores of linear models,
regularised forests and averages of such are. A score that has itself learnt to level off (a flexible model on
very many rows) hides the noise: its rates are then underestimated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import expit

from peerloss.noise._model import NoiseModel

if TYPE_CHECKING:
    from peerloss._validation import BoolArray, FloatArray, IntArray

#: The grid of rates: as fine as a few thousand rows can tell apart.
RATE_STEP, MAX_RATE, MAX_SUM_OF_RATES = 0.05, 0.5, 0.9
#: Standard deviations of the prior on slope and intercept of the standardised score.
SLOPE_SCALE, INTERCEPT_SCALE = 3.0, 2.0
#: Prior of e_neg − e_pos: around ½·δ_p̃, that is α* = ½, halfway between symmetric noise (0) and balanced
#: classes (1). On development splits it helped a little with hundreds of rows, where labels alone cannot tell
#: the rates, and cost nothing with thousands; half the scale helps the small sets more but biases the rates.
DIFFERENCE_SCALE = 0.1
#: Rows are gathered into at most so many groups of neighbouring scores: a smooth curve sees no difference.
MAX_GROUPS = 1000


@dataclass(frozen=True)
class CleanPosterior:
    """A fitted map from scores to P(clean = 1 | score); make one with :func:`fit_clean_posterior`."""

    rates: FloatArray
    """Candidate pairs (e_neg, e_pos), shape (G, 2)."""
    weights: FloatArray
    """Their posterior probabilities, shape (G,)."""
    slopes: FloatArray
    intercepts: FloatArray
    centre: float
    scale: float

    @property
    def noise(self) -> NoiseModel:
        """The noise with the posterior mean of each rate."""
        e_neg, e_pos = self.weights @ self.rates
        return NoiseModel.binary(float(e_neg), float(e_pos))

    def candidates(self, score: FloatArray) -> FloatArray:
        """Return P(clean = 1 | score) under each candidate, shape (G, n)."""
        z = (score - self.centre) / self.scale
        curves: FloatArray = expit(self.slopes[:, None] * z + self.intercepts[:, None])
        return curves

    def transform(self, score: FloatArray) -> FloatArray:
        """Return P(clean = 1 | score), averaged over the candidates, shape (n,)."""
        averaged: FloatArray = self.weights @ self.candidates(score)
        return averaged


def fit_clean_posterior(
    y_noisy: IntArray,
    score: FloatArray,
    *,
    weight: FloatArray | None = None,
    gold: tuple[IntArray, IntArray] | None = None,
    verified: BoolArray | None = None,
) -> CleanPosterior:
    """Fit the curve and the distribution of the rates.

    Parameters
    ----------
    y_noisy
        Noisy labels 0 or 1, shape (n,).
    score
        *Out-of-fold* scores, larger for class 1, shape (n,).
    weight
        Non-negative weights of the rows. They count as the number of rows that would be as informative,
        (Σw)²/Σw²; rows of weight 0 do not count.
    gold
        Clean and noisy labels of rows for which both are known; they sharpen the rates.
    verified
        Rows whose ``y_noisy`` is known to be clean: the curve alone explains those, without the rates.
    """
    if weight is None:
        weight = np.ones(len(score))
    used = weight > 0
    checked = np.zeros(used.sum(), dtype=bool) if verified is None else verified[used]
    y_noisy, score, weight = y_noisy[used], score[used], weight[used] * weight.sum() / (weight**2).sum()
    centre = float(np.average(score, weights=weight))
    scale = float(np.sqrt(np.average((score - centre) ** 2, weights=weight))) or 1.0
    z = (score - centre) / scale
    parts = [checked == clean for clean in np.unique(checked)]  # clean labels are explained differently
    groups = [gather_by_score(z[rows], y_noisy[rows], weight[rows], max_groups=MAX_GROUPS) for rows in parts]
    clean = np.repeat(np.unique(checked), [len(group[0]) for group in groups])
    one_side = np.arange(0.0, MAX_RATE - 1e-9, RATE_STEP)
    grid = np.array([(n, p) for n in one_side for p in one_side if n + p < MAX_SUM_OF_RATES - 1e-9])
    z, positive, negative = np.concatenate(groups, axis=1)
    slopes, intercepts, evidence = _fit_curves(z, positive, negative, clean, grid)
    centre_of_difference = np.average(y_noisy, weights=weight) - 0.5  # ½·δ_p̃
    off = grid[:, 0] - grid[:, 1] - centre_of_difference
    evidence = evidence - off**2 / (2.0 * DIFFERENCE_SCALE**2)
    if gold is not None:
        evidence = evidence + _gold_evidence(*gold, grid)
    weights = np.exp(evidence - evidence.max())
    kept = weights > 1e-6
    weights = weights[kept] / weights[kept].sum()
    return CleanPosterior(grid[kept], weights, slopes[kept], intercepts[kept], centre, scale)


def gather_by_score(
    score: FloatArray, y: IntArray, weight: FloatArray, *, max_groups: int
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Gather rows of neighbouring scores; return their mean scores and the weight of labels 1 and of 0."""
    order = np.argsort(score, kind="stable")
    starts = np.linspace(0, len(score), min(max_groups, len(score)) + 1).astype(int)[:-1]
    total = np.add.reduceat(weight[order], starts)
    ones = np.add.reduceat((weight * y)[order], starts)
    return np.add.reduceat((weight * score)[order], starts) / total, ones, total - ones


def _fit_curves(
    z: FloatArray, positive: FloatArray, negative: FloatArray, clean: BoolArray, grid: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Fit η̃ = e_neg + (1 − Σe)·σ(a·z + b) for every pair of rates at once, by damped Fisher scoring.

    Clean groups follow σ(a·z + b) itself. Returns slopes, intercepts, and the log evidence of each pair
    (Laplace's approximation).
    """
    e_neg, gain = grid[:, :1], 1.0 - grid.sum(axis=1, keepdims=True)
    prior_a, prior_b = 1.0 / SLOPE_SCALE**2, 1.0 / INTERCEPT_SCALE**2
    a, b = np.full_like(gain, 1.5), np.zeros_like(gain)
    damping = np.full_like(gain, 1e-3)
    if clean.any():
        e_neg, gain = np.where(clean, 0.0, e_neg), np.where(clean, 1.0, gain)

    def objective(a: FloatArray, b: FloatArray) -> FloatArray:
        p = np.clip(e_neg + gain * expit(a * z + b), 1e-9, 1.0 - 1e-9)
        fit = (positive * np.log(p) + negative * np.log1p(-p)).sum(axis=1, keepdims=True)
        return np.asarray(fit - (prior_a * a**2 + prior_b * b**2) / 2.0)

    current = objective(a, b)
    for _ in range(60):
        gradient_a, gradient_b, h_aa, h_ab, h_bb = _curvature(
            z, positive, negative, e_neg, gain, a, b, prior_a, prior_b
        )
        damped_a, damped_b = h_aa * (1.0 + damping), h_bb * (1.0 + damping)
        determinant = damped_a * damped_b - h_ab**2
        step_a = (damped_b * gradient_a - h_ab * gradient_b) / determinant
        step_b = (damped_a * gradient_b - h_ab * gradient_a) / determinant
        new = objective(a + step_a, b + step_b)
        better = new >= current
        a, b = np.where(better, a + step_a, a), np.where(better, b + step_b, b)
        gained = np.where(better, new - current, 0.0)
        current = np.where(better, new, current)
        damping = np.where(better, damping / 5.0, damping * 10.0)
        if (better & (gained < 1e-8)).all():
            break
    *_, h_aa, h_ab, h_bb = _curvature(z, positive, negative, e_neg, gain, a, b, prior_a, prior_b)
    determinant = h_aa * h_bb - h_ab**2
    evidence = current - np.log(np.maximum(determinant, 1e-12)) / 2.0
    return a[:, 0], b[:, 0], evidence[:, 0]


def _curvature(
    z: FloatArray,
    positive: FloatArray,
    negative: FloatArray,
    e_neg: FloatArray,
    gain: FloatArray,
    a: FloatArray,
    b: FloatArray,
    prior_a: float,
    prior_b: float,
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray, FloatArray]:
    """Return the gradient and the Fisher information of the log posterior, each of shape (G, 1)."""
    u = expit(a * z + b)
    p = np.clip(e_neg + gain * u, 1e-9, 1.0 - 1e-9)
    slope = gain * u * (1.0 - u) / (p * (1.0 - p))
    rows = positive + negative
    score, information = slope * (positive - rows * p), slope**2 * rows * p * (1.0 - p)
    return (
        (score * z).sum(axis=1, keepdims=True) - prior_a * a,
        score.sum(axis=1, keepdims=True) - prior_b * b,
        (information * z**2).sum(axis=1, keepdims=True) + prior_a,
        (information * z).sum(axis=1, keepdims=True),
        information.sum(axis=1, keepdims=True) + prior_b,
    )


def _gold_evidence(clean: IntArray, noisy: IntArray, grid: FloatArray) -> FloatArray:
    """Log-likelihood of known pairs under each candidate; a rate of 0 allows for a tiny slip."""
    rate = np.clip(np.where(clean == 1, grid[:, 1:], grid[:, :1]), 1e-3, 1.0)
    flipped = clean != noisy
    evidence: FloatArray = np.where(flipped, np.log(rate), np.log1p(-rate)).sum(axis=1)
    return evidence
