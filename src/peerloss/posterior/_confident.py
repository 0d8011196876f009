"""More than two classes: T counted from rows that a model is sure of, and clean probabilities for it.

T comes from the confident joint: row n counts for class k when its probability of k is at least the mean
such probability among rows labelled k (the likeliest k when several qualify). Counts are few where rows
are, so each row of T is drawn towards noise that flips all classes alike, as if s rows of every class
had shown that. How uniform the noise is, the counts say themselves: T is averaged over s in proportion
to how likely s makes them.

The model's own mistakes where classes overlap count as noise too, so T is rather too noisy than too
clean. (EM rounds that correct this ranked and flagged worse on development sets.)

Probabilities p̃ of the *noisy* label become clean ones, p = softmax(slope·log(p̃/t) + bias), with t the
mean row of T: a row that could be of any class alike has p̃ = t, and then p is uniform. Slope and small
biases make the labels likeliest under p·T. This is stable where p̃·T⁻¹ leaves the simplex.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import gammaln

from peerloss._probabilities import blocks, normalise_rows, row_sums, take

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from peerloss._validation import FloatArray, IntArray

#: How many rows a class the belief "all classes flip alike" may weigh.
PRIOR_ROWS = (3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 10_000.0)
#: A confident row says less about T than one of known class: it counts for this much in the choice of s.
EVIDENCE = 0.5
#: Standard deviation of the prior on log slope, and on each bias times √(K − 1).
SLOPE_SCALE, BIAS_SCALE = 1.0, 0.25
#: Probabilities are kept at least this far from 0, divided by K, before logarithms are taken.
SMOOTHING = 1e-3
#: The fit of slope and biases looks at about so many numbers, and at no fewer rows than these.
FIT_CELLS, FIT_ROWS = 200_000, 500
#: Probabilities this much under a threshold pass it.
ROUNDING = 1e-6
#: Slopes stay under 20.
MAX_LOG_SLOPE = 3.0
#: Steps of the EM algorithm are lengthened by this much: it is slow where labels say little.
STRETCH = 1.8


@dataclass(frozen=True, eq=False)
class ConfidentNoise:
    """T with the number of rows behind each of its rows."""

    transition: FloatArray
    rows: FloatArray
    """(K,) rows that are confidently of each class."""

    def interval(self, z: float = 1.645) -> tuple[FloatArray, FloatArray]:
        """Return Wilson's interval (90 %) of each entry: it knows of counting, not of a wrong model."""
        n = np.maximum(self.rows, 1.0)[:, None]
        centre = (self.transition + z**2 / (2 * n)) / (1 + z**2 / n)
        half = z * np.sqrt(self.transition * (1 - self.transition) / n + z**2 / (4 * n**2)) / (1 + z**2 / n)
        return np.clip(centre - half, 0.0, 1.0), np.clip(centre + half, 0.0, 1.0)


def count_noise(proba: NDArray[Any], codes: IntArray) -> ConfidentNoise:
    """Estimate T from out-of-fold probabilities of the noisy labels."""
    joint, scaled = confident_joint(proba, codes)
    return ConfidentNoise(_towards_uniform(scaled, joint), joint.sum(axis=1))


def confident_joint(proba: NDArray[Any], codes: IntArray) -> tuple[FloatArray, FloatArray]:
    """Count confident rows by class and label, (K, K); also scaled to the observed number of each label."""
    n, k = proba.shape
    given = np.bincount(codes, minlength=k).astype(np.float64)
    total = np.bincount(codes, take(proba, codes), minlength=k)
    # The mean of equal numbers may be rounded above them.
    thresholds = np.divide(total, given, out=np.full(k, np.inf), where=given > 0) - ROUNDING
    best = np.empty(n, dtype=np.int64)
    sure = np.empty(n, dtype=bool)
    for rows in blocks(n, k):
        block = proba[rows]
        qualified = np.where(block >= thresholds, block, -1.0)
        best[rows] = qualified.argmax(axis=1)
        sure[rows] = take(qualified, best[rows]) >= 0.0
    joint = np.bincount(best[sure] * k + codes[sure], minlength=k * k).reshape(k, k).astype(np.float64)
    # Each column is scaled to the observed number of its label, whichever rows qualified.
    columns = joint.sum(axis=0)
    return joint, joint * np.divide(given, columns, out=np.zeros(k), where=columns > 0)


def _towards_uniform(scaled: FloatArray, joint: FloatArray) -> FloatArray:
    """Divide counts by their row sums, each row together with s rows of uniform noise."""
    k = len(scaled)
    everything = scaled.sum()
    rate = max(1.0 - np.trace(scaled) / everything, 1e-3) if everything > 0 else 1e-3
    weights = _weigh_strengths(EVIDENCE * joint, rate)
    totals = scaled.sum(axis=1, keepdims=True)
    transition = np.zeros((k, k))
    for weight, s in zip(weights, PRIOR_ROWS, strict=True):
        if weight > 0.0:
            part = scaled + s * rate / (k - 1)
            part[np.diag_indices(k)] += s * (1.0 - rate - rate / (k - 1))
            transition += weight * part / (totals + s)
    return transition


def _weigh_strengths(counts: FloatArray, rate: float) -> FloatArray:
    """Return how likely each s is: the counts of a row are Dirichlet-multinomial about uniform noise."""
    row, column = np.nonzero(counts)
    seen, totals = counts[row, column], counts.sum(axis=1)
    alike = np.where(row == column, 1.0 - rate, rate / (len(counts) - 1))
    evidence = np.array(
        [
            (gammaln(s * alike + seen) - gammaln(s * alike)).sum() + (gammaln(s) - gammaln(s + totals)).sum()
            for s in PRIOR_ROWS
        ]
    )
    weights: FloatArray = np.exp(evidence - evidence.max())
    weights[weights < 1e-6] = 0.0
    weights /= weights.sum()
    return weights


@dataclass(frozen=True, eq=False)
class CleanCurve:
    """p = softmax(slope·log(p̃/t) + bias)."""

    slope: float
    bias: FloatArray
    log_t: FloatArray

    def apply(self, proba: NDArray[Any]) -> FloatArray:
        """Return clean probabilities of some rows."""
        return _softmax(_logs(proba), self.slope, self.bias - self.slope * self.log_t)


def sample_rows(n_rows: int, n_classes: int) -> slice:
    """Return every so many rows: as many as slope and biases need."""
    return slice(None, None, max(1, n_rows // max(FIT_ROWS, FIT_CELLS // n_classes)))


def fit_curve(proba: NDArray[Any], codes: IntArray, transition: FloatArray) -> CleanCurve:
    """Fit slope and biases to the labels, given T, by EM with a Newton step each for slope and biases."""
    k = proba.shape[1]
    log_t = np.log(transition.mean(axis=0))
    logs, explains = _logs(proba) - log_t, transition.T[codes]
    looseness = (k - 1) / BIAS_SCALE**2
    log_slope, bias = 0.0, np.zeros(k)
    for _ in range(40):
        slope = float(np.exp(log_slope))
        clean = _softmax(logs.copy(), slope, bias)
        target = clean * explains
        normalise_rows(target)
        mean = np.einsum("nk,nk->n", clean, logs)
        spread = np.einsum("nk,nk,nk->", clean, logs, logs) - mean @ mean
        uphill = slope * np.einsum("nk,nk->", target - clean, logs) - log_slope / SLOPE_SCALE**2
        step = float(np.clip(STRETCH * uphill / (slope**2 * spread + SLOPE_SCALE**-2), -0.5, 0.5))
        log_slope = min(log_slope + step, MAX_LOG_SLOPE)
        clean = _softmax(logs.copy(), float(np.exp(log_slope)), bias)
        uphill = (target - clean).sum(axis=0) - looseness * bias
        turn = np.clip(STRETCH * uphill / ((clean * (1 - clean)).sum(axis=0) + looseness), -1.0, 1.0)
        bias = bias + turn
        if max(abs(step), float(np.abs(turn).max())) < 1e-3:
            break
    return CleanCurve(float(np.exp(log_slope)), bias, log_t)


def _logs(proba: NDArray[Any]) -> FloatArray:
    """Return log p̃, bounded below."""
    logs: FloatArray = np.add(proba, SMOOTHING / proba.shape[1], dtype=np.float64)
    return np.log(logs, out=logs)


def _softmax(logs: FloatArray, slope: float, bias: FloatArray) -> FloatArray:
    """Return softmax(slope·logs + bias) in the place of ``logs``; with slopes bounded it stays finite."""
    logs *= slope
    logs += bias
    np.exp(logs, out=logs)
    logs /= row_sums(logs)[:, None]
    return logs
