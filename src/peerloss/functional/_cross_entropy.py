"""Cross entropy against a label and against a prior at once, in the time and memory of cross entropy.

Expected peer loss needs ``own_n · L[n, y_n] + Σ_k shared_k · L[n, k]``. For L = −log(p + eps) this file
computes it without storing L: one pass over blocks of rows, each small enough for the cache, gives the loss
and writes the gradient; the backward pass only scales it. With r = p/(p + eps) and the row's coefficients
c = own·1[y] + shared, the gradient is (Σ_k c_k r_k)·p − c·r; for eps = 0, where r = 1, peer loss has the
gradient (1 − α)·p − 1[y] + α·π̃.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from peerloss.functional._tracing import needs_operations

#: Elements in a block on the CPU: 4 MB of float32, measured best between the sizes of L2 and L3.
BLOCK = 1 << 20
#: Up to this many classes, elementwise exp beats ATen's softmax kernel on the CPU (measured: 2× at 10).
FEW_CLASSES = 64
#: Below this many elements ordinary operations cost less than a custom one.
SMALL = 1 << 12


def cross_entropy_rows(
    z: Tensor, y: Tensor, own: Tensor | None, shared: Tensor, eps: float, *, masked: bool = True
) -> Tensor:
    """Return ``own_n · L[n, y_n] + Σ_k shared_k · L[n, k]`` for cross entropy, shape (n,).

    Parameters
    ----------
    z, y
        Logits (n, K) and labels (n,).
    own
        Factor of the label's own loss, (n,); ``None`` means 1.
    shared
        Factor of each column, the same for every row, (K,). No gradient flows into it.
    eps
        The clip.
    masked
        Whether logits may be −inf. The infinite loss of such a class is then left out where its factor is 0.
    """
    if torch.compiler.is_compiling() or z.numel() < SMALL or not z.requires_grad or needs_operations(z):
        return _plain_rows(z, y, own, shared, eps, masked=masked)
    rows: Tensor
    if z.is_cuda and eps == 0:
        rows = _UnclippedRows.apply(z, y, own, shared)
    else:
        rows = _CrossEntropyRows.apply(z, y, own, shared, eps, masked)
    return rows


def cross_entropy_sum(
    z: Tensor, y: Tensor, own: Tensor | None, shared: Tensor, eps: float, *, masked: bool = True
) -> Tensor:
    """Return the sum of :func:`cross_entropy_rows`, for small batches as one product."""
    if torch.compiler.is_compiling() or z.numel() >= SMALL:
        return cross_entropy_rows(z, y, own, shared, eps, masked=masked).sum()
    c, logs = _terms(z, y, own, shared, eps, masked=masked)
    return -torch.dot(c.view(-1), logs.view(-1))


def _plain_rows(
    z: Tensor, y: Tensor, own: Tensor | None, shared: Tensor, eps: float, *, masked: bool = True
) -> Tensor:
    """Compute the formula in differentiable operations: for compilers, small batches, second derivatives."""
    c, logs = _terms(z, y, own, shared, eps, masked=masked)
    return -(c * logs).sum(dim=1)


def _terms(
    z: Tensor, y: Tensor, own: Tensor | None, shared: Tensor, eps: float, *, masked: bool
) -> tuple[Tensor, Tensor]:
    """Return the coefficients c and log(p + eps), both (n, K)."""
    column = torch.ones_like(y, dtype=z.dtype) if own is None else own
    c = shared.expand(z.shape).scatter_add(1, y[:, None], column[:, None])
    if eps > 0:
        return c, torch.log(torch.softmax(z, dim=1) + eps)
    logs = torch.log_softmax(z, dim=1)
    return c, logs.masked_fill(c == 0, 0.0) if masked else logs


class _UnclippedRows(torch.autograd.Function):
    """For a GPU, where only passes over memory cost: those of cross entropy and one more."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, y: Tensor, own: Tensor | None, shared: Tensor) -> Tensor:
        logs = torch.log_softmax(z, dim=1)
        label = logs.gather(1, y[:, None]).squeeze(1)
        ctx.save_for_backward(logs, z, y, own, shared)
        return -(label if own is None else own * label) - logs.masked_fill(shared == 0, 0.0) @ shared

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        logs, z, y, own, shared = ctx.saved_tensors
        if torch.is_grad_enabled():  # a second derivative is wanted
            return differentiable_gradient(z, y, own, shared, 0.0, grad), None, None, None
        column = grad if own is None else grad * own
        to_logs = grad[:, None] * -shared
        to_logs.scatter_add_(1, y[:, None], -column[:, None])
        gradient = torch.ops.aten._log_softmax_backward_data(to_logs, logs, 1, z.dtype)  # noqa: SLF001
        return gradient, None, None, None


class _CrossEntropyRows(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, z: Tensor, y: Tensor, own: Tensor | None, shared: Tensor, eps: float, masked: bool
    ) -> Tensor:
        n, k = z.shape
        size = max(1, BLOCK // k) if z.device.type == "cpu" else n  # a GPU takes everything at once
        gradient = torch.empty_like(z)
        starts = range(0, n, size)
        blocks = [slice(start, start + size) for start in starts]
        rows = [
            _block(z[i], y[i, None], None if own is None else own[i, None], shared, eps, masked, gradient[i])
            for i in blocks
        ]
        ctx.save_for_backward(gradient, z, y, own, shared)
        ctx.eps = eps
        return rows[0] if len(rows) == 1 else torch.cat(rows)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        gradient, z, y, own, shared = ctx.saved_tensors
        if torch.is_grad_enabled():  # a second derivative is wanted
            return differentiable_gradient(z, y, own, shared, ctx.eps, grad), None, None, None, None, None
        return gradient * grad[:, None], None, None, None, None, None


def differentiable_gradient(
    z: Tensor, y: Tensor, own: Tensor | None, shared: Tensor, eps: float, grad: Tensor
) -> Tensor:
    """Return the gradient of Σ_n grad_n·rows_n by z, in operations that can be differentiated again."""
    with torch.enable_grad():
        rows = _plain_rows(z, y, own, shared, eps)
        (gradient,) = torch.autograd.grad(rows, z, grad, create_graph=True)
    return gradient


def _block(
    z: Tensor, y: Tensor, own: Tensor | None, shared: Tensor, eps: float, masked: bool, out: Tensor
) -> Tensor:
    """Return the rows of one block and write d(rows)/dz into ``out``; y and own have shape (n, 1)."""
    largest = z.amax(dim=1, keepdim=True)
    if z.shape[1] <= FEW_CLASSES:
        torch.sub(z, largest, out=out).exp_()
        out.div_(out.sum(dim=1, keepdim=True))
    else:
        torch.softmax(z, dim=1, out=out)
    p_label = out.gather(1, y)
    if eps == 0:
        total = shared.sum() + (1.0 if own is None else own)
        log_sum = largest - out.amax(dim=1, keepdim=True).log_()  # log Σ exp z, from the likeliest class
        label = z.gather(1, y)
        finite = z.masked_fill(shared == 0, 0.0) if masked else z
        rows = total * log_sum - (label if own is None else own * label) - (finite @ shared)[:, None]
        out.mul_(total).sub_(shared)
        out.scatter_add_(1, y, torch.full_like(label, -1.0) if own is None else -own)
        return rows.squeeze(1)
    clipped = out + eps
    ratio = torch.div(out, clipped).mul_(shared)
    label = (p_label + eps).log_()
    own_ratio = p_label.div_(p_label + eps)
    if own is not None:
        label, own_ratio = own * label, own * own_ratio
    rows = label.squeeze(1).add_(clipped.log_() @ shared).neg_()
    out.mul_(ratio.sum(dim=1, keepdim=True).add_(own_ratio)).sub_(ratio)
    out.scatter_add_(1, y, own_ratio.neg_())
    return rows
