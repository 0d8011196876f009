"""How many workers guess: a mixture over efforts, fitted to the likelihoods of all workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from peerloss._validation import FloatArray

#: EM of the mixture stops when no weight changes by more than this.
TOLERANCE = 1e-6
MAX_ITER = 300
#: Fall of the log-likelihood at the lower end of a one-sided 99 % interval, ½·2.326².
LOG_LIKELIHOOD_FALL = 2.706
#: Steps of bisection for the lower end.
BISECTIONS = 12


def fit_mixture(likelihood: FloatArray, first: float | None = None) -> tuple[FloatArray, float]:
    """Return the weights of the columns that maximise the likelihood of the rows, and its logarithm.

    Parameters
    ----------
    likelihood
        The likelihood of each worker (row) under each hypothesis (column), up to a factor per row.
    first
        The weight of the first hypothesis, if it is given.
    """
    n = likelihood.shape[1]
    weights: FloatArray = np.full(n, 1.0 / n)
    if first is not None:
        weights = np.concatenate([[first], np.full(n - 1, (1.0 - first) / (n - 1))])
    for _ in range(MAX_ITER):
        joint = likelihood * weights
        new = np.mean(joint / _positive(joint.sum(axis=1, keepdims=True)), axis=0)
        if first is not None:
            new[0] = first
            new[1:] *= (1.0 - first) / _positive(new[1:].sum())
        change = np.abs(new - weights).max()
        weights = new
        if change < TOLERANCE:
            break
    return weights, float(np.log(_positive(likelihood @ weights)).sum())


def cautious_mixture(likelihood: FloatArray) -> FloatArray:
    """Return the weights with the smallest weight of the first column that the data support.

    That is the lower end of its one-sided 99 % interval by the profile likelihood. With few tasks per worker
    guessing and careless work look the same; the maximum likelihood estimate would then call all of it
    guessing.
    """
    weights, top = fit_mixture(likelihood)
    low, high = 0.0, float(weights[0])
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        if fit_mixture(likelihood, middle)[1] < top - LOG_LIKELIHOOD_FALL:
            low = middle
        else:
            high = middle
    return fit_mixture(likelihood, high)[0]


def q_values(not_guessing: FloatArray) -> FloatArray:
    """Return, for each worker, the expected share of others among the workers who are at least as suspicious.

    ``not_guessing`` is the probability that a worker does not guess.
    """
    ordered = np.sort(not_guessing)
    running: FloatArray = np.cumsum(ordered) / np.arange(1, len(ordered) + 1)
    # Workers with the same probability are equally suspicious.
    return running[np.searchsorted(ordered, not_guessing, side="right") - 1]


def _positive(values: FloatArray | float) -> FloatArray:
    return np.maximum(values, np.finfo(float).tiny)
