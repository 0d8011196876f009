"""One training of a run: its result, its scores, and what the plots need of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from peerloss.functional import peer_loss
from peerloss.metrics import peer_score

if TYPE_CHECKING:
    from collections.abc import Callable

    from peerloss._validation import FloatArray, IntArray
    from peerloss.experiments.tables._run_data import RunData
    from peerloss.experiments.tables._table_experiment import TableRun

#: What can be recorded of networks.
OBSERVATIONS = ("curve", "invariance", "plane")
#: Points per side of the grid on which a decision boundary is drawn, and how far it extends beyond the data.
PLANE_POINTS, PLANE_MARGIN = 60, 0.3


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


def observe(run: TableRun, data: RunData, logits: Callable[[FloatArray], Any]) -> dict[str, float]:
    """Return what is recorded of a network at one step; ``logits`` computes its current logits (n, 2)."""
    recipe, point = run.recipe, {}
    if "curve" in recipe.record:
        validated = logits(data.X_validation).argmax(axis=1)
        point["noisy_validation"] = validation_score(data, validated, recipe.scoring_alpha)
        point["test_accuracy"] = accuracy(data, logits(data.X_test).argmax(axis=1))
    if "invariance" in recipe.record and data.clean is not None:
        base = str(recipe.settings.get("base", "logistic"))
        for part, X, noisy, clean in (
            ("train", data.X_train, data.y_train, data.clean[0]),
            ("validation", data.X_validation, data.y_validation, data.clean[1]),
        ):
            z = torch.as_tensor(logits(X), dtype=torch.float64)
            point[f"{part}_noisy_peer_loss"] = _peer_loss(z, noisy, base)
            point[f"{part}_clean_peer_loss"] = _peer_loss(z, clean, base)
    return point


def _peer_loss(z: torch.Tensor, y: IntArray, base: str) -> float:
    """Return the mean expected peer loss at α = 1, with the prior of these labels."""
    share = float(y.mean())
    return float(peer_loss(z, torch.from_numpy(y), base=base, alpha=1.0, noisy_prior=[1.0 - share, share]))


def draw_plane(data: RunData, probability: Callable[[FloatArray], FloatArray]) -> dict[str, Any]:
    """Return P(class 1) on a grid over two standardised features, and the training points with noisy labels.

    ``probability[i][j]`` is the probability at ``x[j]``, ``y[i]``.
    """
    low, high = data.X_train.min(axis=0) - PLANE_MARGIN, data.X_train.max(axis=0) + PLANE_MARGIN
    x, y = (np.linspace(low[i], high[i], PLANE_POINTS) for i in range(2))
    grid = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)
    p = probability(grid).reshape(PLANE_POINTS, PLANE_POINTS)
    return {
        "x": x.round(4).tolist(),
        "y": y.round(4).tolist(),
        "probability": p.round(4).tolist(),
        "points": data.X_train.round(4).tolist(),
        "noisy_labels": data.y_train.tolist(),
    }
