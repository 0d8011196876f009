"""How many workers guess: a mixture over efforts, fitted to the likelihoods of all workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from peerloss._validation import FloatArray

#: EM of the mixture stops when no weight changes by more than this.
TOLERANCE = 1e-6
MAX_ITER = 300
#: Least share of half-informed workers among those who do not guess. With few tasks per worker the data
#: hardly distinguish guessing from half-informed work, and without this share would call all of it guessing.
LEAST_HALF_INFORMED = 0.1


def effort_weights(likelihood: FloatArray) -> FloatArray:
    """Return the shares of workers who guess, are half-informed and are informed, by maximum likelihood.

    Parameters
    ----------
    likelihood
        The likelihood of each worker (row) under the three hypotheses (columns), up to a factor per row.

    Returns
    -------
    The three shares. That of half-informed workers is at least a tenth of those who do not guess.
    """
    tiny = np.finfo(float).tiny
    weights: FloatArray = np.full(likelihood.shape[1], 1.0 / likelihood.shape[1])
    for _ in range(MAX_ITER):
        joint = likelihood * weights
        new = np.mean(joint / np.maximum(joint.sum(axis=1, keepdims=True), tiny), axis=0)
        change = np.abs(new - weights).max()
        weights = new
        if change < TOLERANCE:
            break
    guessing, half, _ = weights
    half = max(half, LEAST_HALF_INFORMED * (1.0 - guessing))
    return np.array([guessing, half, 1.0 - guessing - half])


def q_values(not_guessing: FloatArray) -> FloatArray:
    """Return, for each worker, the expected share of others among the workers who are at least as suspicious.

    ``not_guessing`` is the probability that a worker does not guess.
    """
    ordered = np.sort(not_guessing)
    running: FloatArray = np.cumsum(ordered) / np.arange(1, len(ordered) + 1)
    # Workers with the same probability are equally suspicious.
    return running[np.searchsorted(ordered, not_guessing, side="right") - 1]
