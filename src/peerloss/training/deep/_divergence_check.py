"""Detect diverging training at the end of an epoch."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from peerloss.exceptions import DivergenceError

REMEDY = (
    "Training has diverged: lower the learning rate, keep the clip of the loss (eps=1e-5) or use a bounded "
    "base, raise α later and less (`recipe.alpha`), or clip gradients (`clip_norm`)."
)

#: A mean loss below −α times this counts as divergence. A clipped or bounded loss stays above −12·α, and at
#: this limit all probabilities are 0 or 1 to machine precision.
LOSS_LIMIT = 1e3


def loss_alpha(loss: Any) -> float:
    """Return the current α of a loss, 0 if it has none."""
    return float(getattr(loss, "alpha", 0.0))


def check_epoch(mean_loss: float, weights_norm: float, loss: Any) -> None:
    """Raise a DivergenceError if an epoch ended with an unbounded or non-finite loss, or such weights."""
    alpha = loss_alpha(loss)
    is_mean = getattr(loss, "reduction", "mean") == "mean"
    if is_mean and alpha >= 1 and mean_loss < -LOSS_LIMIT * alpha:
        raise DivergenceError(
            f"the mean loss is {mean_loss:g} at α = {alpha:g}: it is not bounded below. {REMEDY}"
        )
    if not math.isfinite(mean_loss + weights_norm):
        raise DivergenceError(
            f"the mean loss is {mean_loss:g}, the norm of the weights {weights_norm:g}. {REMEDY}"
        )


@torch.no_grad()
def total_norm(model: nn.Module) -> Tensor:
    """Return the sum of the norms of all weights and buffers; it is finite only if all of them are."""
    floats = [tensor for tensor in model.state_dict().values() if tensor.is_floating_point()]
    return torch.stack([tensor.norm() for tensor in floats]).sum()
