"""Whether torch runs operations now, or traces or transforms them, so that values cannot be read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.autograd import forward_ad

if TYPE_CHECKING:
    from torch import Tensor

# torch has no public functions for these. Looking them up once keeps the checks fast.
_is_jit_tracing = torch._C._is_tracing  # noqa: SLF001
_count_modes = torch._C._len_torch_dispatch_stack  # noqa: SLF001
_has_transforms = torch._C._are_functorch_transforms_active  # noqa: SLF001


def is_tracing() -> bool:
    """Whether torch is tracing: what numba or Triton computes would then become a constant.

    True for ``torch.compile``, ``torch.export``, ``torch.jit.trace`` and modes that intercept operations.
    """
    return torch.compiler.is_compiling() or _is_jit_tracing() or _count_modes() > 0


def has_transforms() -> bool:
    """Whether a transform of ``torch.func`` (``vmap``, ``grad``, ``jvp``, …) is active."""
    return bool(_has_transforms())


def values_are_readable() -> bool:
    """Whether Python may branch on the values of tensors."""
    return not (is_tracing() or _has_transforms())


def needs_operations(z: Tensor) -> bool:
    """Whether ``torch.func`` or forward mode is active: both need differentiable torch operations."""
    return bool(_has_transforms()) or forward_ad.unpack_dual(z).tangent is not None
