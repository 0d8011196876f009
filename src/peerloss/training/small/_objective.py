"""The loss of a batch from its logits, for stacks of nets; base losses and DMI come from ``functional``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from peerloss.functional.base import as_base
from peerloss.functional.correction import forward_rows
from peerloss.functional.information import joint_loss

if TYPE_CHECKING:
    from torch import Tensor

    from peerloss.training.small._nets import Objective


def batch_losses(objective: Objective, z: Tensor, coefficients: Tensor, scale: Tensor) -> Tensor:
    """Return the loss of each net, shape (nets,), from logits and coefficients (nets, batch, K).

    ``scale`` (nets, batch) is the weight of a row divided by the batch size. Differentiable in ``z``.
    """
    if objective.family == "forward":
        return (scale * forward_rows(z, coefficients)).sum(dim=1)
    if objective.family == "dmi":
        joint = torch.bmm(coefficients.transpose(1, 2), torch.softmax(z, dim=2))
        return joint_loss(joint, objective.eps)
    losses = as_base(objective.base).columns(z.flatten(0, 1), objective.eps)
    return (coefficients * losses.view_as(z)).sum(dim=(1, 2))


def as_class_logits(outputs: Tensor) -> Tensor:
    """Return (…, K) logits; a single output z stands for the two columns (0, z)."""
    if outputs.shape[-1] > 1:
        return outputs
    return torch.cat((torch.zeros_like(outputs), outputs), dim=-1)
