"""Expected peer loss of a small batch on the CPU in compiled loops (needs numba).

On a small batch arithmetic costs next to nothing; the time goes into starting some thirty operations of
torch. Here three loops check logits and labels, count the labels, and compute loss and gradient. They know
the ordinary case only: whatever is unusual (NaN, a wrong or an ignored label, other devices and dtypes,
compilers, transforms) is left to torch's operations, which also say what is wrong.
"""

from __future__ import annotations

import math
import pickle
from functools import cache, partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor

from peerloss.functional._batch import values_are_checkable
from peerloss.functional._cross_entropy import differentiable_gradient
from peerloss.functional._ready import Formula, Ready
from peerloss.functional._tracing import needs_operations

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
        and target.ndim == 1
        and logits.numel() <= MOST
        and logits.is_contiguous()
        and target.is_contiguous()
        and not needs_operations(logits)
    )


def compiled_peer_loss(
    logits: Tensor, target: Tensor, formula: Formula, noisy_prior: Tensor | None, label_counts: Tensor
) -> Ready | None:
    """Return the loss of a batch that :func:`is_compilable` accepts, as ``_ready`` says."""
    kernels, known = _kernels(logits.dtype), label_counts if noisy_prior is None else noisy_prior
    if kernels is None or len(known) != logits.shape[1] or not known.is_cpu or known.requires_grad:
        return None
    if noisy_prior is None and known.dtype != torch.int64:
        return None
    check, count, compute = kernels
    z, y = logits.numpy(force=True), target.numpy()
    ordinary, largest = check(z, y, formula.ignore_index)
    if not ordinary:
        return None
    if noisy_prior is None:
        shared = np.empty(len(known), z.dtype)
        count(y, label_counts.numpy(), formula.alpha, shared)
    else:
        shared = -formula.alpha * noisy_prior.to(logits.dtype).numpy()
    gradient = np.empty_like(z)
    scale = 1.0 / len(y) if formula.mean else 1.0
    value = compute(z, y, shared, formula.eps, scale, gradient)
    loss: Tensor = _ReadyLoss.apply(logits, target, value, gradient, (shared, formula.eps, scale))
    return Ready(loss, value, largest)


class _ReadyLoss(torch.autograd.Function):
    """A loss that comes with its gradient; only a second derivative computes anything."""

    @staticmethod
    def forward(
        ctx: Any, z: Tensor, y: Tensor, value: float, gradient: Any, terms: tuple[Any, float, float]
    ) -> Tensor:
        ctx.save_for_backward(torch.from_numpy(gradient))
        ctx.batch, ctx.version, ctx.terms = (z, y), _version(z), terms
        return z.new_full((), value)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,) = ctx.saved_tensors
        if torch.is_grad_enabled():  # a second derivative is wanted
            (z, y), (shared, eps, scale) = ctx.batch, ctx.terms
            if _version(z) != ctx.version:
                raise RuntimeError(
                    "the logits were modified by an inplace operation: no second derivative is left"
                )
            weights = grad.new_full(y.shape, scale)
            gradient = differentiable_gradient(z, y, None, torch.from_numpy(shared), eps, weights)
        return gradient * grad, None, None, None, None


def _version(z: Tensor) -> int | None:
    """Return how often a tensor was changed in place, where torch counts that."""
    return None if z.is_inference() else z._version  # noqa: SLF001 (documented under this name)


@cache
def _kernels(dtype: torch.dtype) -> list[Callable[..., Any]] | None:
    """Return the loops for logits of a dtype, compiled (a second) or as another process left them on disk."""
    try:
        import numba  # noqa: PLC0415 (optional and slow to import)
    except ImportError:
        return None
    for options in ({"cache": True}, {}):
        compile_with: Any = partial(numba.njit, nogil=True, error_model="numpy", **options)
        try:
            compiled = [compile_with()(loop) for loop in (_check, _count, _compute)]
            _try_out(compiled, dtype)
        except (RuntimeError, OSError, EOFError, pickle.UnpicklingError):
            continue  # the folder of the cache cannot be written to, is full or damaged: do without
        # With NUMBA_DISABLE_JIT functions come back as they are, and plain Python would be slow.
        return None if compiled[0] is _check else cast("list[Callable[..., Any]]", compiled)
    return None


def _try_out(loops: list[Any], dtype: torch.dtype) -> None:
    """Call each loop once, so that whatever can go wrong in compiling does so before anything is counted."""
    check, count, compute = loops
    z, y = torch.zeros(1, 2, dtype=dtype).numpy(), np.zeros(1, np.int64)
    shared = np.zeros(2, z.dtype)
    check(z, y, -100)
    count(y, np.zeros(2, np.int64), 1.0, shared)
    compute(z, y, shared, 1e-5, 1.0, np.empty_like(z))


# Everything is spelled out: array expressions take four times as long to compile.


def _check(z: Any, y: Any, ignore_index: int) -> tuple[bool, float]:
    """Return whether shapes and values are ordinary, and the largest finite |logit|."""
    n, k = z.shape
    if n == 0 or n != len(y) or k < 2:
        return False, 0.0
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
            elif c[j] != 0:  # the loss of a masked class, −inf logits, is infinite
                loss -= c[j] * (z[i, j] - top - log_total)
            pull += c[j]
        for j in range(k):
            p[j] = scale * (pull * p[j] - c[j])
    value: float = z.dtype.type(scale * loss)
    return value
