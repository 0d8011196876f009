"""Two classes: noise rates and a clean posterior from noisy labels and a score.

Where the curve of the noisy labels over the score flattens determines the rates
(:mod:`peerloss.posterior._label_curves`). The rates are averaged over a grid, each pair in proportion to how
well it explains the labels, so that few rows lead to cautious estimates.

The model assumes that the score is the log-odds of the clean class up to scale, as the scores of linear
models, of regularised forests and of their averages are. A score that has itself learnt to flatten (a
flexible model on very many rows) hides the noise: its rates are then underestimated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from scipy.special import expit

from peerloss.noise import NoiseModel
from peerloss.posterior._label_curves import (
    CLASSIFIER,
    RatePrior,
    class_noise,
    fit_label_curves,
    group_by_score,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from peerloss._validation import BoolArray, FloatArray, IntArray

#: Probabilities are kept this far from 0 and 1 before log-odds are taken.
CLIP = 1e-3


@dataclass(frozen=True)
class CleanPosterior:
    """A fitted map from scores to P(clean = 1 | score); created by :func:`fit_clean_posterior`."""

    prior: ClassVar[RatePrior] = CLASSIFIER
    """The prior of the rates."""
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

    def interval(self) -> tuple[FloatArray, FloatArray]:
        """Return the lower and upper ends of the 90 % interval of each entry of T, two arrays (2, 2)."""
        T = self.noise.transition
        (neg_low, neg_high), (pos_low, pos_high) = (
            self.prior.interval(rates, self.weights) for rates in self.rates.T
        )
        low = np.array([[1.0 - neg_high, neg_low], [pos_low, 1.0 - pos_high]])
        high = np.array([[1.0 - neg_low, neg_high], [pos_high, 1.0 - pos_low]])
        return np.minimum(low, T), np.maximum(high, T)

    def candidates(self, score: FloatArray) -> FloatArray:
        """Return P(clean = 1 | score) under each candidate, shape (G, n)."""
        z = (score - self.centre) / self.scale
        curves: FloatArray = self.slopes[:, None] * z + self.intercepts[:, None]
        return np.asarray(expit(curves, out=curves))

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
    """Fit the curves and the distribution of the rates.

    Parameters
    ----------
    y_noisy
        Noisy labels 0 or 1, shape (n,).
    score
        *Out-of-fold* scores, larger for class 1, shape (n,).
    weight
        Non-negative weights of the rows. They count as the number of rows that would be as informative,
        (Σw)²/Σw². Rows of weight 0 are excluded.
    gold
        Clean and noisy labels of rows for which both are known. They make the rates more certain.
    verified
        Rows whose ``y_noisy`` is known to be clean: the curve alone explains those, without the rates.

    Returns
    -------
    The fitted :class:`CleanPosterior`.
    """
    if weight is None:
        weight = np.ones(len(score))
    used = weight > 0
    is_clean = np.zeros(used.sum(), dtype=bool) if verified is None else verified[used]
    y_noisy, score, weight = y_noisy[used], score[used], weight[used] * weight.sum() / (weight**2).sum()
    centre = float(np.average(score, weights=weight))
    scale = float(np.sqrt(np.average((score - centre) ** 2, weights=weight))) or 1.0
    z = (score - centre) / scale
    parts = [is_clean == clean for clean in np.unique(is_clean)]  # clean labels are explained differently
    groups = [
        group_by_score(z[rows], y_noisy[rows], weight[rows], max_groups=CLASSIFIER.max_groups)
        for rows in parts
    ]
    group_is_clean = np.repeat(np.unique(is_clean), [len(group[0]) for group in groups])
    z, positive, negative = np.concatenate(groups, axis=1)
    grid = CLASSIFIER.pairs()
    slopes, intercepts, evidence = _fit_curves(z, positive, negative, group_is_clean, grid)
    centre_of_difference = np.average(y_noisy, weights=weight) - 0.5  # ½·δ_p̃
    off = grid[:, 0] - grid[:, 1] - centre_of_difference
    evidence = evidence - off**2 / (2.0 * CLASSIFIER.difference_scale**2)
    if gold is not None:
        evidence = evidence + _gold_evidence(*gold, grid)
    weights = np.exp(evidence - evidence.max())
    kept = weights > CLASSIFIER.min_weight
    weights = weights[kept] / weights[kept].sum()
    return CleanPosterior(grid[kept], weights, slopes[kept], intercepts[kept], centre, scale)


def log_odds(proba: NDArray[Any]) -> FloatArray:
    """Return the log-odds of class 1, as the score of :func:`fit_clean_posterior`, shape (n,)."""
    p = np.clip(np.asarray(proba[:, 1], dtype=np.float64), CLIP, 1.0 - CLIP)
    odds: FloatArray = np.log(p / (1.0 - p))
    return odds


def _fit_curves(
    z: FloatArray, positive: FloatArray, negative: FloatArray, is_clean: BoolArray, grid: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Fit η̃ = e_neg + (1 − Σe)·σ(a·z + b) for every pair of rates; clean groups follow σ(a·z + b).

    Returns slopes, intercepts, and the log evidence of each pair.
    """
    e_neg, gain = grid[:, :1], 1.0 - grid.sum(axis=1, keepdims=True)
    start = np.stack([np.full_like(gain, 1.5), np.zeros_like(gain)])
    if is_clean.any():
        e_neg, gain = np.where(is_clean, 0.0, e_neg), np.where(is_clean, 1.0, gain)
    (slopes, intercepts), evidence = fit_label_curves(
        positive,
        negative,
        lambda at: (at[0] * z + at[1], z),
        class_noise(e_neg, gain),
        start=start,
        prior=CLASSIFIER,
    )
    return slopes[:, 0], intercepts[:, 0], evidence


def _gold_evidence(clean: IntArray, noisy: IntArray, grid: FloatArray) -> FloatArray:
    """Return the log-likelihood of known pairs under each candidate; a rate of 0 counts as 0.001."""
    rate = np.clip(np.where(clean == 1, grid[:, 1:], grid[:, :1]), 1e-3, 1.0)
    flipped = clean != noisy
    evidence: FloatArray = np.where(flipped, np.log(rate), np.log1p(-rate)).sum(axis=1)
    return evidence
