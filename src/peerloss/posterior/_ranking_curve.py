"""More than two classes: clean probabilities for ranking, in one pass over tables of any size.

Probabilities p̃ of the *noisy* label become clean ones, p = softmax(slope·log(p̃/t) + bias), with t the mean
row of T: a row that could be of any class has p̃ = t, and its p is uniform. Slope and small biases maximise
the likelihood of the labels under p·T. This is stable where p̃·T⁻¹ leaves the simplex.

Decisions use the more precise :class:`peerloss.posterior.many_classes.CleanCurve`. This one is fitted to a
sample of the rows by EM and applied in place, so that a thousand classes and a million rows are fast.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from peerloss._probabilities import normalise_rows, row_sums

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from peerloss._validation import FloatArray, IntArray

#: Standard deviation of the prior on log slope, and on each bias times √(K − 1).
SLOPE_SCALE, BIAS_SCALE = 1.0, 0.25
#: Added to probabilities, divided by K, before logarithms are taken.
SMOOTHING = 1e-3
#: The fit uses about this many numbers, and at least this many rows.
FIT_CELLS, FIT_ROWS = 200_000, 500
#: Slopes stay below e³, about 20.
MAX_LOG_SLOPE = 3.0
#: Steps of EM are lengthened by this factor: it converges slowly if labels are little informative.
STRETCH = 1.8


@dataclass(frozen=True, eq=False)
class RankingCurve:
    """p = softmax(slope·log(p̃/t) + bias)."""

    slope: float
    bias: FloatArray
    log_t: FloatArray

    def apply(self, proba: NDArray[Any]) -> FloatArray:
        """Return clean probabilities of some rows."""
        return _softmax(_logs(proba), self.slope, self.bias - self.slope * self.log_t)


def sample_rows(n_rows: int, n_classes: int) -> slice:
    """Return evenly spaced rows, enough to fit slope and biases."""
    return slice(None, None, max(1, n_rows // max(FIT_ROWS, FIT_CELLS // n_classes)))


def fit_ranking_curve(proba: NDArray[Any], codes: IntArray, transition: FloatArray) -> RankingCurve:
    """Fit slope and biases to the labels, given T, by EM with one Newton step each for slope and biases."""
    k = proba.shape[1]
    log_t = np.log(transition.mean(axis=0))
    logs, explains = _logs(proba) - log_t, transition.T[codes]
    precision = (k - 1) / BIAS_SCALE**2
    log_slope, bias = 0.0, np.zeros(k)
    for _ in range(40):
        slope = float(np.exp(log_slope))
        clean = _softmax(logs.copy(), slope, bias)
        target = clean * explains
        normalise_rows(target)
        mean = np.einsum("nk,nk->n", clean, logs)
        spread = np.einsum("nk,nk,nk->", clean, logs, logs) - mean @ mean
        gradient = slope * np.einsum("nk,nk->", target - clean, logs) - log_slope / SLOPE_SCALE**2
        step = float(np.clip(STRETCH * gradient / (slope**2 * spread + SLOPE_SCALE**-2), -0.5, 0.5))
        log_slope = min(log_slope + step, MAX_LOG_SLOPE)
        clean = _softmax(logs.copy(), float(np.exp(log_slope)), bias)
        gradient = (target - clean).sum(axis=0) - precision * bias
        turn = np.clip(STRETCH * gradient / ((clean * (1 - clean)).sum(axis=0) + precision), -1.0, 1.0)
        bias = bias + turn
        if max(abs(step), float(np.abs(turn).max())) < 1e-3:
            break
    return RankingCurve(float(np.exp(log_slope)), bias, log_t)


def _logs(proba: NDArray[Any]) -> FloatArray:
    """Return log p̃, bounded below."""
    logs: FloatArray = np.add(proba, SMOOTHING / proba.shape[1], dtype=np.float64)
    return np.log(logs, out=logs)


def _softmax(logs: FloatArray, slope: float, bias: FloatArray) -> FloatArray:
    """Return softmax(slope·logs + bias), overwriting ``logs``; bounded slopes keep it finite."""
    logs *= slope
    logs += bias
    np.exp(logs, out=logs)
    logs /= row_sums(logs)[:, None]
    return logs
