"""Expected peer loss of a small batch on the CPU in one compiled call (needs numba).

On a small batch arithmetic costs next to nothing; the time goes into starting some thirty operations of
torch. Here one loop checks logits and labels, counts the labels and computes loss and gradient. It knows the
ordinary case only: whatever is unusual (NaN, a wrong or an ignored label, other devices and dtypes,
compilers, transforms) it leaves to torch's operations, which also say what is wrong.
"""

from __future__ import annotations

import math
from functools import cache, partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor

from peerloss.functional._batch import Batch, values_are_checkable
from peerloss.functional._cross_entropy import cross_entropy_sum, under_transform

if TYPE_CHECKING:
    from collections.abc import Callable

#: Beyond this many logits the vector instructions of torch win (measured for 2 to 1000 classes).
MOST = 1 << 14


def is_compilable(logits: Tensor, target: Tensor) -> bool:
    """Whether :func:`compiled_peer_loss` takes batches of this form."""
    return (
        type(logits) is type(target) is Tensor
        and values_are_checkable(logits)
        and target.is_cpu
        and logits.dtype in (torch.float32, torch.float64)
        and target.dtype == torch.int64
        and logits.ndim == 2
        and logits.shape[1] >= 2
        and logits.shape[:1] == target.shape
        and 0 < logits.numel() <= MOST
        and logits.is_contiguous()
        and target.is_contiguous()
        and not under_transform(logits)
    )


def compiled_peer_loss(
    logits: Tensor,
    target: Tensor,
    *,
    alpha: float,
    eps: float,
    ignore_index: int,
    reduction: str,
    noisy_prior: Tensor | None,
    label_counts: Tensor,
) -> tuple[Batch, Tensor] | None:
    """Return a batch and its peer loss for cross entropy, or ``None`` where torch's operations have to do it.

    Parameters
    ----------
    logits, target
        A batch that :func:`is_compilable` accepts.
    alpha, eps, ignore_index, reduction
        As in :func:`peerloss.functional.peer_loss`; not ``"none"``.
    noisy_prior
        π̃ (K,), or ``None`` for the shares of ``label_counts``.
    label_counts
        Counts (K,), to which the labels are added where no ``noisy_prior`` is given; with ``None`` returned
        they are what they were.
    """
    kernels, known = _kernels(), label_counts if noisy_prior is None else noisy_prior
    if (
        kernels is None
        or known.shape != logits.shape[1:]
        or known.device != logits.device
        or known.requires_grad
    ):
        return None
    check, count, compute = kernels
    z, y = logits.numpy(force=True), target.numpy()
    ordinary, largest = check(z, y, ignore_index)
    if not ordinary:
        return None
    if noisy_prior is None:
        shared = logits.new_empty(known.shape)
        count(y, label_counts.numpy(), alpha, shared.numpy())
    else:
        shared = -alpha * noisy_prior.to(logits.dtype)
    gradient = torch.empty_like(logits)
    scale = 1.0 / len(target) if reduction == "mean" else 1.0
    value = compute(z, y, shared.numpy(), eps, scale, gradient.numpy())
    loss: Tensor = _ReadyLoss.apply(logits, value, gradient, target, shared, eps, scale)
    return Batch(logits, target, None, largest), loss


class _ReadyLoss(torch.autograd.Function):
    """A loss that comes with its gradient; only a second derivative computes anything."""

    @staticmethod
    def forward(
        ctx: Any,
        z: Tensor,
        value: float,
        gradient: Tensor,
        y: Tensor,
        shared: Tensor,
        eps: float,
        scale: float,
    ) -> Tensor:
        ctx.save_for_backward(z, y, shared)
        ctx.gradient, ctx.eps, ctx.scale = gradient, eps, scale
        return z.new_full((), value)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        slope = ctx.gradient
        if torch.is_grad_enabled():  # a second derivative is wanted
            z, y, shared = ctx.saved_tensors
            loss = ctx.scale * cross_entropy_sum(z, y, None, shared, ctx.eps)
            (slope,) = torch.autograd.grad(loss, z, create_graph=True)
        return slope * grad, *(None,) * 6


@cache
def _kernels() -> list[Callable[..., Any]] | None:
    """Return the loops. Their first call compiles them (a second); other processes find them on the disk."""
    try:
        import numba  # noqa: PLC0415 (optional and slow to import)
    except ImportError:
        return None
    loops = (_check, _count, _compute)
    compile_with = partial(numba.njit, nogil=True, error_model="numpy")
    try:
        compiled = [compile_with(cache=True)(loop) for loop in loops]
    except RuntimeError:  # no folder can be written to
        compiled = [compile_with()(loop) for loop in loops]
    # With NUMBA_DISABLE_JIT functions come back as they are, and plain Python would be slow.
    return None if compiled[0] is _check else cast("list[Callable[..., Any]]", compiled)


# Everything is spelled out: array expressions take four times as long to compile.


def _check(z: Any, y: Any, ignore_index: int) -> tuple[bool, float]:
    """Return whether values are ordinary, and the largest |logit| as in ``Batch.largest``."""
    n, k = z.shape
    low = high = z[0, 0]
    for i in range(n):
        if not 0 <= y[i] < k or y[i] == ignore_index:
            return False, 0.0
        for j in range(k):
            if not z[i, j] < math.inf:  # NaN compares false; −inf alone (a masked class) is legal
                return False, 0.0
            low = min(low, z[i, j])
            high = max(high, z[i, j])
    return True, max(high, -low) if low > -math.inf else abs(high)


def _count(y: Any, counts: Any, alpha: float, shared: Any) -> None:
    """Add the labels to the counts and write −α·π̃ into ``shared``."""
    for i in range(len(y)):
        counts[y[i]] += 1
    total = 0
    for j in range(len(counts)):
        total += counts[j]
    for j in range(len(counts)):
        shared[j] = -alpha * (counts[j] / total)


def _compute(z: Any, y: Any, shared: Any, eps: float, scale: float, gradient: Any) -> float:
    """Return the loss and write its gradient, by the formulas of ``_cross_entropy`` with sums in float64."""
    n, k = z.shape
    clip = z.dtype.type(eps)
    c = np.empty_like(shared)
    loss = 0.0
    for i in range(n):
        p = gradient[i]
        top = z[i, 0]
        for j in range(1, k):
            top = max(top, z[i, j])
        total = 0.0
        for j in range(k):
            p[j] = math.exp(z[i, j] - top)
            total += p[j]
        log_total = math.log(total)
        pull = 0.0
        for j in range(k):
            p[j] /= total
            c[j] = shared[j] + (j == y[i])
            if eps > 0:
                loss -= c[j] * math.log(p[j] + clip)
                c[j] *= p[j] / (p[j] + clip)
            else:
                loss -= c[j] * (z[i, j] - top - log_total)
            pull += c[j]
        for j in range(k):
            p[j] = scale * (pull * p[j] - c[j])
    return scale * loss
