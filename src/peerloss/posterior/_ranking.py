"""Two classes: rates and clean probabilities averaged over what the labels leave open.

Noise squeezes the posterior, η̃ = e_neg + (1 − e_neg − e_pos)·η: however sure the score, labels agree with it
no more often than the rates allow, and where their curve over the score levels off tells the rates. With
hundreds of rows it tells them badly, and there one pair of rates is a guess that costs more than it gains:
whether few labels of a class are due to noise or to a small class decides how labels of the two classes
compare. So every pair of a grid is a candidate, with its own clean curve η = σ(a·s + b) of the score
s = logit p̃, and p_error is averaged over them in proportion to how well they explain the labels, times a
prior: nearly all of it for rates that are alike, the rest for a difference about half of what would make the
clean classes equally large. Alike rates leave about the order of self-confidence, so it takes evidence to
depart from it.

Labels that are wrong near the boundary only look, where the classes are unequal, like noise that flips the
smaller class: hardly any of its labels are sure. One more candidate stands for them: a label flips with
probability 2η(1 − η), ½ where the classes meet and 0 far from there. Then η̃ = ½ + ½(2η − 1)³ levels off in
the middle of the scores, where noise of classes levels off at their ends.

A flexible model on many rows levels off itself, which hides the noise from that curve, but not from the
confident joint (:mod:`peerloss.posterior._confident`). The joint takes overlap of the classes for noise, so
it has a say of a few rows only, and of more where there are many.

At a candidate, a calibrated p̃ is ½(1 + e_neg − e_pos) where η = ½; the curve is expected to pass there with
the slope that calibration gives, which leaves the order under equal rates that of self-confidence.
(:func:`peerloss.posterior.fit_clean_posterior` has no such expectation, for its scores need not be
calibrated; it ranked worse on development sets.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import expit, logit, logsumexp

from peerloss.noise import NoiseModel
from peerloss.posterior._confident import confident_joint
from peerloss.posterior._two_classes import gather_by_score

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from peerloss._validation import FloatArray, IntArray

#: The candidates: all pairs of these whose sum leaves labels that say something.
RATES = np.array([0.02, *np.arange(1, 11) / 20])
#: And one for hardly any noise in either class; without it sure labels that are right would speak for noise
#: near the boundary.
HARDLY_ANY = 0.001
MAX_SUM_OF_RATES = 0.93
#: Standard deviations of e_neg − e_pos in the two parts of the prior, and how often the first is believed for
#: once of the second.
ALIKE_SCALE, DIFFERENCE_SCALE = 0.03, 0.1
ALIKE_WEIGHT = 32.0
#: The prior of noise near the boundary, for all pairs of rates together 1.
BOUNDARY_WEIGHT = 1e-4
#: Standard deviations of the curve's log slope and intercept about those of calibrated probabilities.
SLOPE_SCALE, INTERCEPT_SCALE = 1.0, 1.0
#: Scores are log-odds only roughly, so a label says less about the rates than the model believes.
EVIDENCE = 0.6
#: The confident joint counts as if the clean class of so many times √n rows of each class were known.
CONFIDENT_ROWS = 0.5
#: Log-odds are taken of probabilities this far from 0 and 1.
CLIP = 1e-3
#: Rows are gathered into so many groups of neighbouring scores: a smooth curve sees no difference.
MAX_GROUPS = 150
#: Ends of the 90 % intervals. Weights that rank best are too sure of the rates; with their square roots the
#: intervals held the true rates of development sets nine times in ten.
QUANTILES, INTERVAL_POWER = (0.05, 0.95), 0.5


@dataclass(frozen=True, eq=False)
class Candidates:
    """Kinds of noise with their weights and clean curves; :func:`fit_candidates` makes one."""

    rates: FloatArray
    """(G, 2) e_neg and e_pos; of noise near the boundary, on average."""
    weights: FloatArray
    """(G,) posterior probabilities."""
    slopes: FloatArray
    intercepts: FloatArray
    bent: NDArray[np.bool_]
    """(G,) noise near the boundary, not of classes."""

    @property
    def noise(self) -> NoiseModel:
        """The noise with the posterior mean of each rate."""
        e_neg, e_pos = self.weights @ self.rates
        return NoiseModel.binary(float(e_neg), float(e_pos))

    @property
    def near_boundary(self) -> float:
        """The posterior probability of noise near the boundary."""
        return float(self.weights[self.bent].sum())

    def interval(self) -> tuple[FloatArray, FloatArray]:
        """Return the ends of the 90 % interval of each entry of T, whole cells of the grid."""
        T = self.noise.transition
        weights = self.weights**INTERVAL_POWER / (self.weights**INTERVAL_POWER).sum()
        (neg_low, neg_high), (pos_low, pos_high) = (_interval(rates, weights) for rates in self.rates.T)
        low = np.array([[1.0 - neg_high, neg_low], [pos_low, 1.0 - pos_high]])
        high = np.array([[1.0 - neg_low, neg_high], [pos_high, 1.0 - pos_low]])
        return np.minimum(low, T), np.maximum(high, T)

    def clean(self, proba: NDArray[Any]) -> FloatArray:
        """Return P(clean = 1 | score) of each candidate and row, (G, n)."""
        curves: FloatArray = self.slopes[:, None] * scores(proba) + self.intercepts[:, None]
        return np.asarray(expit(curves, out=curves))

    def given_label(self, clean: FloatArray, codes: IntArray, likelihood: FloatArray | None) -> FloatArray:
        """Return P(clean = 1 | score, label), averaged over the candidates, (n,)."""
        if likelihood is None:
            e_neg, e_pos = self.rates[:, :1], self.rates[:, 1:]
            said_if_one = np.where(codes == 1, 1.0 - e_pos, e_pos)
            said_if_zero = np.where(codes == 1, e_neg, 1.0 - e_neg)
            flips = _boundary_flips(clean[self.bent])
            said_if_one[self.bent] = np.where(codes == 1, 1.0 - flips, flips)
            said_if_zero[self.bent] = np.where(codes == 1, flips, 1.0 - flips)
        else:
            said_if_zero, said_if_one = likelihood.T
        one, zero = clean * said_if_one, (1.0 - clean) * said_if_zero
        averaged: FloatArray = self.weights @ (one / np.maximum(one + zero, 1e-300))
        return averaged


def scores(proba: NDArray[Any]) -> FloatArray:
    """Return the log-odds of class 1."""
    return np.asarray(logit(np.clip(np.asarray(proba[:, 1], dtype=np.float64), CLIP, 1.0 - CLIP)))


def fit_candidates(proba: NDArray[Any], codes: IntArray) -> Candidates:
    """Fit a clean curve to the labels for each kind of noise, and weigh the kinds."""
    noisy = [(n, p) for n in RATES for p in RATES if n + p < MAX_SUM_OF_RATES]
    pairs = np.array([(HARDLY_ANY, HARDLY_ANY), *noisy])
    groups = gather_by_score(scores(proba), codes, np.ones(len(codes)), max_groups=MAX_GROUPS)
    of_classes = _fit_curves(*groups, pairs)
    at_boundary = _fit_curves(*groups, np.zeros((1, 2)), bent=True)
    slopes, intercepts, evidence = map(np.concatenate, zip(of_classes, at_boundary, strict=True))
    rates = np.vstack([pairs, _boundary_rates(*groups, slopes[-1], intercepts[-1])])
    prior = _log_prior(pairs, float(codes.mean()))
    prior = np.append(prior, np.log(BOUNDARY_WEIGHT) + logsumexp(prior))
    log_weights = EVIDENCE * evidence + _log_joint(proba, codes, rates) + prior
    weights = np.exp(log_weights - log_weights.max())
    kept = weights > 1e-4
    bent = np.arange(len(rates)) == len(pairs)
    weights = weights[kept] / weights[kept].sum()
    return Candidates(rates[kept], weights, slopes[kept], intercepts[kept], bent[kept])


def _boundary_flips(clean: FloatArray) -> FloatArray:
    """Return how probably a label near the boundary flips."""
    return 2.0 * clean * (1.0 - clean)


def _boundary_rates(
    score: FloatArray, ones: FloatArray, zeros: FloatArray, slope: float, intercept: float
) -> FloatArray:
    """Return what the flips near the boundary amount to in either class, to the nearest rate of the grid."""
    clean = expit(slope * score + intercept)
    rows = (ones + zeros) * np.stack([1.0 - clean, clean])
    flipped = (rows * _boundary_flips(clean)).sum(axis=1) / np.maximum(rows.sum(axis=1), 1e-300)
    rates: FloatArray = RATES[np.abs(flipped[:, None] - RATES).argmin(axis=1)]
    return rates


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
    """Return the log prior of each pair: rates of any size, their difference as the module's head says."""
    steps = [HARDLY_ANY, *RATES]
    widths = dict(zip(steps, np.gradient(steps), strict=True))
    area = np.array([widths[n] * widths[p] for n, p in grid])
    difference = grid[:, 0] - grid[:, 1]
    alike = np.exp(-((difference / ALIKE_SCALE) ** 2) / 2.0) / ALIKE_SCALE
    about_half = (difference - (share_of_ones - 0.5)) / DIFFERENCE_SCALE  # α* = ½
    other = np.exp(-(about_half**2) / 2.0) / DIFFERENCE_SCALE
    prior: FloatArray = np.log(area * (ALIKE_WEIGHT * alike + other) + 1e-300)
    return prior


def _fit_curves(
    score: FloatArray, ones: FloatArray, zeros: FloatArray, grid: FloatArray, *, bent: bool = False
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Fit η̃ = e_neg + (1 − Σe)·σ(e^t·x + c) for all pairs at once, x being η's log-odds if p̃ is calibrated.

    Where ``bent``, the curve is that of noise near the boundary, and x is the score.

    Returns slopes and intercepts in terms of the score, and the log evidence of each pair (Laplace).
    """
    difference, gain = grid[:, :1] - grid[:, 1:], 1.0 - grid.sum(axis=1, keepdims=True)
    middle, steepness = logit((1.0 + difference) / 2.0), (1.0 - difference**2) / gain
    x = steepness * (score - middle)
    prior = np.array([SLOPE_SCALE, INTERCEPT_SCALE])[:, None, None] ** -2.0  # precisions

    def label_curve(u: FloatArray) -> tuple[FloatArray, FloatArray]:
        p, rise = grid[:, :1] + gain * u, gain
        if bent:
            p, rise = 0.5 + (2.0 * u - 1.0) ** 3 / 2.0, 3.0 * (2.0 * u - 1.0) ** 2
        return np.clip(p, 1e-6, 1.0 - 1e-6), rise

    def objective(at: FloatArray) -> FloatArray:
        p, _ = label_curve(expit(np.exp(at[0]) * x + at[1]))
        fit = (ones * np.log(p) + zeros * np.log1p(-p)).sum(axis=1, keepdims=True)
        return np.asarray(fit - (prior * at**2).sum(axis=0) / 2.0)

    def derivatives(at: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        tilted = np.exp(at[0]) * x
        u = expit(tilted + at[1])
        p, rise = label_curve(u)
        steep = rise * u * (1.0 - u) / (p * (1.0 - p))
        pull, information = steep * (ones - (ones + zeros) * p), steep**2 * (ones + zeros) * p * (1.0 - p)
        gradient = np.stack([pull * tilted, pull]).sum(axis=2, keepdims=True) - prior * at
        diagonal = np.stack([information * tilted**2, information]).sum(axis=2, keepdims=True) + prior
        return gradient, diagonal, (information * tilted).sum(axis=1, keepdims=True)

    at = np.zeros((2, len(grid), 1))
    current, damping = objective(at), np.full_like(gain, 1e-3)
    for _ in range(25):  # damped Fisher scoring
        gradient, diagonal, mixed = derivatives(at)
        damped = diagonal * (1.0 + damping)
        step = (damped[::-1] * gradient - mixed * gradient[::-1]) / (damped[0] * damped[1] - mixed**2)
        new = at + np.clip(step, -1.0, 1.0)
        value = objective(new)
        better = value >= current
        gained = np.where(better, value - current, 0.0)
        at, current = np.where(better, new, at), np.where(better, value, current)
        damping = np.where(better, damping / 5.0, damping * 10.0)
        if (better & (gained < 1e-3)).all():
            break
    _, diagonal, mixed = derivatives(at)
    evidence = current - np.log(np.maximum(diagonal[0] * diagonal[1] - mixed**2, 1e-12)) / 2.0
    slopes = np.exp(at[0]) * steepness
    return slopes[:, 0], (at[1] - slopes * middle)[:, 0], evidence[:, 0]


def _interval(rates: FloatArray, weights: FloatArray) -> tuple[float, float]:
    """Return the outer edges of the cells that hold the two quantiles."""
    edges = np.array([0.0, *(RATES[1:] + RATES[:-1]) / 2.0, RATES[-1]])
    order = np.argsort(rates, kind="stable")
    reached = np.searchsorted(np.cumsum(weights[order]), QUANTILES)
    low, high = rates[order][np.minimum(reached, len(order) - 1)]
    return float(edges[np.searchsorted(RATES, low)]), float(edges[np.searchsorted(RATES, high) + 1])
