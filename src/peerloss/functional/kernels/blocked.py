"""Peer cross entropy in one pass over blocks of rows, in the time and memory of plain cross entropy.

The formulas are those of `reference`, but the loss matrix is never stored. Each block of rows fits the cache.
Its losses and its gradient are computed together, and the backward pass only scales the gradient.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from peerloss.functional.kernels.reference import combine_columns, cross_entropy_gradient

#: Elements in a block on the CPU: 4 MB of float32, measured best between the sizes of L2 and L3.
BLOCK = 1 << 20
#: The same for soft targets, which need more intermediate tensors: measured best at a quarter.
SOFT_BLOCK = 1 << 18
#: Up to this many classes, elementwise exp beats ATen's softmax kernel on the CPU (measured: 2× at 10).
FEW_CLASSES = 64


def blocked_rows(
    z: Tensor, y: Tensor, own: Tensor | None, shared: Tensor, eps: float, *, masked: bool = True
) -> Tensor:
    """Return ``reference.cross_entropy_rows``, shape (n,). Gradients flow into ``z`` only."""
    rows: Tensor
    if z.is_cuda and eps == 0:
        rows = _UnclippedRows.apply(z, y, own, shared)
    else:
        rows = _BlockedRows.apply(z, y, own, shared, eps, masked)
    return rows


def loss_and_gradient(
    z: Tensor, y: Tensor, own: Tensor | None, shared: Tensor, eps: float, *, masked: bool
) -> tuple[Tensor, Tensor]:
    """Return ``reference.cross_entropy_rows``, shape (n,), and the gradient of each row, shape (n, K)."""
    n, k = z.shape
    block = BLOCK if y.ndim == 1 else SOFT_BLOCK
    size = max(1, block // k) if z.device.type == "cpu" else n  # a GPU needs no blocks
    gradient = torch.empty_like(z)
    # Without a clip, the loss of a masked class is infinite, which only the general function leaves out.
    has_two_classes = k == 2 and (eps > 0 or not masked)
    rows = []
    for start in range(0, n, size):
        i = slice(start, start + size)
        weights = None if own is None else own[i]
        coefficients = shared if shared.ndim == 1 else shared[i]
        if has_two_classes:
            c = _two_class_coefficients(y[i], weights, coefficients, z.dtype)
            rows.append(_two_class_block(z[i], *c, eps, gradient[i]))
        elif y.ndim == 2:
            rows.append(_soft_block(z[i], y[i] + coefficients, eps, masked, gradient[i]))
        else:
            weights = None if weights is None else weights[:, None]
            rows.append(_block(z[i], y[i, None], weights, coefficients, eps, masked, gradient[i]))
    return rows[0] if len(rows) == 1 else torch.cat(rows), gradient


class _UnclippedRows(torch.autograd.Function):
    """The rows without a clip on a GPU, in the passes over memory of cross entropy and one more."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, y: Tensor, own: Tensor | None, shared: Tensor) -> Tensor:
        logs = torch.log_softmax(z, dim=1)
        ctx.save_for_backward(logs, z, y, own, shared)
        if y.ndim == 2:
            c = y + shared
            return -(c * logs.masked_fill(c == 0, 0.0)).sum(dim=1)
        label = logs.gather(1, y[:, None]).squeeze(1)
        finite = logs.masked_fill(shared == 0, 0.0)
        return -(label if own is None else own * label) - combine_columns(finite, shared)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        logs, z, y, own, shared = ctx.saved_tensors
        if torch.is_grad_enabled():  # for a second derivative
            return cross_entropy_gradient(z, y, own, shared, 0.0, grad), None, None, None
        if y.ndim == 2:
            to_logs = (y + shared).mul_(-grad[:, None])
        else:
            column = grad if own is None else grad * own
            to_logs = grad[:, None] * -shared
            to_logs.scatter_add_(1, y[:, None], -column[:, None])
        gradient = torch.ops.aten._log_softmax_backward_data(to_logs, logs, 1, z.dtype)  # noqa: SLF001
        return gradient, None, None, None


class _BlockedRows(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, z: Tensor, y: Tensor, own: Tensor | None, shared: Tensor, eps: float, masked: bool
    ) -> Tensor:
        rows, gradient = loss_and_gradient(z, y, own, shared, eps, masked=masked)
        ctx.save_for_backward(gradient, z, y, own, shared)
        ctx.eps = eps
        return rows

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        gradient, z, y, own, shared = ctx.saved_tensors
        if torch.is_grad_enabled():  # for a second derivative
            return cross_entropy_gradient(z, y, own, shared, ctx.eps, grad), None, None, None, None, None
        return gradient * grad[:, None], None, None, None, None, None


def _two_class_coefficients(
    y: Tensor, own: Tensor | None, shared: Tensor, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Return the coefficients of the losses of class 0 and class 1, (n,) each."""
    if y.ndim == 2:
        return y[:, 0] + shared[..., 0], y[:, 1] + shared[..., 1]
    is_one = y.to(dtype)
    c_one = shared[..., 1] + (is_one if own is None else own * is_one)
    c_zero = shared[..., 0] + (1.0 - is_one if own is None else own * (1.0 - is_one))
    return c_zero, c_one


def _two_class_block(z: Tensor, c_zero: Tensor, c_one: Tensor, eps: float, out: Tensor) -> Tensor:
    """Return what :func:`_block` returns, for two classes: losses are functions of the log-odds alone."""
    log_odds = z[:, 1] - z[:, 0]
    one, zero = torch.sigmoid(log_odds), torch.sigmoid(-log_odds)
    if eps == 0:
        log_one = torch.nn.functional.logsigmoid(log_odds)
        rows = -c_one * log_one - c_zero * (log_one - log_odds)  # log p₀ = log p₁ − log-odds
        slope = c_zero * one - c_one * zero
    else:
        clipped_one, clipped_zero = one + eps, zero + eps
        rows = -(c_one * clipped_one.log() + c_zero * clipped_zero.log())
        slope = one * zero * (c_zero / clipped_zero - c_one / clipped_one)
    out[:, 1] = slope
    torch.neg(slope, out=out[:, 0])
    return rows


def _softmax_into(z: Tensor, out: Tensor) -> Tensor | None:
    """Write softmax(z) into ``out``; return the largest logit of each row, (n, 1), if it was computed."""
    if z.shape[1] > FEW_CLASSES:
        torch.softmax(z, dim=1, out=out)
        return None
    largest = z.amax(dim=1, keepdim=True)
    torch.sub(z, largest, out=out).exp_()
    out.div_(out.sum(dim=1, keepdim=True))
    return largest


def _log_sum(z: Tensor, p: Tensor, largest: Tensor | None) -> Tensor:
    """Return log Σ exp z of each row, (n, 1), from p = softmax(z): from the most probable class."""
    largest = z.amax(dim=1, keepdim=True) if largest is None else largest
    return largest - p.amax(dim=1, keepdim=True).log_()


def _soft_block(z: Tensor, c: Tensor, eps: float, masked: bool, out: Tensor) -> Tensor:
    """Return what :func:`_block` returns, for coefficients ``c`` (n, K) of all classes; overwrites ``c``."""
    largest = _softmax_into(z, out)
    if eps == 0:
        total = c.sum(dim=1, keepdim=True)
        log_sum = _log_sum(z, out, largest)
        out.mul_(total).sub_(c)
        finite = z.masked_fill(c == 0, 0.0) if masked else z
        return (total * log_sum).squeeze(1) - c.mul_(finite).sum(dim=1)
    clipped = out + eps
    ratio = torch.div(out, clipped).mul_(c)
    rows = clipped.log_().mul_(c).sum(dim=1).neg_()
    out.mul_(ratio.sum(dim=1, keepdim=True)).sub_(ratio)
    return rows


def _block(
    z: Tensor, y: Tensor, own: Tensor | None, shared: Tensor, eps: float, masked: bool, out: Tensor
) -> Tensor:
    """Return the losses of one block and write their gradient into ``out``; y and own have shape (n, 1)."""
    largest = _softmax_into(z, out)
    p_label = out.gather(1, y)
    if eps == 0:
        total = shared.sum(dim=-1, keepdim=True) + (1.0 if own is None else own)
        log_sum = _log_sum(z, out, largest)
        label = z.gather(1, y)
        finite = z.masked_fill(shared == 0, 0.0) if masked else z
        own_label = label if own is None else own * label
        rows = total * log_sum - own_label - combine_columns(finite, shared)[:, None]
        out.mul_(total).sub_(shared)
        out.scatter_add_(1, y, torch.full_like(label, -1.0) if own is None else -own)
        return rows.squeeze(1)
    clipped = out + eps
    ratio = torch.div(out, clipped).mul_(shared)
    label = (p_label + eps).log_()
    own_ratio = p_label.div_(p_label + eps)
    if own is not None:
        label, own_ratio = own * label, own * own_ratio
    rows = label.squeeze(1).add_(combine_columns(clipped.log_(), shared)).neg_()
    out.mul_(ratio.sum(dim=1, keepdim=True).add_(own_ratio)).sub_(ratio)
    out.scatter_add_(1, y, own_ratio.neg_())
    return rows
