"""Calibrate scores: turn them into probabilities of the noisy label."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import log_softmax, softmax

from peerloss._probabilities import label_frequencies

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from peerloss._validation import FloatArray, IntArray

#: Added to probabilities, divided by K, before the logarithm: a forest's 0 means rare, not impossible.
SMOOTHING = 0.02
#: The smallest slope of a calibrator. Out of fold, an uninformative model can look worse than chance. A
#: negative slope would then reverse a model that is right after it has seen all rows.
_MIN_SLOPE = 0.05


def log_scores(proba: FloatArray) -> FloatArray:
    """Return the logarithms of probabilities, smoothed, as scores for a :class:`Calibrator`."""
    return np.asarray(np.log(proba + SMOOTHING / proba.shape[1]))


@dataclass(frozen=True)
class Calibrator:
    """Maps scores (n, K) to probabilities: softmax(slope · scores / scale + bias)."""

    scale: float
    slope: float
    bias: FloatArray

    @classmethod
    def fit(
        cls,
        scores: FloatArray,
        codes: IntArray,
        weight: FloatArray,
        *,
        scale: float | None = None,
        with_bias: bool = True,
        bias_penalty: float = 0.0,
    ) -> Calibrator:
        """Fit slope and biases to labels by maximum likelihood.

        Scores (n, K), labels and positive weights are of held-out rows. A penalty ½(slope − 1)², about the
        weight of one row, keeps slope and biases finite if the scores separate the classes. Slopes below 0.05
        are set to 0.05. ``scale`` is the unit of the scores, by default their spread. A penalty
        ``bias_penalty``·½·Σ_k f_k·bias_k², with the frequencies f of the labels, draws the biases to 0. It
        leaves those of rare classes free, which would otherwise become too probable. ``with_bias=False``
        keeps all biases at 0, so that the argmax is that of the scores.
        """
        if scale is None:
            centred = scores - scores.mean(axis=1, keepdims=True)
            scale = float(np.sqrt(weight @ np.square(centred).mean(axis=1) / weight.sum())) or 1.0
        unit, n_classes = scores / scale, scores.shape[1]
        # Without a penalty, one bias must be fixed, because only their differences matter.
        free_bias = np.arange(1 if bias_penalty else 2, 1 + n_classes) if with_bias else np.arange(0)
        start = np.r_[1.0, np.zeros(n_classes)]
        penalty = bias_penalty * label_frequencies(codes, n_classes, weight)
        theta = _maximise(unit, codes, weight, start, np.r_[0, free_bias], penalty)
        if theta[0] < _MIN_SLOPE:
            start[0] = _MIN_SLOPE
            theta = _maximise(unit, codes, weight, start, free_bias, penalty)
        return cls(scale, float(theta[0]), theta[1:])

    def proba(self, scores: FloatArray) -> FloatArray:
        """Return probabilities, shape (n, K)."""
        return np.asarray(softmax(self.slope * scores / self.scale + self.bias, axis=1))


def _maximise(
    scores: FloatArray,
    codes: IntArray,
    weight: FloatArray,
    theta: FloatArray,
    free: IntArray,
    bias_penalty: FloatArray,
) -> FloatArray:
    """Maximise the penalised likelihood over the ``free`` entries of ``theta``, the slope and the biases.

    Newton's method with step halving; the objective is convex.
    """
    rows, size = np.arange(len(codes)), len(theta)
    wanted, strength = np.eye(size)[0], np.r_[1.0, bias_penalty]

    def loss(at: FloatArray) -> float:
        log_p = log_softmax(at[0] * scores + at[1:], axis=1)
        return float(0.5 * strength @ (at - wanted) ** 2 - weight @ log_p[rows, codes])

    current = loss(theta)
    for _ in range(50 if free.size else 0):
        p = softmax(theta[0] * scores + theta[1:], axis=1)
        error = p * weight[:, None]
        error[rows, codes] -= weight
        gradient = np.r_[(error * scores).sum(), error.sum(axis=0)] + strength * (theta - wanted)
        centred, heavy = scores - (p * scores).sum(axis=1, keepdims=True), p * weight[:, None]
        hessian = np.empty((size, size))
        hessian[0, 0] = (heavy * np.square(centred)).sum()
        hessian[0, 1:] = hessian[1:, 0] = (heavy * centred).sum(axis=0)
        hessian[1:, 1:] = np.diag(heavy.sum(axis=0)) - heavy.T @ p
        hessian += np.diag(strength)
        step = np.zeros_like(theta)
        step[free] = np.linalg.lstsq(hessian[np.ix_(free, free)], gradient[free], rcond=None)[0]
        share = 1.0
        while share > 1e-6 and not loss(theta - share * step) <= current:
            share /= 2.0
        theta = theta - share * step
        previous, current = current, loss(theta)
        if np.abs(share * step).max() < 1e-12 or previous - current <= 1e-15 * abs(current):
            break
    return theta


def as_score_columns(decision: ArrayLike) -> FloatArray:
    """Turn a decision function, (n,) for two classes or (n, K), into one column per class."""
    scores = np.asarray(decision, dtype=np.float64)
    return np.column_stack([np.zeros(len(scores)), scores]) if scores.ndim == 1 else scores
