"""One meaning of ``device`` for the whole library."""

from __future__ import annotations

import torch

from peerloss.exceptions import InvalidInputError

#: Layers of small networks from this width on train faster on a GPU than in the compiled loop on the CPU
#: (one network, H200 against EPYC).
GPU_WIDTH = 512


def resolve_device(
    device: str | torch.device | None = "auto", *, width: int | None = None, gpu_width: int = GPU_WIDTH
) -> torch.device:
    """Return the torch device to compute on; a device that is named must work.

    Parameters
    ----------
    device
        ``"auto"`` (or ``None``) chooses the GPU if there is one and the work is large enough for it, else the
        CPU. Any other value is what :class:`torch.device` accepts, such as ``"cpu"`` or ``"cuda:1"``.
    width, gpu_width
        Work that is only faster on a GPU from a certain size on passes its ``width`` (hidden units or
        features). ``"auto"`` then chooses the GPU only if ``width`` is at least ``gpu_width``.

    Raises
    ------
    InvalidInputError
        If the device is unknown or cannot be used.

    Examples
    --------
    >>> resolve_device("cpu"), resolve_device("auto", width=8)
    (device(type='cpu'), device(type='cpu'))
    """
    if device is None or device == "auto":
        is_large_enough = width is None or width >= gpu_width
        return torch.device("cuda" if is_large_enough and torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
        torch.zeros(1, device=chosen).item()
    # An unknown name, a missing device, a build of torch without it, a package that it would need.
    except (RuntimeError, AssertionError, ImportError, TypeError) as error:
        raise InvalidInputError(
            f"`device` must be 'auto', 'cpu' or 'cuda'; {device!r} cannot be used here "
            f"({str(error).partition(chr(10))[0]}). Use 'auto' to use a GPU only if torch finds one."
        ) from error
    return chosen
