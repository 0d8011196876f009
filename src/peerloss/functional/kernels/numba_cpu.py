"""Expected peer cross entropy of a small batch on the CPU, in compiled loops (needs numba).

On a small batch the arithmetic takes almost no time; starting about thirty torch operations does. Here three
loops check logits and labels, count the labels, and compute the loss and gradient of `reference`. They handle
the common case only: class codes, or soft targets of the dtype of the logits. Everything else (NaN, a wrong
or an ignored label, other devices and dtypes, tracing, transforms) is left to torch operations, which also
raise the errors.
"""

from __future__ import annotations

import math
import pickle
from functools import cache, partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor

from peerloss._validation import SOFT_LABEL_TOLERANCE
from peerloss.functional.base import needs_operations
from peerloss.functional.kernels.reference import cross_entropy_gradient

if TYPE_CHECKING:
    from collections.abc import Callable

    from peerloss.functional.kernels.reference import Formula

#: For larger batches the vector instructions of torch are faster (measured for 2 to 1000 classes).
MAX_NUMBA_LOGITS = 1 << 14


def accepts(logits: Tensor, target: Tensor) -> bool:
    """Whether :func:`fast_peer_loss` handles a batch in the form that `dispatch` has checked."""
    on_cpu = logits.is_cpu and target.is_cpu
    return on_cpu and logits.dtype in (torch.float32, torch.float64) and logits.numel() <= MAX_NUMBA_LOGITS


def fast_peer_loss(
    logits: Tensor, target: Tensor, formula: Formula, noisy_prior: Tensor | None, label_counts: Tensor | None
) -> tuple[Tensor, float, float] | None:
    """Return the loss of a batch that :func:`accepts` accepts, its value and the largest finite |logit|.

    Without a ``noisy_prior`` (K,) the labels are added to ``label_counts`` (K,), int64 or for soft targets
    float64, and π̃ is the frequencies there. If torch operations must compute the loss, ``None`` is returned
    and the counts are unchanged.
    """
    is_soft = target.ndim == 2
    loops, known = (
        _compiled_loops(logits.dtype, is_soft),
        label_counts if noisy_prior is None else noisy_prior,
    )
    counted = torch.float64 if is_soft else torch.int64
    if (
        loops is None
        or type(known) is not Tensor
        or known.shape != logits.shape[1:]
        or not known.is_cpu
        or known.requires_grad
        or (known.dtype != counted if noisy_prior is None else needs_operations(noisy_prior))
    ):
        return None
    check, count, compute = loops
    z, y = logits.numpy(force=True), target.numpy()
    is_common, largest = check(z, y, formula.ignore_index)
    if not is_common:
        return None
    if noisy_prior is None:
        shared = np.empty(z.shape[1], z.dtype)
        count(y, known.numpy(), formula.alpha, shared)
    else:
        shared = -formula.alpha * noisy_prior.to(logits.dtype).numpy()
    gradient = np.empty_like(z)
    scale = 1.0 / len(z) if formula.mean else 1.0
    value = compute(z, y, shared, formula.eps, scale, gradient)
    loss: Tensor = _ComputedLoss.apply(logits, target, value, gradient, (shared, formula.eps, scale))
    return loss, value, largest


class _ComputedLoss(torch.autograd.Function):
    """A loss whose gradient is known already; only a second derivative needs further computation."""

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
        if torch.is_grad_enabled():  # for a second derivative
            (z, y), (shared, eps, scale) = ctx.batch, ctx.terms
            if _version(z) != ctx.version:
                raise RuntimeError(
                    "the logits were modified by an inplace operation, so there is no second derivative"
                )
            weights = grad.new_full(z.shape[:1], scale)
            gradient = cross_entropy_gradient(z, y, None, torch.from_numpy(shared), eps, weights)
        return gradient * grad, None, None, None, None


def _version(z: Tensor) -> int | None:
    """Return how often a tensor was changed in place; ``None`` for inference tensors, which have no count."""
    return None if z.is_inference() else z._version  # noqa: SLF001 (documented under this name)


@cache
def _compiled_loops(dtype: torch.dtype, is_soft: bool) -> list[Callable[..., Any]] | None:
    """Return the loops for logits of a dtype, compiled (one second) or from the cache on disk."""
    try:
        import numba  # noqa: PLC0415 (optional and slow to import)
    except ImportError:
        return None
    # Each loop is called once, so that errors of the compiler are raised before any label is counted.
    z = torch.zeros(1, 2, dtype=dtype).numpy()
    y = np.full_like(z, 0.5) if is_soft else np.zeros(1, np.int64)
    shared, counts = np.zeros(2, z.dtype), np.zeros(2, np.float64 if is_soft else np.int64)
    for options in ({"cache": True}, {}):
        compile_with: Any = partial(numba.njit, nogil=True, error_model="numpy", **options)
        try:
            compiled = [compile_with()(loop) for loop in (_check, _count, _compute)]
            check, count, compute = compiled
            check(z, y, -100)
            count(y, counts, 1.0, shared)
            compute(z, y, shared, 1e-5, 1.0, np.empty_like(z))
        except (RuntimeError, OSError, EOFError, pickle.UnpicklingError):
            continue  # the cache folder is read-only, full or damaged: compile without it
        # With NUMBA_DISABLE_JIT numba returns the Python functions, which would be slow.
        return None if compiled[0] is _check else cast("list[Callable[..., Any]]", compiled)
    return None


# Explicit loops, because array expressions take four times as long to compile. `y` is (n,) class codes or
# (n, K) soft targets; numba compiles only the branches of its number of dimensions.


def _check(z: Any, y: Any, ignore_index: int) -> tuple[bool, float]:
    """Return whether shapes and values are the common case, and the largest finite |logit|."""
    n, k = z.shape
    if n == 0 or n != len(y) or k < 2:
        return False, 0.0
    low = high = z[0, 0]
    for i in range(n):
        if y.ndim == 2:
            total = 0.0
            for j in range(k):
                total += y[i, j]
            if not abs(total - 1.0) <= SOFT_LABEL_TOLERANCE:  # a row without a label, of NaN, too
                return False, 0.0
        elif not 0 <= y[i] < k or y[i] == ignore_index:
            return False, 0.0
        for j in range(k):
            if not z[i, j] < math.inf:  # comparisons with NaN are false; −inf (a masked class) is legal
                return False, 0.0
            low = min(low, z[i, j])
            high = max(high, z[i, j])
    return True, max(high, -low) if low > -math.inf else abs(high)


def _count(y: Any, counts: Any, alpha: float, shared: Any) -> None:
    """Add the labels to the counts and write −α·π̃ into ``shared``."""
    for i in range(len(y)):
        if y.ndim == 2:
            for j in range(len(counts)):
                counts[j] += y[i, j]
        else:
            counts[y[i]] += 1
    total = 0.0
    for j in range(len(counts)):
        total += counts[j]
    for j in range(len(counts)):
        shared[j] = -alpha * (counts[j] / total)


def _compute(z: Any, y: Any, shared: Any, eps: float, scale: float, gradient: Any) -> float:
    """Return the loss and write its gradient, by the formulas of `reference` with sums in float64."""
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
        slope_sum = 0.0
        for j in range(k):
            p[j] /= total
            if y.ndim == 2:
                c[j] = shared[j] + y[i, j]
            else:
                c[j] = shared[j] + (j == y[i])
            if eps > 0:
                loss -= c[j] * math.log(p[j] + clip)
                c[j] *= p[j] / (p[j] + clip)
            elif c[j] != 0:  # the loss of a masked class, −inf logits, is infinite
                loss -= c[j] * (z[i, j] - top - log_total)
            slope_sum += c[j]
        for j in range(k):
            p[j] = scale * (slope_sum * p[j] - c[j])
    value: float = z.dtype.type(scale * loss)
    return value
