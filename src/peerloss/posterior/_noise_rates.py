"""Estimate class-conditional noise from noisy labels and out-of-fold probabilities.

``PeerClassifier``, ``PeerPlugInClassifier``, ``RobustMLPClassifier(alpha="auto")`` and the audit use this
estimate. There are two exceptions: ``RobustMLPClassifier(noise="estimate")`` uses
:func:`peerloss.estimate_noise`, and an audit of two classes whose labels flip near the boundary reports the
rates of its ranking.

For more than two classes T is counted (:mod:`peerloss.posterior.many_classes`). For two classes noise
compresses the posterior, η̃ = e_neg + (1 − e_neg − e_pos)·η. However confident a score is, noisy labels agree
with it no more often than 1 − e_pos on one side and 1 − e_neg on the other. The levels at which their curve
flattens determine the rates. The model is a logistic curve η = σ(linear function of the score), scaled to lie
between e_neg and 1 − e_pos. One curve is fitted for each pair of rates on a grid. The rates are averaged over
the pairs, each in proportion to how well it explains the labels, so that few rows lead to cautious estimates.

The score is assumed to be the log-odds of the clean class up to scale, as the scores of linear models, of
regularised forests and of their averages are. A score that has itself learnt to flatten (a flexible model on
very many rows) hides the noise: its rates are then underestimated.

There are two priors of the rates, because no single one was best for both tasks. ``CLASSIFIER`` was chosen by
the clean accuracy of ``PeerClassifier`` and the error of the rates, on development splits of eight of the
paper's data sets. :func:`estimate_class_noise` uses it; its scores need not be calibrated. ``RANKING`` was
chosen by how well ``p_error`` ranks wrong labels, on development seeds of the audit benchmark.
:mod:`peerloss.posterior.label_posterior` uses it; it expects calibrated scores.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from scipy.special import expit

from peerloss.noise import NoiseModel
from peerloss.posterior.many_classes import count_noise

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from peerloss._validation import BoolArray, FloatArray, IntArray

    #: A function with its derivative.
    Curve = Callable[[FloatArray], tuple[FloatArray, FloatArray]]

#: No rate above this is considered.
MAX_RATE = 0.5
#: Rates that differ by less are equal.
ROUNDING = 1e-9
#: Standard deviation of e_neg − e_pos about ½·δ_p̃, that is α* = ½: halfway between symmetric noise (α* = 0)
#: and clean classes of equal size (α* = 1). It helped a little with hundreds of rows, which cannot determine
#: the rates, and cost nothing with thousands. Half of it helps small sets more but biases the rates.
DIFFERENCE_SCALE = 0.1
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


CLASSIFIER = RatePrior(
    rates=np.arange(0.0, MAX_RATE - ROUNDING, 0.05),
    max_sum_of_rates=0.9 - ROUNDING,
    slope_scale=3.0,
    intercept_scale=2.0,
    max_groups=1000,
    clip=1e-9,
    max_iterations=60,
    tolerance=1e-8,
    min_weight=1e-6,
)
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
class NoiseEstimate:
    """Estimated noise with its uncertainty; created by :func:`estimate_class_noise`."""

    noise: NoiseModel
    low: FloatArray
    high: FloatArray
    """Ends of the 90 % intervals of each entry of T, shape (K, K)."""
    posterior: CleanPosterior | None = None
    """For two classes: the fitted clean posterior."""
    uncounted: Sequence[int] = ()
    """For more classes: those without a confident row. Their rows of T are uniform noise."""


def estimate_class_noise(
    proba: NDArray[Any],
    codes: IntArray,
    *,
    weight: FloatArray | None = None,
    gold: tuple[IntArray, IntArray] | None = None,
    verified: BoolArray | None = None,
) -> NoiseEstimate:
    """Estimate T from out-of-fold probabilities of the noisy labels.

    Two classes: see :func:`fit_clean_posterior`. For more classes T is counted from confident rows and shrunk
    towards uniform noise. ``PeerClassifier`` and :func:`~peerloss.find_label_issues` report this estimate
    (the latter unless labels flip near the boundary), so they agree on the same probabilities.
    ``PeerPlugInClassifier`` and ``RobustMLPClassifier`` use it to choose α with ``alpha="auto"``.
    :func:`peerloss.estimate_noise` has simpler methods, which need no model of the scores.

    Parameters
    ----------
    proba
        *Out-of-fold* probabilities P(noisy = k | x), shape (n, K).
    codes
        Noisy labels 0..K-1, shape (n,).
    weight
        Non-negative weights of the rows; with more than two classes they only exclude rows of weight 0.
    gold, verified
        Known clean labels, for two classes; see :func:`fit_clean_posterior`.

    Returns
    -------
    The :class:`NoiseEstimate`.
    """
    if proba.shape[1] == 2:
        posterior = fit_clean_posterior(codes, log_odds(proba), weight=weight, gold=gold, verified=verified)
        return NoiseEstimate(posterior.noise, *posterior.interval(), posterior)
    if weight is not None and not weight.all():
        proba, codes = proba[weight > 0], codes[weight > 0]
    noise, low, high, uncounted = count_noise(proba, codes)
    return NoiseEstimate(noise, low, high, uncounted=uncounted)


@dataclass(frozen=True)
class CleanPosterior:
    """A fitted map from scores to P(clean = 1 | score); created by :func:`fit_clean_posterior`."""

    prior: ClassVar[RatePrior] = CLASSIFIER
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
        low, high = np.transpose([self.prior.interval(rates, self.weights) for rates in self.rates.T])
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


def fit_clean_posterior(
    y_noisy: IntArray,
    score: FloatArray,
    *,
    weight: FloatArray | None = None,
    gold: tuple[IntArray, IntArray] | None = None,
    verified: BoolArray | None = None,
) -> CleanPosterior:
    """Estimate rates and P(clean = 1 | score) from where the noisy labels level off over the score.

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
    weight = np.ones(len(score)) if weight is None else weight
    used = weight > 0
    is_clean = np.zeros(used.sum(), dtype=bool) if verified is None else verified[used]
    y_noisy, score, weight = y_noisy[used], score[used], weight[used] * weight.sum() / (weight**2).sum()
    centre = float(np.average(score, weights=weight))
    scale = float(np.sqrt(np.average((score - centre) ** 2, weights=weight))) or 1.0
    kinds = np.unique(is_clean)  # clean labels have their own groups: the rates do not explain them
    groups = [
        group_by_score((score[rows] - centre) / scale, y_noisy[rows], weight[rows], CLASSIFIER)
        for rows in (is_clean == kind for kind in kinds)
    ]
    group_is_clean = np.repeat(kinds, [len(group[0]) for group in groups])
    z, ones, zeros = np.concatenate(groups, axis=1)
    grid = CLASSIFIER.pairs()
    e_neg, gain = grid[:, :1], 1.0 - grid.sum(axis=1, keepdims=True)
    start = np.stack([np.full_like(gain, 1.5), np.zeros_like(gain)])
    if is_clean.any():
        e_neg, gain = np.where(group_is_clean, 0.0, e_neg), np.where(group_is_clean, 1.0, gain)
    noise = class_noise(e_neg, gain)
    at, evidence = fit_label_curves(ones, zeros, lambda at: (at[0] * z + at[1], z), noise, start, CLASSIFIER)
    off = grid[:, 0] - grid[:, 1] - (np.average(y_noisy, weights=weight) - 0.5)
    evidence = evidence - off**2 / (2.0 * DIFFERENCE_SCALE**2)
    if gold is not None:
        evidence = evidence + _gold_evidence(*gold, grid)
    kept, weights = CLASSIFIER.keep(evidence)
    slopes, intercepts = at[:, kept, 0]
    return CleanPosterior(grid[kept], weights, slopes, intercepts, centre, scale)


def _gold_evidence(clean: IntArray, noisy: IntArray, grid: FloatArray) -> FloatArray:
    """Return the log-likelihood of known pairs under each candidate; a rate of 0 counts as 0.001."""
    rate = np.clip(np.where(clean == 1, grid[:, 1:], grid[:, :1]), 1e-3, 1.0)
    return np.asarray(np.where(clean != noisy, np.log(rate), np.log1p(-rate)).sum(axis=1))


def log_odds(proba: NDArray[Any]) -> FloatArray:
    """Return the log-odds of class 1, as the score of :func:`fit_clean_posterior`, shape (n,)."""
    p = np.clip(np.asarray(proba[:, 1], dtype=np.float64), CLIP, 1.0 - CLIP)
    return np.asarray(np.log(p / (1.0 - p)))


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
