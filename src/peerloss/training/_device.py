"""Where to train."""

from __future__ import annotations

import torch

from peerloss.exceptions import InvalidInputError


def usable_device(device: str | torch.device | None = None) -> torch.device:
    """Return the device of that name, once something was computed there; ``None``: a GPU, if there is one."""
    wanted = device or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(wanted)
        torch.zeros(1, device=chosen).item()
    # An unknown name, no such device, a build of torch without it, a package it would need.
    except (RuntimeError, AssertionError, ImportError, TypeError) as error:
        raise InvalidInputError(
            f"`device` must be cpu, or cuda where torch finds a GPU; {wanted!r} cannot be used here "
            f"({str(error).partition(chr(10))[0]}). Leave it out to take what there is."
        ) from error
    return chosen
