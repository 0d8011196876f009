"""Two classes: the curve of the noisy labels over a score, for every candidate pair of noise rates.

Class-conditional noise compresses the posterior, η̃ = e_neg + (1 − e_neg − e_pos)·η. However confident the
score is, noisy labels agree with it no more often than 1 − e_pos on one side and 1 − e_neg on the other. The
levels at which their curve flattens determine the rates. The model is a logistic curve η = σ(linear function
of the score) between two floors, one curve for each pair of rates on a grid.

Two priors of the rates were measured for different tasks and stand side by side, because neither does the
other's task as well.

``CLASSIFIER`` was measured by the clean accuracy of ``PeerClassifier`` and the error of the rates, on
development splits of eight of the paper's data sets. It is used wherever rates are reported:
``PeerClassifier``, ``PeerPlugInClassifier``, ``RobustMLPClassifier`` and the audit. Its scores need not be
calibrated.

``RANKING`` was measured by how well ``p_error`` ranks wrong labels, on development seeds of the audit
benchmark. Ranking compares labels of the two classes, so a wrong difference of the rates costs more than a
wrong sum. Therefore nearly all of its prior lies on equal rates, which keep the order of self-confidence.
It expects calibrated scores and knows a kind of noise that is not class-conditional (near the boundary).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import expit

if TYPE_CHECKING:
    from collections.abc import Callable

    from peerloss._validation import FloatArray, IntArray

    #: Parameters (2, G, 1) → log-odds of class 1 (G, g) and their derivative by the first parameter; that by
    #: the second is 1.
    LogOdds = Callable[[FloatArray], tuple[FloatArray, FloatArray]]
    #: P(clean = 1) → P(noisy = 1) and its derivative.
    NoiseCurve = Callable[[FloatArray], tuple[FloatArray, FloatArray]]


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
    difference_scale: float
    """Standard deviation of e_neg − e_pos about ½·δ_p̃, that is α* = ½: halfway between symmetric noise
    (α* = 0) and clean classes of equal size (α* = 1)."""
    max_groups: int
    """Rows are merged into at most this many groups of neighbouring scores, which a smooth curve allows."""
    clip: float
    """Predicted probabilities stay this far from 0 and 1."""
    max_iterations: int
    max_step: float
    tolerance: float
    """Fisher scoring stops when the log posterior of every curve increases by less."""
    min_weight: float
    """Candidates with less than this share of the largest weight are dropped."""
    interval_power: float
    """The 90 % intervals use weights raised to this power, with which they contained the true rates of
    development sets about nine times in ten. Weights that rank best are overconfident, hence the root."""

    def pairs(self) -> FloatArray:
        """Return all candidate pairs (e_neg, e_pos), shape (G, 2)."""
        grid = [(n, p) for n in self.rates for p in self.rates if n + p < self.max_sum_of_rates]
        return np.array(grid)

    def interval(self, rates: FloatArray, weights: FloatArray) -> tuple[float, float]:
        """Return the 90 % interval of one rate, extended to the edges of the grid cells.

        Parameters
        ----------
        rates, weights
            The rate and the posterior probability of each candidate, shape (G,).
        """
        flat = weights**self.interval_power / (weights**self.interval_power).sum()
        edges = np.array([0.0, *(self.rates[1:] + self.rates[:-1]) / 2.0, MAX_RATE])
        order = np.argsort(rates, kind="stable")
        reached = np.searchsorted(np.cumsum(flat[order]), QUANTILES)
        low, high = rates[order][np.minimum(reached, len(order) - 1)]
        return (
            float(edges[np.searchsorted(self.rates, low)]),
            float(edges[np.searchsorted(self.rates, high) + 1]),
        )


#: No rate above this is considered.
MAX_RATE = 0.5
#: Ends of the 90 % intervals.
QUANTILES = (0.05, 0.95)
#: Rates that differ by less are equal.
ROUNDING = 1e-9

CLASSIFIER = RatePrior(
    rates=np.arange(0.0, MAX_RATE - ROUNDING, 0.05),
    max_sum_of_rates=0.9 - ROUNDING,
    slope_scale=3.0,
    intercept_scale=2.0,
    # Helped a little with hundreds of rows, which cannot determine the rates, and cost nothing with
    # thousands. Half of it helps small sets more but biases the rates.
    difference_scale=0.1,
    max_groups=1000,
    clip=1e-9,
    max_iterations=60,
    max_step=np.inf,
    tolerance=1e-8,
    min_weight=1e-6,
    interval_power=1.0,
)

RANKING = RatePrior(
    rates=np.array([0.02, *np.arange(1, 11) / 20]),
    max_sum_of_rates=0.93,
    slope_scale=1.0,  # of the logarithm of the slope, about that of calibrated scores
    intercept_scale=1.0,
    difference_scale=0.1,
    max_groups=150,
    clip=1e-6,
    max_iterations=25,
    max_step=1.0,
    tolerance=1e-3,
    min_weight=1e-4,
    interval_power=0.5,
)
#: Ranking: standard deviation of e_neg − e_pos about 0 in the part of the prior for equal rates, and how much
#: more probable that part is than the part with ``difference_scale``.
EQUAL_RATES_SCALE, EQUAL_RATES_WEIGHT = 0.03, 32.0
#: Ranking: one more candidate, for almost no noise in either class. Without it, confident labels that are
#: right would count as evidence for noise near the boundary.
ALMOST_NO_NOISE = 0.001
#: Ranking: prior weight of noise near the boundary, relative to all pairs of rates together.
BOUNDARY_WEIGHT = 1e-4
#: Ranking: scores are log-odds only approximately, so a label counts as this share of one label.
EVIDENCE = 0.6
#: Ranking: the confident joint counts as if the clean class of this times √n rows of each class were known.
CONFIDENT_ROWS = 0.5


def group_by_score(
    score: FloatArray, y: IntArray, weight: FloatArray, *, max_groups: int
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Merge rows of neighbouring scores; return their mean scores and the weights of labels 1 and 0."""
    order = np.argsort(score, kind="stable")
    starts = np.linspace(0, len(score), min(max_groups, len(score)) + 1).astype(int)[:-1]
    total = np.add.reduceat(weight[order], starts)
    ones = np.add.reduceat((weight * y)[order], starts)
    return np.add.reduceat((weight * score)[order], starts) / total, ones, total - ones


def class_noise(e_neg: FloatArray, gain: FloatArray) -> NoiseCurve:
    """Return the curve of class-conditional noise, e_neg + gain·η with gain = 1 − e_neg − e_pos."""
    return lambda clean: (e_neg + gain * clean, gain)


def boundary_noise(clean: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the curve of labels that flip with probability 2η(1 − η): ½ + ½(2η − 1)³."""
    return 0.5 + (2.0 * clean - 1.0) ** 3 / 2.0, 3.0 * (2.0 * clean - 1.0) ** 2


def fit_label_curves(
    ones: FloatArray,
    zeros: FloatArray,
    log_odds: LogOdds,
    noise: NoiseCurve,
    *,
    start: FloatArray,
    prior: RatePrior,
) -> tuple[FloatArray, FloatArray]:
    """Maximise the posterior of G curves with two parameters each, by damped Fisher scoring.

    Parameters
    ----------
    ones, zeros
        Weight of the labels 1 and 0 in each group, shape (g,).
    log_odds
        The log-odds of the clean class as a function of the parameters.
    noise
        What the noise makes of P(clean = 1).
    start
        First values of the parameters, shape (2, G, 1).
    prior
        Scales of the parameters, and the settings of the fit.

    Returns
    -------
    The parameters, shape (2, G, 1), and the log evidence of each curve (Laplace's approximation), shape (G,).
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
