"""Logistic curves of the label frequency over a calibrated score, for the ranking of an audit of two classes.

Noise compresses the posterior, η̃ = e_neg + (1 − e_neg − e_pos)·η. For each pair of rates on a grid, a
logistic curve η = σ(linear function of the score) is fitted. The prior of the rates was chosen by how well
``p_error`` ranks wrong labels, on development seeds of the audit benchmark.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import expit

from peerloss.noise import NoiseModel

if TYPE_CHECKING:
    from collections.abc import Callable

    from peerloss._validation import BoolArray, FloatArray, IntArray

    #: A function with its derivative.
    Curve = Callable[[FloatArray], tuple[FloatArray, FloatArray]]

#: No rate above this is considered.
MAX_RATE = 0.5
#: Rates that differ by less are equal.
ROUNDING = 1e-9
#: Probabilities are kept this far from 0 and 1 before log-odds are taken.
CLIP = 1e-3


@dataclass(frozen=True, eq=False)
class RatePrior:
    """Candidate rates, the prior of their curves, and how precisely these are fitted."""

    rates: FloatArray
    """Candidate values of each rate."""
    max_sum_of_rates: float
    """Pairs of rates with a larger sum are not candidates: labels would carry almost no information."""
    slope_scale: float
    intercept_scale: float
    """Standard deviations of the normal prior of a curve's two parameters."""
    max_groups: int
    """Rows are merged into at most this many groups of neighbouring scores, which a smooth curve allows."""
    clip: float
    """Predicted probabilities stay this far from 0 and 1."""
    max_iterations: int
    tolerance: float
    """Fisher scoring stops when the log posterior of every curve increases by less."""
    min_weight: float
    """Candidates with less than this share of the largest weight are dropped."""
    max_step: float = np.inf
    interval_power: float = 1.0
    """The 90 % intervals use weights raised to this power. The weights of ``RANKING`` are too confident: with
    their square roots, the intervals contained the true rates of development sets about nine times in ten."""

    def pairs(self) -> FloatArray:
        """Return all candidate pairs (e_neg, e_pos), shape (G, 2)."""
        return np.array([(n, p) for n in self.rates for p in self.rates if n + p < self.max_sum_of_rates])

    def keep(self, log_weights: FloatArray) -> tuple[BoolArray, FloatArray]:
        """Return which candidates are kept, and the weights of those, which sum to 1."""
        weights = np.exp(log_weights - log_weights.max())
        kept = weights > self.min_weight
        return kept, weights[kept] / weights[kept].sum()

    def interval(self, rates: FloatArray, weights: FloatArray) -> tuple[float, float]:
        """Return the 90 % interval of one rate, extended to the edges of the grid cells."""
        flat = weights**self.interval_power / (weights**self.interval_power).sum()
        edges = np.array([0.0, *(self.rates[1:] + self.rates[:-1]) / 2.0, MAX_RATE])
        order = np.argsort(rates, kind="stable")
        reached = np.searchsorted(np.cumsum(flat[order]), (0.05, 0.95))
        low, high = np.searchsorted(self.rates, rates[order][np.minimum(reached, len(order) - 1)])
        return float(edges[low]), float(edges[high + 1])


RANKING = RatePrior(
    rates=np.array([0.02, *np.arange(1, 11) / 20]),
    max_sum_of_rates=0.93,
    slope_scale=1.0,  # of the logarithm of the slope, about that of calibrated scores
    intercept_scale=1.0,
    max_groups=150,
    clip=1e-6,
    max_iterations=25,
    tolerance=1e-3,
    min_weight=1e-4,
    max_step=1.0,
    interval_power=0.5,
)


@dataclass(frozen=True, eq=False)
class ScoreCurves:
    """Maps from scores to P(clean = 1 | score), one for each candidate pair of rates."""

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
        low, high = np.transpose([RANKING.interval(rates, self.weights) for rates in self.rates.T])
        lower = np.array([[1.0 - high[0], low[0]], [low[1], 1.0 - high[1]]])
        upper = np.array([[1.0 - low[0], high[0]], [high[1], 1.0 - low[1]]])
        return np.minimum(lower, self.noise.transition), np.maximum(upper, self.noise.transition)

    def candidates(self, score: FloatArray) -> FloatArray:
        """Return P(clean = 1 | score) under each candidate, shape (G, n)."""
        curves = self.slopes[:, None] * ((score - self.centre) / self.scale) + self.intercepts[:, None]
        return np.asarray(expit(curves, out=curves))

    def transform(self, score: FloatArray) -> FloatArray:
        """Return P(clean = 1 | score), averaged over the candidates, shape (n,)."""
        return np.asarray(self.weights @ self.candidates(score))


def group_by_score(
    score: FloatArray, y: IntArray, weight: FloatArray, prior: RatePrior
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Merge rows of neighbouring scores; return their mean scores and the weights of labels 1 and 0."""
    order = np.argsort(score, kind="stable")
    starts = np.linspace(0, len(score), min(prior.max_groups, len(score)) + 1).astype(int)[:-1]
    total = np.add.reduceat(weight[order], starts)
    ones = np.add.reduceat((weight * y)[order], starts)
    return np.add.reduceat((weight * score)[order], starts) / total, ones, total - ones


def class_noise(e_neg: FloatArray, gain: FloatArray) -> Curve:
    """Return the curve of class-conditional noise, e_neg + gain·η with gain = 1 − e_neg − e_pos."""
    return lambda clean: (e_neg + gain * clean, gain)


def fit_label_curves(
    ones: FloatArray, zeros: FloatArray, log_odds: Curve, noise: Curve, start: FloatArray, prior: RatePrior
) -> tuple[FloatArray, FloatArray]:
    """Maximise the posterior of G curves with two parameters each, by damped Fisher scoring.

    ``ones`` and ``zeros`` are the weights of the labels 1 and 0 in each group, (g,). ``log_odds`` maps
    parameters (2, G, 1) to the log-odds of class 1, (G, g), and their derivative by the first parameter; that
    by the second is 1. ``noise`` maps P(clean = 1) to P(noisy = 1) and its derivative.

    Returns the parameters and the log evidence of each curve (Laplace's approximation), shape (G,).
    """
    precision = np.array([1.0 / prior.slope_scale**2, 1.0 / prior.intercept_scale**2])[:, None, None]
    rows = ones + zeros

    def log_posterior(at: FloatArray) -> FloatArray:
        p = np.clip(noise(expit(log_odds(at)[0]))[0], prior.clip, 1.0 - prior.clip)
        fit = (ones * np.log(p) + zeros * np.log1p(-p)).sum(axis=1, keepdims=True)
        return np.asarray(fit - (precision * at**2).sum(axis=0) / 2.0)

    def derivatives(at: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the gradient, and the diagonal and the other entry of the Fisher information."""
        linear, design = log_odds(at)
        u = expit(linear)
        p, rise = noise(u)
        p = np.clip(p, prior.clip, 1.0 - prior.clip)
        slope = rise * u * (1.0 - u) / (p * (1.0 - p))
        score, information = slope * (ones - rows * p), slope**2 * rows * p * (1.0 - p)
        gradient = np.stack([score * design, score]).sum(axis=2, keepdims=True) - precision * at
        diagonal = np.stack([information * design**2, information]).sum(axis=2, keepdims=True) + precision
        return gradient, diagonal, (information * design).sum(axis=1, keepdims=True)

    at, current = start, log_posterior(start)
    damping = np.full_like(current, 1e-3)
    for _ in range(prior.max_iterations):
        gradient, diagonal, mixed = derivatives(at)
        damped = diagonal * (1.0 + damping)
        step = (damped[::-1] * gradient - mixed * gradient[::-1]) / (damped[0] * damped[1] - mixed**2)
        new = at + np.clip(step, -prior.max_step, prior.max_step)
        value = log_posterior(new)
        better = value >= current
        gained = np.where(better, value - current, 0.0)
        at, current = np.where(better, new, at), np.where(better, value, current)
        damping = np.where(better, damping / 5.0, damping * 10.0)
        if (better & (gained < prior.tolerance)).all():
            break
    _, diagonal, mixed = derivatives(at)
    evidence = current - np.log(np.maximum(diagonal[0] * diagonal[1] - mixed**2, 1e-12)) / 2.0
    return at, evidence[:, 0]
