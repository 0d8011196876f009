"""Expected peer loss on a GPU by kernels of our own (needs Triton, which comes with torch for CUDA).

They write loss and gradient by the formulas of ``_cross_entropy``, and nothing else passes over the logits. A
small batch takes one kernel: in a small step Python starts operations more slowly than the GPU does them. Of
larger ones the first kernel counts the labels, the second has a program for each row. Labels outside 0..K-1
touch no memory; their loss is NaN.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from peerloss.functional._cross_entropy import differentiable_gradient
from peerloss.functional._ready import Formula, Ready
from peerloss.functional._tracing import is_tracing, needs_operations

if TYPE_CHECKING:
    from types import ModuleType

#: Not float16: the gradient is divided by the number of rows at once, and small slopes would vanish.
_FLOATS = (torch.float32, torch.bfloat16)
#: Logits that a program holds at a time.
HELD = 4096
#: One program does the whole batch up to so many logits (columns rounded up) and so many classes.
ONE_KERNEL, FEW_CLASSES = 8192, 1024
#: Labels that a program counts.
LABELS = 1024


def is_fusable(logits: Tensor, target: Tensor) -> bool:
    """Whether :func:`fused_peer_loss` takes batches of this form."""
    return (
        type(logits) is Tensor
        and type(target) is Tensor
        and logits.is_cuda
        and not is_tracing()
        and target.device == logits.device
        and logits.requires_grad
        and target.dtype == torch.int64
        and logits.ndim == 2
        and logits.shape[1] >= 2
        and target.shape == logits.shape[:1]
        and logits.is_contiguous()
        and target.is_contiguous()
        and logits.numel() > 0
        and not needs_operations(logits)
        and has_kernels(logits.device, logits.dtype)
    )


def has_kernels(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether there are kernels for logits of this type, and Triton would start them on this device."""
    return (
        dtype in _FLOATS
        and device.type == "cuda"
        and device.index in (None, torch.cuda.current_device())
        and _kernels(dtype) is not None
    )


def fused_peer_loss(
    logits: Tensor, target: Tensor, formula: Formula, noisy_prior: Tensor | None, label_counts: Tensor
) -> Ready | None:
    """Return the loss of a batch that :func:`is_fusable` accepts, as ``_ready`` says."""
    known = label_counts if noisy_prior is None else noisy_prior
    if (
        len(known) != logits.shape[1]
        or known.device != logits.device
        or label_counts.device != logits.device
        or not known.is_contiguous()
        or known.requires_grad
    ):
        return None
    return Ready(_FusedLoss.apply(logits, target, noisy_prior, label_counts, formula))


class _FusedLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, z: Tensor, y: Tensor, prior: Tensor | None, counts: Tensor, formula: Formula
    ) -> Tensor:
        kernels = _kernels(z.dtype)
        assert kernels is not None  # noqa: S101 (is_fusable has asked)
        n, wide = len(z), _power_of_two(z.shape[1])
        compute = _in_one_kernel if wide <= FEW_CLASSES and n * wide <= ONE_KERNEL else _row_by_row
        loss, gradient, used, labelled = compute(kernels, z, y, prior, counts, formula)
        # Somebody may change a prior of theirs before the backward pass.
        ctx.save_for_backward(gradient, z, y, used if prior is None else used.clone(), labelled)
        ctx.formula = formula
        return loss

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        gradient, z, y, prior, labelled = ctx.saved_tensors
        if torch.is_grad_enabled():  # a second derivative is wanted
            gradient = _again(z, y, prior, labelled, ctx.formula)
        return gradient * grad, None, None, None, None


def _in_one_kernel(
    kernels: ModuleType, z: Tensor, y: Tensor, prior: Tensor | None, counts: Tensor, formula: Formula
) -> tuple[Tensor, ...]:
    """Return the loss, its gradient, the prior and the number of labels that are not ignored."""
    (n, k), counting = z.shape, prior is None
    if prior is None:
        prior = z.new_empty(k, dtype=torch.float32)
    loss, labelled = (z.new_empty((), dtype=torch.float32) for _ in range(2))
    gradient = torch.empty_like(z)
    wide = _power_of_two(k)
    kernels.at_once[(1,)](
        z, y, counts, prior, labelled, loss, gradient, n, k, formula.alpha, formula.eps, formula.ignore_index,
        counting, formula.eps > 0, formula.mean, max(1, HELD // wide), wide, num_warps=8,
    )  # fmt: skip
    return loss, gradient, prior, labelled


def _row_by_row(
    kernels: ModuleType, z: Tensor, y: Tensor, prior: Tensor | None, counts: Tensor, formula: Formula
) -> tuple[Tensor, ...]:
    """Return the same, from a program for each row."""
    (n, k), ignored = z.shape, formula.ignore_index
    labelled = z.new_zeros((), dtype=torch.float32)
    kernels.count[(-(-n // LABELS),)](y, counts, labelled, n, k, ignored, prior is None, LABELS)
    if prior is None:
        prior = counts.float() / counts.sum().clamp(min=1)
    rows, gradient = z.new_empty(n, dtype=torch.float32), torch.empty_like(z)
    block = min(HELD, _power_of_two(k))
    kernels.compute[(n,)](
        z, y, prior, labelled, rows, gradient, k, formula.alpha, formula.eps, ignored,
        formula.eps > 0, formula.mean, block, num_warps=max(1, min(8, block // 256)),
    )  # fmt: skip
    return rows.sum(), gradient, prior, labelled


def _power_of_two(k: int) -> int:
    """Return the least one that is not below k; programs hold so many columns."""
    return 1 << (k - 1).bit_length()


def _again(z: Tensor, y: Tensor, prior: Tensor, labelled: Tensor, formula: Formula) -> Tensor:
    """Return the gradient in operations that can be differentiated again."""
    valid = y != formula.ignore_index
    weights = (1.0 / labelled if formula.mean else torch.ones_like(labelled)).expand(int(valid.sum()))
    shared = -formula.alpha * prior.float()
    rows = differentiable_gradient(z[valid].float(), y[valid], None, shared, formula.eps, weights)
    return torch.zeros_like(z).index_put((valid,), rows.to(z.dtype))


@cache
def _kernels(dtype: torch.dtype) -> ModuleType | None:
    """Return the kernels, or ``None`` where they cannot run on such logits.

    Triton calls a C compiler, which may be missing, and old devices do not know every type. So each is tried.
    First calls compile for seconds; later processes find the result on the disk.
    """
    try:
        kernels = import_module("peerloss.functional._triton")
        if torch.cuda.is_available():
            z = torch.zeros(1, 2, dtype=dtype, device="cuda")
            y, counts = (torch.zeros(n, dtype=torch.int64, device="cuda") for n in (1, 2))
            formula = Formula(alpha=1.0, eps=1e-5, ignore_index=-100, mean=True)
            for compute in (_in_one_kernel, _row_by_row):
                compute(kernels, z, y, None, counts, formula)
    except Exception:  # noqa: BLE001 (whatever is wrong, torch's operations do the same)
        return None
    return kernels
