"""Weigh candidates by what noisy labels can tell."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from peerloss._validation import FloatArray, IntArray


class Weights(NamedTuple):
    """How much each candidate counts, and why."""

    weights: FloatArray
    """They sum to one."""
    brier: FloatArray
    """Brier scores on the noisy labels; lower is better."""
    behind: FloatArray
    """Standard errors by which each lies behind the best."""


def weigh(probabilities: list[FloatArray], codes: IntArray, weight: FloatArray) -> Weights:
    """Weigh candidates by the Brier score of their out-of-fold probabilities on the noisy labels.

    What minimises this score on noisy labels is the noisy posterior, from which every peer classifier
    follows. Being a proper score of probabilities, it has far less sampling noise than the 0-1 peer score of
    decisions. A candidate t standard errors behind the best has weight ∝ exp(−t²/2): those that the data
    cannot tell apart are averaged, which beats picking one.
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
