"""Expected peer cross entropy on a GPU, in Triton kernels (Triton comes with torch for CUDA).

The kernels write the loss and gradient of `reference`; nothing else passes over the logits. A small batch
needs one kernel, because starting operations from Python takes longer than computing them. For a larger batch
one kernel counts the labels and one, with a program per row, computes the loss; the backward pass has one for
the gradient, which is not stored before. :func:`rows_in_place` is for logits that nobody else needs. Labels
outside 0..K-1 access no memory; their loss is NaN. The kernels themselves are in `triton_source`, which
imports Triton.
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
#: Logits that the one program of a small batch holds at a time.
LOGITS_PER_PROGRAM = 4096
#: Columns that a program of a single row holds at a time, and its largest number of warps.
COLUMNS_PER_PROGRAM, MAX_WARPS = 2048, 4
#: The same if logits are replaced by gradients: a sixth to a third less time for 50,000 classes on an H200.
COLUMNS_IN_PLACE, MAX_WARPS_IN_PLACE = 4096, 16
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
    n, wide = len(logits), _power_of_two(logits.shape[1])
    is_small = wide <= MAX_ONE_KERNEL_CLASSES and n * wide <= MAX_ONE_KERNEL_LOGITS
    path = _TritonLoss if is_small else _TritonRows
    loss: Tensor = path.apply(logits, target, noisy_prior, counts, formula)
    return loss, None, None


class _TritonLoss(torch.autograd.Function):
    """A small batch: one kernel computes the loss and its gradient."""

    @staticmethod
    def forward(
        ctx: Any, z: Tensor, y: Tensor, prior: Tensor | None, counts: Tensor, formula: Formula
    ) -> Tensor:
        loss, gradient, used, labelled = _in_one_kernel(kernels_for(z.dtype), z, y, prior, counts, formula)
        # The caller may change a given prior before the backward pass.
        ctx.save_for_backward(gradient, z, y, used if prior is None else used.clone(), labelled)
        ctx.formula = formula
        return loss

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        gradient, z, y, prior, labelled = ctx.saved_tensors
        if torch.is_grad_enabled():  # for a second derivative
            shared = -ctx.formula.alpha * prior.float()
            gradient = _differentiable_gradient(z, y, shared, labelled, ctx.formula)
        return gradient * grad, None, None, None, None


class _TritonRows(torch.autograd.Function):
    """A larger batch, one program per row. The backward pass computes the gradient, so none is stored."""

    @staticmethod
    def forward(
        ctx: Any, z: Tensor, y: Tensor, prior: Tensor | None, counts: Tensor, formula: Formula
    ) -> Tensor:
        kernels = kernels_for(z.dtype)
        shared, labelled = _count(kernels, y, prior, counts, formula)
        loss, statistics = _row_losses(kernels, z, y, shared, labelled, formula)
        ctx.save_for_backward(z, y, shared, labelled, statistics)
        ctx.formula = formula
        return loss

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        z, y, shared, labelled, statistics = ctx.saved_tensors
        if torch.is_grad_enabled():  # for a second derivative
            gradient = grad * _differentiable_gradient(z, y, shared, labelled, ctx.formula)
        else:
            gradient = _row_gradients(
                kernels_for(z.dtype), z, y, shared, labelled, statistics, grad, ctx.formula
            )
        return gradient, None, None, None, None


def _differentiable_gradient(
    z: Tensor, y: Tensor, shared: Tensor, labelled: Tensor, formula: Formula
) -> Tensor:
    """Return the gradient of the loss in torch operations."""
    valid = y != formula.ignore_index
    weights = (1.0 / labelled if formula.mean else torch.ones_like(labelled)).expand(int(valid.sum()))
    rows = cross_entropy_gradient(z[valid].float(), y[valid], None, shared, formula.eps, weights)
    return torch.zeros_like(z).index_put((valid,), rows.to(z.dtype))


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


def _count(
    kernels: ModuleType, y: Tensor, prior: Tensor | None, counts: Tensor, formula: Formula
) -> tuple[Tensor, Tensor]:
    """Return the coefficients −α·π̃ and the number of labels that are not ignored.

    Without a ``prior`` the labels are added to the ``counts``.
    """
    labelled = y.new_zeros((), dtype=torch.float32)
    add_labels(kernels, y, counts if prior is None else None, labelled, formula.ignore_index)
    if prior is None:
        prior = label_frequencies(counts, torch.float32)
    return -formula.alpha * prior.float(), labelled


def add_labels(
    kernels: ModuleType, y: Tensor, counts: Tensor | None, labelled: Tensor, ignore_index: int
) -> None:
    """Add the number of labels that are not ignored to ``labelled``, and those of each class to ``counts``.

    ``labelled`` is one number, float32. ``counts`` (K,) is int64, or ``None``.
    """
    known, n = y if counts is None else counts, y.shape[0]  # kernels always take a pointer
    kernels.count[(-(-n // LABELS_PER_PROGRAM),)](
        y, known, labelled, n, known.shape[0], ignore_index, counts is not None, LABELS_PER_PROGRAM
    )


def _row_losses(
    kernels: ModuleType, z: Tensor, y: Tensor, shared: Tensor, labelled: Tensor, formula: Formula
) -> tuple[Tensor, Tensor]:
    """Return the loss, and of each row what :func:`_row_gradients` needs, (n, 3)."""
    n, k = z.shape
    rows, statistics = z.new_empty(n, dtype=torch.float32), z.new_empty(n, 3, dtype=torch.float32)
    kernels.row_losses[(n,)](
        z, y, shared, labelled, rows, statistics, k, formula.eps, formula.ignore_index,
        formula.alpha != 0, formula.eps > 0, formula.mean, **_program_size(k),
    )  # fmt: skip
    return rows.sum(), statistics


def _row_gradients(
    kernels: ModuleType, z: Tensor, y: Tensor, shared: Tensor, labelled: Tensor, statistics: Tensor,
    grad: Tensor, formula: Formula,
) -> Tensor:  # fmt: skip
    """Return the gradient of the loss times ``grad``."""
    (n, k), size = z.shape, _program_size(z.shape[1])
    gradient = torch.empty_like(z)
    kernels.row_gradients[(n, -(-k // size["columns_at_once"]))](
        z, y, shared, labelled, statistics, grad, gradient, k, formula.eps, formula.ignore_index,
        formula.alpha != 0, formula.eps > 0, formula.mean, **size,
    )  # fmt: skip
    return gradient


def rows_in_place(
    kernels: ModuleType,
    z: Tensor,
    y: Tensor,
    losses: Tensor,
    *,
    shared: Tensor | None,
    labelled: Tensor | None,
    factors: Tensor | None,
    eps: float,
    ignore_index: int,
    writes_gradient: bool,
) -> None:
    """Write the ``losses`` of the rows of ``z``, float32 (n,); replace ``z`` by their gradient if asked to.

    The ``kernels`` are those of :func:`kernels_for`. ``shared`` (K,) is float32, or ``None`` if there is no
    peer term. Losses and gradients are divided by the number ``labelled`` if it is given. The gradient of
    each row is multiplied by its entry of ``factors`` (n,) if they are given; a row with the factor 0 has the
    loss 0.
    """
    (n, k), unused = z.shape, losses  # kernels always take a pointer
    kernels.rows_in_place[(n,)](
        z, y, unused if shared is None else shared, unused if labelled is None else labelled,
        unused if factors is None else factors, losses, k, eps, ignore_index, shared is not None, eps > 0,
        labelled is not None, factors is not None, writes_gradient,
        **_program_size(k, in_place=True),
    )  # fmt: skip


def _program_size(k: int, *, in_place: bool = False) -> dict[str, int]:
    """Return how many of k columns a program handles at a time, and its number of warps."""
    most, max_warps = COLUMNS_PER_PROGRAM, MAX_WARPS
    if in_place:
        most, max_warps = COLUMNS_IN_PLACE, MAX_WARPS_IN_PLACE
    columns = min(most, _power_of_two(k))
    return {"columns_at_once": columns, "num_warps": max(1, min(max_warps, columns // 256))}


def _power_of_two(k: int) -> int:
    """Return the smallest power of two that is at least k, the number of columns that a program holds."""
    return 1 << (k - 1).bit_length()


def kernels_for(dtype: torch.dtype) -> ModuleType:
    """Return the kernels; :func:`has_kernels` has checked that there are kernels for logits of this dtype."""
    kernels = _kernels(dtype)
    assert kernels is not None  # noqa: S101
    return kernels


@cache
def _kernels(dtype: torch.dtype) -> ModuleType | None:
    """Return the kernels, or ``None`` if they cannot run on logits of this dtype.

    Triton calls a C compiler, which may be missing, and old devices lack some dtypes. So each kernel is
    called once. The first call compiles for seconds; later processes find the result on disk.
    """
    try:
        kernels = import_module("peerloss.functional.kernels.triton_source")
        if torch.cuda.is_available():
            _call_each(kernels, dtype)
    except Exception:  # noqa: BLE001 (whatever is wrong, torch operations give the same result)
        return None
    return kernels


def _call_each(kernels: ModuleType, dtype: torch.dtype) -> None:
    """Call each kernel on the GPU."""
    z = torch.zeros(1, 2, dtype=dtype, device="cuda")
    y, counts = (torch.zeros(n, dtype=torch.int64, device="cuda") for n in (1, 2))
    formula = Formula(alpha=1.0, eps=1e-5, ignore_index=-100, mean=True)
    _in_one_kernel(kernels, z, y, None, counts, formula)
    shared, labelled = _count(kernels, y, None, counts, formula)
    loss, statistics = _row_losses(kernels, z, y, shared, labelled, formula)
    _row_gradients(kernels, z, y, shared, labelled, statistics, loss, formula)
    rows_in_place(
        kernels, z, y, loss, shared=shared, labelled=labelled, factors=None, eps=formula.eps,
        ignore_index=formula.ignore_index, writes_gradient=True,
    )  # fmt: skip
