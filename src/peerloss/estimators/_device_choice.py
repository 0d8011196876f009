"""Choose the device on which the networks train."""

from __future__ import annotations

import torch

from peerloss.training._device import usable_device


def choose_device(device: str | torch.device, width: int, *, min_width: int) -> str:
    """Return the torch device to train on.

    ``"auto"`` is the GPU if there is one and ``width`` is at least ``min_width``, else the CPU: smaller
    networks train faster on a CPU.
    """
    if device == "auto":
        return "cuda" if torch.cuda.is_available() and width >= min_width else "cpu"
    return str(usable_device(device))
