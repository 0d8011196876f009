"""One training of a run, and how it is scored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from peerloss.metrics import peer_score

if TYPE_CHECKING:
    from collections.abc import Callable

    from peerloss._validation import FloatArray, IntArray
    from peerloss.experiments.tables._run_data import RunData


@dataclass(frozen=True)
class Trial:
    """The result of training with one point of the grid."""

    predict: Callable[[FloatArray], IntArray] | None
    """``None`` if training diverged."""
    seconds: float
    curve: dict[str, list[float]] | None = None
    """Steps, and what the recipe records at each."""
    plane: dict[str, Any] | None = None
    """Decision boundary, if the recipe records it."""


def validation_score(data: RunData, predicted: IntArray, alpha: float) -> float:
    """Return the peer score on the noisy validation labels; at α = 0 it is noisy accuracy."""
    return peer_score(data.y_validation, predicted, alpha=alpha)


def accuracy(data: RunData, predicted: IntArray) -> float:
    """Return the accuracy on the clean test labels."""
    return float((predicted == data.y_test).mean())
