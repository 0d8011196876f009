"""Weight the candidates by their Brier scores on the noisy labels."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from peerloss._validation import FloatArray, IntArray


class Weights(NamedTuple):
    """Weights of the candidates and the scores that they follow from."""

    weights: FloatArray
    """They sum to one."""
    brier: FloatArray
    """Brier scores on the noisy labels; lower is better."""
    behind: FloatArray
    """Distance of each candidate to the best one, in standard errors."""


def weigh(probabilities: list[FloatArray], codes: IntArray, weight: FloatArray) -> Weights:
    """Weight candidates by the Brier score of their out-of-fold probabilities on the noisy labels.

    The noisy posterior minimises this score on noisy labels, and every peer classifier follows from the noisy
    posterior. The Brier score is a proper score of probabilities, so it has far less sampling noise than the
    0-1 peer score of decisions. A candidate t standard errors behind the best one has weight ∝ exp(−t²/2):
    candidates that the data cannot distinguish are averaged, which is better than choosing one.
    """
    onehot = np.eye(probabilities[0].shape[1])[codes]
    losses = np.array([((p - onehot) ** 2).sum(axis=1) for p in probabilities])
    share = weight / weight.sum()
    brier = losses @ share
    difference = losses - losses[brier.argmin()]
    mean = difference @ share
    error = np.sqrt((difference - mean[:, None]) ** 2 @ share * (share**2).sum())
    behind = np.divide(mean, error, out=np.zeros_like(mean), where=error > 0)
    weights = np.exp(-(behind**2) / 2.0)
    return Weights(weights / weights.sum(), brier, behind)
