"""The optimiser of a recipe."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import nn

    from peerloss.training.deep._recipe import DeepRecipe


def make_optimizer(model: nn.Module, recipe: DeepRecipe, *, fused: bool) -> torch.optim.Optimizer:
    """Return SGD or AdamW with the settings of the recipe."""
    rate, decay, momentum = recipe.learning_rate, recipe.weight_decay, recipe.momentum
    weights = list(model.parameters())
    if recipe.optimizer == "sgd":
        return torch.optim.SGD(
            weights, lr=rate, momentum=momentum, nesterov=True, weight_decay=decay, fused=fused
        )
    # Biases and the weights of normalisation layers have one dimension; they are customarily not decayed.
    groups = [
        {"params": [w for w in weights if w.ndim >= 2], "weight_decay": decay},
        {"params": [w for w in weights if w.ndim < 2], "weight_decay": 0.0},
    ]
    filled = [group for group in groups if group["params"]]
    return torch.optim.AdamW(filled, lr=rate, betas=(momentum, 0.999), fused=fused)
