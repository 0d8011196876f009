"""Two classes: fit the curve of the noisy labels over a score for every candidate noise at once.

Class-conditional noise compresses the posterior, η̃ = e_neg + (1 − e_neg − e_pos)·η. However confident the
score is, noisy labels agree with it no more often than 1 − e_pos on one side and 1 − e_neg on the other. The
levels at which their curve flattens determine the rates. The model is a logistic curve η = σ(linear function
of the score) between two floors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.special import expit

if TYPE_CHECKING:
    from collections.abc import Callable

    from peerloss._validation import FloatArray, IntArray
    from peerloss.posterior._rate_priors import RatePrior

    #: Parameters (2, G, 1) → log-odds of class 1 (G, g) and their derivative by the first parameter; that by
    #: the second is 1.
    LogOdds = Callable[[FloatArray], tuple[FloatArray, FloatArray]]
    #: P(clean = 1) → P(noisy = 1) and its derivative.
    NoiseCurve = Callable[[FloatArray], tuple[FloatArray, FloatArray]]


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
