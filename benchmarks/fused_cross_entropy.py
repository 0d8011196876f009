"""Cross entropy of a linear layer without stored logits, written without peerloss as a reference for speed.

The logits of ``chunk`` rows at a time are replaced by their gradient: by one Triton kernel on a GPU, by torch
operations on the CPU. The mean over all rows; no ignored labels, no bias.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

try:
    import triton
    import triton.language as tl
    from triton.language.extra import libdevice
except ImportError:  # torch for the CPU does not bring Triton
    triton = None


def fused_cross_entropy(hidden: Tensor, weight: Tensor, y: Tensor, *, chunk: int) -> Tensor:
    """Return the mean cross entropy of ``hidden @ weight.T``; gradients are computed in the forward pass."""
    loss: Tensor = _FusedCrossEntropy.apply(hidden, weight, y, chunk)  # type: ignore[no-untyped-call]
    return loss


class _FusedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, y: Tensor, chunk: int) -> Tensor:
        n = len(hidden)
        losses = hidden.new_empty(n, dtype=torch.float32)
        to_hidden, to_weight = torch.empty_like(hidden), None
        for start in range(0, n, chunk):
            part = slice(start, start + chunk)
            z = hidden[part] @ weight.T
            _replace_by_gradient(z, y[part], losses[part], n)
            torch.mm(z, weight, out=to_hidden[part])
            to_weight = z.T @ hidden if n <= chunk else _add(to_weight, z.T, hidden[part])
            del z
        ctx.save_for_backward(to_hidden, to_weight)
        ctx.dtype = weight.dtype
        return losses.sum() / n

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None]:
        to_hidden, to_weight = ctx.saved_tensors
        out = torch.empty_like(to_weight, dtype=ctx.dtype)
        return to_hidden * grad, torch.mul(to_weight, grad, out=out), None, None


def _add(total: Tensor | None, a: Tensor, b: Tensor) -> Tensor:
    """Return ``total + a @ b`` in float32."""
    if not a.is_cuda:
        product = a.float() @ b.float()
        return product if total is None else total.add_(product)
    if total is None:
        return torch.mm(a, b, out_dtype=torch.float32)
    return torch.addmm(total, a, b, out_dtype=torch.float32, out=total)


def _replace_by_gradient(z: Tensor, y: Tensor, losses: Tensor, n: int) -> None:
    """Write the losses, and replace logits by the gradient of the sum of the losses divided by n."""
    if z.is_cuda:
        _kernel[(len(z),)](z, y, losses, z.shape[1], 1.0 / n, columns_at_once=2048, num_warps=4)
        return
    log_p = torch.log_softmax(z.float(), dim=1)
    losses.copy_(-log_p.gather(1, y[:, None]).squeeze(1))
    gradient = log_p.exp_().scatter_add_(1, y[:, None], torch.full_like(log_p[:, :1], -1.0))
    z.copy_(gradient / n)


if triton is not None:

    @triton.jit  # type: ignore[untyped-decorator]
    def _kernel(  # type: ignore[no-untyped-def]  # Triton reads annotations as types of its own
        z, y, losses, k, scale, columns_at_once: tl.constexpr
    ) -> None:
        row = tl.program_id(0).to(tl.int64)
        z += row * k
        label = tl.load(y + row)
        own = tl.load(z + label).to(tl.float32)
        lanes = tl.arange(0, columns_at_once)
        largest = tl.full((columns_at_once,), -3.4e38, tl.float32)
        total = tl.zeros((columns_at_once,), tl.float32)
        for start in range(0, k, columns_at_once):
            columns = start + lanes
            x = (
                tl.load(z + columns, mask=columns < k, other=-float("inf")).to(tl.float32)
                * 1.4426950408889634
            )
            change = libdevice.exp2(-tl.abs(x - largest))  # one exponential for both cases
            total = tl.where(x > largest, total * change + 1.0, total + change)
            largest = tl.maximum(largest, x)
        top = tl.max(largest, axis=0)
        log2_sum = top + tl.log2(tl.sum(total * libdevice.exp2(largest - top), axis=0))
        tl.store(losses + row, 0.6931471805599453 * log2_sum - own)
        for start in range(0, k, columns_at_once):
            columns = start + lanes
            x = tl.load(z + columns, mask=columns < k, other=-float("inf")).to(tl.float32)
            p = libdevice.exp2(x * 1.4426950408889634 - log2_sum)
            tl.store(z + columns, (scale * p).to(z.dtype.element_ty), mask=columns < k)
        tl.debug_barrier()
        p = libdevice.exp2(own * 1.4426950408889634 - log2_sum)
        tl.store(z + label, (scale * (p - 1.0)).to(z.dtype.element_ty))
