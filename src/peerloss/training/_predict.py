"""Logits of many rows, and how inputs and precision are treated on the way."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from peerloss.functional.batch import as_columns
from peerloss.training._augment import to_inputs

if TYPE_CHECKING:
    from collections.abc import Callable


@torch.no_grad()
def predict_logits(
    model: Callable[[Tensor], Tensor], X: Tensor, *, batch_size: int = 2048, half_precision: bool = True
) -> Tensor:
    """Return the logits, (n, K) as the model has them, of inputs on its device; it is to be in eval mode.

    All batches have one size, ``batch_size``, so that a compiled model is compiled once: the last is filled
    up with rows from the beginning. ``half_precision`` computes in bfloat16 on a GPU; they come in float32.
    """
    n = len(X)
    size = min(batch_size, n)
    order = torch.arange(-(-n // size) * size, device=X.device) % n
    parts = []
    for start in range(0, len(order), size):
        rows = X[order[start : start + size]]
        with precision(X.device, half_precision):
            # A copy: a compiled model writes its next answers to the same place.
            parts.append(model(to_inputs(rows) if is_images(X) else rows).to(torch.float32, copy=True))
    return torch.cat(parts)[:n]


def predict_mirrored(
    model: Callable[[Tensor], Tensor], X: Tensor, *, batch_size: int = 2048, half_precision: bool = True
) -> Tensor:
    """Return probabilities (n, K); of images (uint8) the mean over each one and its mirror image.

    ``model``, ``batch_size`` and ``half_precision`` are those of :func:`predict_logits`.
    """
    views = (X, X.flip(2)) if is_images(X) else (X,)
    seen = [predict_logits(model, v, batch_size=batch_size, half_precision=half_precision) for v in views]
    return torch.stack([torch.softmax(as_columns(logits), dim=1) for logits in seen]).mean(dim=0)


def is_images(X: Tensor) -> bool:
    """Whether inputs are images in bytes, (n, height, width, channels)."""
    return X.dtype == torch.uint8 and X.ndim == 4


def precision(device: torch.device, half_precision: bool) -> torch.autocast:
    """Compute in bfloat16 on a GPU where that is wanted."""
    enabled = half_precision and device.type == "cuda"
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=enabled)
