"""Whether torch runs the operations now, or traces and transforms them: then values cannot be read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.autograd import forward_ad

if TYPE_CHECKING:
    from torch import Tensor


def is_tracing() -> bool:
    """Whether the operations are being recorded: what numba or Triton computes would become a constant.

    True for ``torch.compile``, ``torch.export``, ``torch.jit.trace`` and modes that intercept operations.
    """
    return (
        torch.compiler.is_compiling()
        or torch._C._is_tracing()  # noqa: SLF001 (there is no public function)
        or torch._C._len_torch_dispatch_stack() > 0  # noqa: SLF001 (there is no public function)
    )


def has_transforms() -> bool:
    """Whether a transform of ``torch.func`` (``vmap``, ``grad``, ``jvp``, …) is active."""
    return bool(torch._C._are_functorch_transforms_active())  # noqa: SLF001 (there is no public function)


def needs_operations(z: Tensor) -> bool:
    """Whether ``torch.func`` or forward mode is active: they need differentiable operations throughout."""
    return has_transforms() or forward_ad.unpack_dual(z).tangent is not None


def values_are_readable() -> bool:
    """Whether Python may branch on the values of tensors, here and now."""
    return not (is_tracing() or has_transforms())
