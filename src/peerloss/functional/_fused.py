"""Expected peer loss on a GPU in two kernels (needs Triton, which comes with torch for CUDA).

The first kernel counts the labels; the second reads a row of logits and writes its loss and its gradient, by
the formulas of ``_cross_entropy``. Nothing else passes over the logits, and little has to be started: in a
small step Python starts operations more slowly than the GPU does them. Labels outside 0..K-1 touch no memory;
their loss is NaN.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from peerloss.functional._compiled import Ready, is_recorded
from peerloss.functional._cross_entropy import cross_entropy_rows, under_transform

if TYPE_CHECKING:
    from types import ModuleType

_FLOATS = (torch.float32, torch.float16, torch.bfloat16)
#: Labels that a program of the first kernel counts.
ROWS = 1024
#: Columns that a program of the second kernel holds at a time; more classes take several rounds.
WIDEST = 4096


class _Formula(NamedTuple):
    """What turns logits and labels into the loss."""

    alpha: float
    eps: float
    ignore_index: int
    mean: bool


def is_fusable(logits: Tensor, target: Tensor) -> bool:
    """Whether :func:`fused_peer_loss` takes batches of this form."""
    return (
        logits.is_cuda
        and target.device == logits.device
        and logits.device.index == torch.cuda.current_device()  # where Triton starts kernels
        and not torch.compiler.is_compiling()
        and logits.requires_grad
        and logits.dtype in _FLOATS
        and target.dtype == torch.int64
        and logits.ndim == 2
        and logits.shape[1] >= 2
        and target.shape == logits.shape[:1]
        and logits.is_contiguous()
        and target.is_contiguous()
        and logits.numel() > 0
        and not under_transform(logits)
        and not is_recorded()
        and _kernels() is not None
    )


def fused_peer_loss(
    logits: Tensor,
    target: Tensor,
    *,
    alpha: float,
    eps: float,
    ignore_index: int,
    reduction: str,
    noisy_prior: Tensor | None,
    label_counts: Tensor,
) -> Ready | None:
    """Return the peer loss of a batch for cross entropy, or ``None`` where torch's operations have to do it.

    Parameters
    ----------
    logits, target
        A batch that :func:`is_fusable` accepts.
    alpha, eps, ignore_index, reduction
        As in :func:`peerloss.functional.peer_loss`; not ``"none"``.
    noisy_prior
        π̃ (K,), or ``None`` for the shares of ``label_counts``.
    label_counts
        Counts (K,), to which the labels are added where no ``noisy_prior`` is given.
    """
    known = label_counts if noisy_prior is None else noisy_prior
    if len(known) != logits.shape[1] or known.device != logits.device:
        return None
    formula = _Formula(alpha, eps, ignore_index, reduction == "mean")
    return Ready(_FusedLoss.apply(logits, target, noisy_prior, label_counts, formula))


class _FusedLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, z: Tensor, y: Tensor, prior: Tensor | None, counts: Tensor, formula: _Formula
    ) -> Tensor:
        kernels = _kernels()
        assert kernels is not None  # noqa: S101 (is_fusable has asked)
        (n, k), ignored = z.shape, formula.ignore_index
        divisor = torch.zeros((), dtype=torch.float32, device=z.device)
        kernels.count[(-(-n // ROWS),)](y, counts, divisor, n, k, ignored, prior is None, ROWS)
        if prior is None:
            prior = counts / counts.sum()  # NaN where every label is ignored, which no row then reads
        rows, gradient = torch.empty(n, dtype=torch.float32, device=z.device), torch.empty_like(z)
        block = min(WIDEST, 1 << (k - 1).bit_length())
        kernels.compute[(n,)](
            z, y, prior, divisor, rows, gradient, k, formula.alpha, formula.eps, ignored,
            formula.eps > 0, formula.mean, block, num_warps=max(1, min(8, block // 256)),
        )  # fmt: skip
        ctx.save_for_backward(gradient, z, y, prior, divisor)
        ctx.formula = formula
        return rows.sum()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        gradient, z, y, prior, divisor = ctx.saved_tensors
        if ctx.formula.mean:  # not before: small slopes of half precision would vanish
            grad = grad / divisor
        if torch.is_grad_enabled():  # a second derivative is wanted
            gradient = _differentiable_gradient(z, y, prior, ctx.formula)
        return gradient * grad, None, None, None, None


def _differentiable_gradient(z: Tensor, y: Tensor, prior: Tensor, formula: _Formula) -> Tensor:
    valid = y != formula.ignore_index
    rows = cross_entropy_rows(z.float(), y * valid, None, -formula.alpha * prior.float(), formula.eps)
    (gradient,) = torch.autograd.grad((rows * valid).sum(), z, create_graph=True)
    return gradient


@cache
def _kernels() -> ModuleType | None:
    """Return the kernels, or ``None`` where they cannot run: Triton calls a C compiler, which may be missing.

    First calls compile for seconds; later processes find the result on the disk.
    """
    try:
        kernels = import_module("peerloss.functional._triton")
        if torch.cuda.is_available():
            labels = torch.zeros(1, dtype=torch.int64, device="cuda")
            kernels.count[(1,)](labels, labels.clone(), labels.float(), 1, 1, -100, True, ROWS)
    except Exception:  # noqa: BLE001 (whatever is wrong, torch's operations do the same)
        return None
    return kernels
