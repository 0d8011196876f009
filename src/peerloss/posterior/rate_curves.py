"""How often a label occurs, as a curve over the rank of a score, between two levels set by the noise.

If labels of class 1 are seen with probability e_neg where the clean class is 0 and 1 − e_pos where it is 1,
then η̃ = e_neg + (1 − e_neg − e_pos)·η for every row. The levels at which η̃ flattens at both ends of the score
determine the rates. For each candidate pair of rates, η = σ(h) is fitted to the noisy labels, and the
evidence of the fits compares the pairs.

The curve h is a function of the *rank* of the score, not of its value. A flexible model on many rows learns
the flat ends itself: as a function of its own log-odds, its labels never flatten, whatever the noise. Ranks
have no such memory: where rows cannot be told apart, their order is random and the label frequency stays at
its level. Ranks are mapped to quantiles z of a normal distribution, because the log-odds of classes that
overlap like normal distributions then grow about linearly to the very ends.

h is increasing and piecewise linear in z. Its slopes may change by a factor of about two from one piece to
the next, or of about 1.2: the evidence weighs curves of both kinds. A plateau at the end of the score needs a
much flatter last piece or a level; the level is the cheaper explanation. With few rows neither is certain,
and many pairs of rates keep some weight. A second, finer grid of pairs covers those that the first one
leaves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.special import expit, logsumexp, ndtri

from peerloss.posterior.noise_posterior import LEAST_SHARE

if TYPE_CHECKING:
    from collections.abc import Callable

    from peerloss._validation import BoolArray, FloatArray, IntArray

    #: Maps pairs (G, 2) to a log density or log evidence (G,).
    LogOfPairs = Callable[[FloatArray], FloatArray]
    #: Maps clean probabilities (C, g) of some candidates, and their positions (C,), to noisy probabilities
    #: and their derivatives.
    Noise = Callable[[FloatArray, IntArray], tuple[FloatArray, FloatArray]]

#: Where the slope of h may change, in units of z: pieces with 12, 23, 31, 23 and 12 % of the rows.
KNOTS = np.array([-1.2, -0.4, 0.4, 1.2])
#: Prior of the logarithms of the slopes: normal around this mean, with this standard deviation of their
#: average. A slope of 2 separates classes with an accuracy of .78.
LOG_SLOPE, LOG_SLOPE_SCALE = 0.7, 1.0
#: Candidate standard deviations of the steps between neighbouring log slopes, equally probable a priori.
STEP_SCALES = (0.2, 0.7)
#: Standard deviation of the prior of h(0).
INTERCEPT_SCALE = 3.0
#: Rows are merged into at most this many groups of neighbouring ranks, and z is interpolated between at most
#: this many scores.
MAX_GROUPS, MAX_KNOTS = 200, 1000
#: A label counts as this share of one label: with it, 90 % intervals of the rates contained the truth about
#: nine times in ten on development data.
EVIDENCE = 0.6
#: All labels together count as at most this many. The error of the curves themselves does not fall with more
#: rows: without this bound, intervals of the rates of 100,000 rows contained the truth in 4 of 10 cases.
MAX_LABELS = 12000.0
#: Predicted probabilities stay this far from 0 and 1.
CLIP = 1e-6
#: Smaller scores count as 0. Boosting gives probabilities as small as 1e-320.
TINY_SCORE = 1e-280
#: Fisher scoring of a curve stops when its log posterior increases by less, or after so many steps.
TOLERANCE, MAX_ITERATIONS = 1e-2, 40
#: Bounds of the logarithms of the slopes, and of one step.
SLOPE_BOUNDS, MAX_STEP = (-12.0, 6.0), 2.0
#: Candidate rates of the first grid.
RATES = np.array([0.0, 0.02, *np.arange(1, 10) / 20])
#: Number of candidate values of each rate in the second grid.
FINE_STEPS = 13
#: Pairs of rates with a larger sum are not candidates: labels would carry almost no information.
MAX_SUM_OF_RATES = 0.9
#: Pairs with less than this share of the largest weight are dropped: from the first grid, and at the end.
MIN_COARSE_WEIGHT, MIN_WEIGHT = 1e-3, 1e-4
#: Prior of the rates: density exp(−rate/scale).
RATE_SCALE = 1.0
#: Prior probability that no label is wrong.
NO_NOISE = 0.2
#: The smallest rate for which known pairs are evidence; a rate of 0 would forbid a single error.
LEAST_RATE = 1e-3


class Groups(NamedTuple):
    """Rows merged by rank."""

    design: FloatArray
    """(g, J) how much each slope contributes to h."""
    ones: FloatArray
    zeros: FloatArray
    """(g,) weights of the labels 1 and 0."""
    is_clean: BoolArray
    """(g,) whether the labels are known to be clean."""


class RankScale(NamedTuple):
    """Maps scores to normal quantiles of their ranks, by interpolation between some of the fitted scores."""

    scores: FloatArray
    z: FloatArray

    @classmethod
    def fit(cls, score: FloatArray, weight: FloatArray) -> RankScale:
        """Rank the scores by their weights; equal scores share their mean rank."""
        values, place = np.unique(_without_tiny(score), return_inverse=True)
        mass = np.bincount(place, weights=weight)
        rank = (np.cumsum(mass) - mass / 2.0) / mass.sum()
        some = np.unique(np.linspace(0, len(values) - 1, min(MAX_KNOTS, len(values))).astype(int))
        return cls(values[some], np.asarray(ndtri(rank[some])))

    def transform(self, score: FloatArray) -> FloatArray:
        """Return z of each score; scores outside the fitted ones have the z of the last one."""
        return np.asarray(np.interp(_without_tiny(score), self.scores, self.z))


def _without_tiny(score: FloatArray) -> FloatArray:
    """Set scores to 0 that are so small that interpolation between them would overflow."""
    return np.where(np.abs(score) < TINY_SCORE, 0.0, score)


def group_by_rank(
    z: FloatArray, is_one: IntArray | BoolArray, weight: FloatArray, is_clean: BoolArray
) -> Groups:
    """Merge rows of neighbouring ranks; noisy and clean labels have groups of their own."""
    parts = [_merge(z[kind], is_one[kind], weight[kind]) for kind in (~is_clean, is_clean) if kind.any()]
    z_groups, ones, zeros = np.concatenate(parts, axis=1)
    kinds = np.repeat(
        [kind for kind in (False, True) if (is_clean == kind).any()], [len(p[0]) for p in parts]
    )
    return Groups(piecewise_design(z_groups), ones, zeros, kinds)


def _merge(z: FloatArray, is_one: IntArray | BoolArray, weight: FloatArray) -> list[FloatArray]:
    order = np.argsort(z, kind="stable")
    starts = np.linspace(0, len(z), min(MAX_GROUPS, len(z)) + 1).astype(int)[:-1]
    total = np.add.reduceat(weight[order], starts)
    ones = np.add.reduceat((weight * is_one)[order], starts)
    return [np.add.reduceat((weight * z)[order], starts) / total, ones, total - ones]


def piecewise_design(z: FloatArray) -> FloatArray:
    """Return the length of each piece between 0 and z, (g, J): h = intercept + design @ slopes."""
    left, right = np.r_[-np.inf, KNOTS], np.r_[KNOTS, np.inf]
    return np.asarray(np.clip(z[:, None], left, right) - np.clip(0.0, left, right))


@dataclass(frozen=True)
class _Prior:
    """Normal prior of the log slopes and the intercept."""

    mean: FloatArray
    precision: FloatArray

    @classmethod
    def of_curves(cls, step_scale: float) -> _Prior:
        n_slopes = len(KNOTS) + 1
        steps = np.diff(np.eye(n_slopes), axis=0)
        precision = np.zeros((n_slopes + 1, n_slopes + 1))
        precision[:-1, :-1] = steps.T @ steps / step_scale**2 + (n_slopes * LOG_SLOPE_SCALE) ** -2.0
        precision[-1, -1] = INTERCEPT_SCALE**-2.0
        return cls(np.append(np.full(n_slopes, LOG_SLOPE), 0.0), precision)

    def log_density(self, at: FloatArray) -> FloatArray:
        off = at - self.mean
        constant = 0.5 * np.linalg.slogdet(self.precision)[1]
        return np.asarray(constant - 0.5 * ((off @ self.precision) * off).sum(axis=1))


def clean_curves(curves: FloatArray, z: FloatArray) -> FloatArray:
    """Return P(clean = 1 | z) for each row of ``curves``, shape (G, n)."""
    slopes = np.exp(np.clip(curves[:, :-1], *SLOPE_BOUNDS))
    return np.asarray(expit(slopes @ piecewise_design(z).T + curves[:, -1:]))


def class_noise(pairs: FloatArray) -> Noise:
    """Return η̃ = e_neg + (1 − e_neg − e_pos)·η for candidate pairs (G, 2)."""

    def mix(clean: FloatArray, curves: IntArray) -> tuple[FloatArray, FloatArray]:
        gain = 1.0 - pairs[curves].sum(axis=1, keepdims=True)
        return pairs[curves, :1] + gain * clean, gain

    return mix


def boundary_noise(clean: FloatArray, _curves: IntArray) -> tuple[FloatArray, FloatArray]:
    """Return η̃ = ½ + ½(2η − 1)³ and its derivative: labels flip with probability 2η(1 − η)."""
    centred = 2.0 * clean - 1.0
    return 0.5 + centred**3 / 2.0, 3.0 * centred**2


def boundary_flips(clean: FloatArray) -> FloatArray:
    """Return the probability that a label flips near the boundary: ½ where η = ½, 0 where η is certain."""
    return 2.0 * clean * (1.0 - clean)


def counted_share(n_labels: float) -> float:
    """Return the share of one label that each of ``n_labels`` labels counts as evidence."""
    return min(EVIDENCE, MAX_LABELS / n_labels)


def fit_rank_curves(
    groups: Groups, noise: Noise, n_curves: int, step_scale: float
) -> tuple[FloatArray, FloatArray]:
    """Fit a curve for each candidate noise; return the curves (G, J + 1) and their log evidence (G,).

    ``step_scale`` is the standard deviation of the steps between neighbouring log slopes. The most probable
    curve is found by damped Fisher scoring. A curve is its log slopes and h(0). The evidence is known up to a
    constant and is Laplace's approximation around that curve. Each label counts as a share of one
    (``EVIDENCE``, ``MAX_LABELS``), because every family of curves is an approximation.
    """
    design, ones, zeros, is_clean = groups
    share = counted_share(float((ones + zeros).sum()))
    ones, zeros = share * ones, share * zeros
    rows, prior = ones + zeros, _Prior.of_curves(step_scale)

    def curve(at: FloatArray, left: IntArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        slopes = np.exp(np.clip(at[:, :-1], *SLOPE_BOUNDS))
        clean = expit(slopes @ design.T + at[:, -1:])
        noisy, rise = noise(clean, left)
        if is_clean.any():
            noisy, rise = np.where(is_clean, clean, noisy), np.where(is_clean, 1.0, rise)
        return slopes, clean, np.clip(noisy, CLIP, 1.0 - CLIP), rise

    def log_posterior(at: FloatArray, left: IntArray) -> FloatArray:
        p = curve(at, left)[2]
        return np.log(p) @ ones + np.log1p(-p) @ zeros + prior.log_density(at)

    def derivatives(at: FloatArray, left: IntArray) -> tuple[FloatArray, FloatArray]:
        slopes, clean, p, rise = curve(at, left)
        rise = rise * clean * (1.0 - clean) / (p * (1.0 - p))
        score, information = rise * (ones - rows * p), rise**2 * rows * p * (1.0 - p)
        constant = np.ones((len(at), 1, len(design)))
        inner = np.concatenate([slopes[:, :, None] * design.T, constant], axis=1)
        gradient = (inner @ score[:, :, None])[:, :, 0] - (at - prior.mean) @ prior.precision
        return gradient, (inner * information[:, None, :]) @ inner.transpose(0, 2, 1) + prior.precision

    every = np.arange(n_curves)
    found, left = np.tile(prior.mean, (n_curves, 1)), every
    value, damping, identity = log_posterior(found, every), np.full(n_curves, 1e-2), np.eye(found.shape[1])
    for _ in range(MAX_ITERATIONS):
        at = found[left]
        gradient, information = derivatives(at, left)
        damped = information * (1.0 + damping[left, None, None] * identity)
        step = np.linalg.solve(damped, gradient[:, :, None])[:, :, 0]
        new = at + np.clip(step, -MAX_STEP, MAX_STEP)
        new_value = log_posterior(new, left)
        gained = new_value - value[left]
        better = gained >= 0
        found[left[better]], value[left[better]] = new[better], new_value[better]
        damping[left] = np.where(better, damping[left] / 4.0, damping[left] * 8.0)
        left = left[~(better & (gained < TOLERANCE))]
        if not len(left):
            break
    return found, np.asarray(value - 0.5 * np.linalg.slogdet(derivatives(found, every)[1])[1])


@dataclass(frozen=True, eq=False)
class RatePairs:
    """Candidate pairs of rates with their posterior probabilities and fitted curves."""

    rates: FloatArray
    """Pairs (e_neg, e_pos), shape (G, 2)."""
    weights: FloatArray
    """Their posterior probabilities, shape (G,)."""
    cells: FloatArray
    """Widths of the grid cell of each rate of the pairs, shape (G, 2)."""
    curves: FloatArray
    """Their clean curves (:func:`clean_curves`), shape (G, J + 1)."""
    log_evidence: float
    """Log evidence of all pairs together, up to the constant of :func:`fit_rank_curves`."""


def weigh_rate_pairs(
    z: FloatArray,
    is_one: IntArray | BoolArray,
    weight: FloatArray,
    is_clean: BoolArray,
    *,
    e_neg: FloatArray = RATES,
    e_pos: FloatArray = RATES,
    max_sum: float = MAX_SUM_OF_RATES,
    step_scales: tuple[float, ...] = STEP_SCALES,
    log_prior: LogOfPairs | None = None,
    evidence: LogOfPairs | None = None,
    no_noise: float = 0.0,
) -> RatePairs:
    """Return pairs of rates with their posterior probabilities.

    Parameters
    ----------
    z
        Normal quantiles of the ranks of the scores (:class:`RankScale`).
    is_one, weight, is_clean
        Labels of class 1, weights of the rows, and which labels are known to be clean.
    e_neg, e_pos
        Candidate values of each rate for the first grid, increasing. All values are equally probable a
        priori, so a pair counts in proportion to the area of its cell.
    max_sum
        Pairs with a larger sum of rates are not candidates.
    step_scales
        Each pair has one curve for each of these scales (:func:`fit_rank_curves`).
    log_prior
        Additional log prior density of pairs, up to a constant.
    evidence
        Additional log evidence of pairs, for example from known clean labels.
    no_noise
        Prior probability that both rates are exactly 0.
    """
    groups = group_by_rank(z, is_one, weight, is_clean)
    noisy = ~is_clean if not is_clean.all() else is_clean
    share = float(np.average(is_one[noisy], weights=weight[noisy]))

    def fit(pairs: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the curves and the log evidence of pairs, for one scale after the other."""
        fits = [fit_rank_curves(groups, class_noise(pairs), len(pairs), scale) for scale in step_scales]
        known = 0.0 if evidence is None else evidence(pairs)
        return np.concatenate([curves for curves, _ in fits]), np.concatenate([e + known for _, e in fits])

    def weigh(first: FloatArray, second: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the possible pairs of a grid, the area of their cells and their prior probability."""
        pairs = np.stack(np.meshgrid(first, second, indexing="ij"), axis=2).reshape(-1, 2)
        widths = np.meshgrid(np.gradient(first), np.gradient(second), indexing="ij")
        cells = np.stack(widths, axis=2).reshape(-1, 2)
        gain = 1.0 - pairs.sum(axis=1)
        ones = (share - pairs[:, 0]) / np.maximum(gain, 1e-9)  # the share of clean class 1
        allowed = (gain > 1.0 - max_sum) & (ones >= LEAST_SHARE * share)
        allowed &= 1.0 - ones >= LEAST_SHARE * (1.0 - share)
        if not allowed.any():  # one label is so rare that only clean labels are possible
            allowed[0] = True
        pairs, cells = pairs[allowed], cells[allowed]
        log_density = -pairs.sum(axis=1) / RATE_SCALE
        if log_prior is not None:
            log_density = log_density + log_prior(pairs)
        return pairs, cells, np.log(cells).sum(axis=1) + log_density

    times = len(step_scales)
    pairs, _, log_mass = weigh(e_neg, e_pos)
    log_total = float(logsumexp(log_mass))
    log_weight = np.tile(log_mass, times) + fit(pairs)[1]
    left = np.tile(pairs, (times, 1))[log_weight > log_weight.max() + np.log(MIN_COARSE_WEIGHT)]
    pairs, cells, log_mass = weigh(_finer(e_neg, left[:, 0]), _finer(e_pos, left[:, 1]))
    n_grid, log_mass = len(pairs), log_mass - log_total
    if no_noise > 0.0:
        log_mass = np.append(log_mass + np.log1p(-no_noise), np.log(no_noise))
        pairs, cells = np.vstack([pairs, np.zeros((1, 2))]), np.vstack([cells, np.ones((1, 2))])
    curves, log_evidence = fit(pairs)
    log_weight = np.tile(log_mass, times) + log_evidence
    weights = np.exp(log_weight - log_weight.max())
    in_grid = np.tile(np.arange(len(pairs)) < n_grid, times)
    kept = ~in_grid | (weights > MIN_WEIGHT * weights[in_grid].max())
    pairs, cells = np.tile(pairs, (times, 1)), np.tile(cells, (times, 1))
    total = float(logsumexp(log_weight)) - np.log(times)
    return RatePairs(pairs[kept], weights[kept] / weights[kept].sum(), cells[kept], curves[kept], total)


def _finer(values: FloatArray, left: FloatArray) -> FloatArray:
    """Return equally spaced values from the neighbour below the candidates left to the one above."""
    first, last = np.searchsorted(values, [left.min(), left.max()])
    return np.linspace(values[max(first - 1, 0)], values[min(last + 1, len(values) - 1)], FINE_STEPS)


def gold_evidence(clean: IntArray, noisy: IntArray, pairs: FloatArray) -> FloatArray:
    """Return the log-likelihood of known pairs of clean and noisy labels of two classes."""
    rates = np.clip(pairs, LEAST_RATE, 1.0)
    counts = np.array([[((clean == c) & (noisy == f)).sum() for f in (1 - c, c)] for c in (0, 1)])
    return np.asarray((counts[:, 0] * np.log(rates) + counts[:, 1] * np.log1p(-rates)).sum(axis=1))
