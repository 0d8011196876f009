"""One training of a cell, and how it is scored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from peerloss.metrics import peer_score

if TYPE_CHECKING:
    from collections.abc import Callable

    from peerloss._validation import FloatArray, IntArray
    from peerloss.experiments._tasks import Task


@dataclass(frozen=True)
class Trial:
    """What one point of a cell's grid became."""

    predict: Callable[[FloatArray], IntArray] | None
    """``None`` where training left the finite numbers."""
    seconds: float
    curve: dict[str, list[float]] | None = None
    """Steps, and what the recipe wants recorded at each."""
    plane: dict[str, Any] | None = None
    """Decision boundary, where the recipe wants it."""


def validation_score(task: Task, predicted: IntArray, alpha: float) -> float:
    """Return the peer score on the noisy validation labels; at α = 0 it is noisy accuracy."""
    return peer_score(task.y_validation, predicted, alpha=alpha)


def accuracy(task: Task, predicted: IntArray) -> float:
    """Return the accuracy on the clean test labels."""
    return float((predicted == task.y_test).mean())
