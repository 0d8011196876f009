"""Expected peer cross entropy on a GPU, in Triton kernels (Triton comes with torch for CUDA).

The kernels write the loss and gradient of `reference`; nothing else passes over the logits. A small batch
needs one kernel, because starting operations from Python takes longer than computing them. For a larger batch
the first kernel counts the labels and the second has one program per row. Labels outside 0..K-1 access no
memory; their loss is NaN. The kernels themselves are in `triton_source`, which imports Triton.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from peerloss.functional.base import needs_operations
from peerloss.functional.batch import label_frequencies
from peerloss.functional.kernels.reference import Formula, cross_entropy_gradient

if TYPE_CHECKING:
    from types import ModuleType

#: Not float16: the gradient is already divided by the number of rows, and small values would become 0.
_FLOATS = (torch.float32, torch.bfloat16)
#: Logits that one program holds at a time.
LOGITS_PER_PROGRAM = 4096
#: A batch of at most this many logits (columns rounded up) and classes is computed by one program.
MAX_ONE_KERNEL_LOGITS, MAX_ONE_KERNEL_CLASSES = 8192, 1024
#: Labels that one program counts.
LABELS_PER_PROGRAM = 1024


def accepts(logits: Tensor, target: Tensor) -> bool:
    """Whether :func:`fast_peer_loss` handles a batch in the form that `dispatch` has checked."""
    return (
        target.device == logits.device
        and logits.requires_grad
        and logits.shape[1] >= 2
        and target.shape == logits.shape[:1]
        and logits.numel() > 0
        and has_kernels(logits.device, logits.dtype)
    )


def has_kernels(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether there are kernels for logits of this dtype that Triton would start on this device."""
    return (
        dtype in _FLOATS
        and device.type == "cuda"
        and device.index in (None, torch.cuda.current_device())
        and _kernels(dtype) is not None
    )


def fast_peer_loss(
    logits: Tensor, target: Tensor, formula: Formula, noisy_prior: Tensor | None, label_counts: Tensor | None
) -> tuple[Tensor, None, None] | None:
    """Return what ``numba_cpu.fast_peer_loss`` returns; no number is known without waiting for the GPU."""
    counts = target.new_empty(0) if label_counts is None else label_counts  # kernels always take a pointer
    known = counts if noisy_prior is None else noisy_prior
    if (
        type(known) is not Tensor
        or known.shape != logits.shape[1:]
        or known.device != logits.device
        or counts.device != logits.device
        or counts.dtype != torch.int64  # sums of soft targets
        or not known.is_contiguous()
        or known.requires_grad
        or needs_operations(known)
    ):
        return None
    loss: Tensor = _TritonLoss.apply(logits, target, noisy_prior, counts, formula)
    return loss, None, None


class _TritonLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, z: Tensor, y: Tensor, prior: Tensor | None, counts: Tensor, formula: Formula
    ) -> Tensor:
        kernels = _kernels(z.dtype)
        assert kernels is not None  # noqa: S101 (`accepts` has checked)
        n, wide = len(z), _power_of_two(z.shape[1])
        is_small = wide <= MAX_ONE_KERNEL_CLASSES and n * wide <= MAX_ONE_KERNEL_LOGITS
        compute = _in_one_kernel if is_small else _row_by_row
        loss, gradient, used, labelled = compute(kernels, z, y, prior, counts, formula)
        # The caller may change a given prior before the backward pass.
        ctx.save_for_backward(gradient, z, y, used if prior is None else used.clone(), labelled)
        ctx.formula = formula
        return loss

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (gradient, z, y, prior, labelled), formula = ctx.saved_tensors, ctx.formula
        if torch.is_grad_enabled():  # for a second derivative
            valid = y != formula.ignore_index
            weights = (1.0 / labelled if formula.mean else torch.ones_like(labelled)).expand(int(valid.sum()))
            shared = -formula.alpha * prior.float()
            rows = cross_entropy_gradient(z[valid].float(), y[valid], None, shared, formula.eps, weights)
            gradient = torch.zeros_like(z).index_put((valid,), rows.to(z.dtype))
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
    kernels.small_batch[(1,)](
        z, y, counts, prior, labelled, loss, gradient, n, k, formula.alpha, formula.eps, formula.ignore_index,
        counting, formula.eps > 0, formula.mean, max(1, LOGITS_PER_PROGRAM // wide), wide, num_warps=8,
    )  # fmt: skip
    return loss, gradient, prior, labelled


def _row_by_row(
    kernels: ModuleType, z: Tensor, y: Tensor, prior: Tensor | None, counts: Tensor, formula: Formula
) -> tuple[Tensor, ...]:
    """Return what :func:`_in_one_kernel` returns, computed by one program per row."""
    (n, k), ignored = z.shape, formula.ignore_index
    labelled = z.new_zeros((), dtype=torch.float32)
    programs = -(-n // LABELS_PER_PROGRAM)
    kernels.count[(programs,)](y, counts, labelled, n, k, ignored, prior is None, LABELS_PER_PROGRAM)
    if prior is None:
        prior = label_frequencies(counts, torch.float32)
    rows, gradient = z.new_empty(n, dtype=torch.float32), torch.empty_like(z)
    block = min(LOGITS_PER_PROGRAM, _power_of_two(k))
    kernels.one_row[(n,)](
        z, y, prior, labelled, rows, gradient, k, formula.alpha, formula.eps, ignored,
        formula.eps > 0, formula.mean, block, num_warps=max(1, min(8, block // 256)),
    )  # fmt: skip
    return rows.sum(), gradient, prior, labelled


def _power_of_two(k: int) -> int:
    """Return the smallest power of two that is at least k, the number of columns that a program holds."""
    return 1 << (k - 1).bit_length()


@cache
def _kernels(dtype: torch.dtype) -> ModuleType | None:
    """Return the kernels, or ``None`` if they cannot run on logits of this dtype.

    Triton calls a C compiler, which may be missing, and old devices lack some dtypes. So each kernel is
    called once. The first call compiles for seconds; later processes find the result on disk.
    """
    try:
        kernels = import_module("peerloss.functional.kernels.triton_source")
        if torch.cuda.is_available():
            z = torch.zeros(1, 2, dtype=dtype, device="cuda")
            y, counts = (torch.zeros(n, dtype=torch.int64, device="cuda") for n in (1, 2))
            formula = Formula(alpha=1.0, eps=1e-5, ignore_index=-100, mean=True)
            for compute in (_in_one_kernel, _row_by_row):
                compute(kernels, z, y, None, counts, formula)
    except Exception:  # noqa: BLE001 (whatever is wrong, torch operations give the same result)
        return None
    return kernels
