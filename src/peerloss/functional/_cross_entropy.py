"""Cross entropy against a label and against a prior at once, in the time and memory of cross entropy.

Expected peer loss needs ``own_n · L[n, y_n] + Σ_k shared_k · L[n, k]``. For L = −log(p + eps) this file
computes it without ever storing L: the forward pass keeps nothing but its inputs, the backward pass writes
the gradient once, block of rows by block of rows so that each block stays in the cache. For eps = 0 the
gradient is (Σ shared + own)·p − own·1[y] − shared, DESIGN's closed form with shared = −α·π̃.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

#: Elements in a block on the CPU: 4 MB of float32, measured best between L2 and L3 sizes.
BLOCK = 1 << 20
#: Up to this many classes, elementwise exp beats ATen's softmax kernel on the CPU (measured: 2× at 10).
FEW_CLASSES = 64
#: Below this many elements the bookkeeping of blocks costs more than it saves.
SMALL = 1 << 16


def cross_entropy_rows(z: Tensor, y: Tensor, own: Tensor | None, shared: Tensor, eps: float) -> Tensor:
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
    """
    if torch.compiler.is_compiling() or z.numel() < SMALL:
        return _plain_rows(z, y, own, shared, eps)
    rows: Tensor = _CrossEntropyRows.apply(z, y, own, shared, eps)
    return rows


def _plain_rows(z: Tensor, y: Tensor, own: Tensor | None, shared: Tensor, eps: float) -> Tensor:
    """Say the formula in differentiable operations: for compilers, small batches, second derivatives."""
    own = torch.ones(y.shape, dtype=z.dtype, device=z.device) if own is None else own
    factors = shared.expand(z.shape).scatter_add(1, y[:, None], own[:, None])
    logs = torch.log_softmax(z, dim=1) if eps == 0 else torch.log(torch.softmax(z, dim=1) + eps)
    return -(factors * logs).sum(dim=1)


class _CrossEntropyRows(torch.autograd.Function):
    @staticmethod
    def forward(z: Tensor, y: Tensor, own: Tensor | None, shared: Tensor, eps: float) -> Tensor:
        return torch.cat(
            [_block_rows(z[i], y[i], None if own is None else own[i], shared, eps) for i in _blocks(z)]
        )

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ARG004 (autograd's signature)
        z, y, own, shared, eps = inputs
        ctx.save_for_backward(z, y, own, shared)
        ctx.eps = eps

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None, None]:
        z, y, own, shared = ctx.saved_tensors
        if torch.is_grad_enabled():  # a second derivative is wanted
            with torch.enable_grad():
                rows = _plain_rows(z, y, own, shared, ctx.eps)
                (twice,) = torch.autograd.grad(rows, z, grad, create_graph=True)
            return twice, None, None, None, None
        out = torch.empty_like(z)
        label_grad = grad if own is None else grad * own
        for i in _blocks(z):
            _block_gradient(out[i], z[i], y[i], grad[i], label_grad[i], shared, ctx.eps)
        return out, None, None, None, None


def _blocks(z: Tensor) -> list[slice]:
    """Return the blocks of rows; a GPU takes everything at once."""
    n, k = z.shape
    size = max(1, BLOCK // k) if z.device.type == "cpu" else max(1, n)
    return [slice(start, start + size) for start in range(0, n, size)]


def _block_rows(z: Tensor, y: Tensor, own: Tensor | None, shared: Tensor, eps: float) -> Tensor:
    if z.shape[1] <= FEW_CLASSES:
        logs = z - torch.logsumexp(z, dim=1, keepdim=True)
    else:
        logs = torch.log_softmax(z, dim=1)
    if eps:
        logs.exp_().add_(eps).log_()
    label = logs.gather(1, y[:, None]).squeeze(1)
    return (label if own is None else own * label).add_(logs @ shared).neg_()


def _block_gradient(
    out: Tensor, z: Tensor, y: Tensor, grad: Tensor, label_grad: Tensor, shared: Tensor, eps: float
) -> None:
    """Write d(rows)/dz · grad into ``out``: with r = p/(p + eps), dL_k/dz = r_k·p − r_k·1[k]."""
    if z.shape[1] <= FEW_CLASSES:
        torch.sub(z, torch.logsumexp(z, dim=1, keepdim=True), out=out).exp_()
    else:
        torch.softmax(z, dim=1, out=out)
    if eps == 0:
        out.mul_((label_grad + grad * shared.sum())[:, None]).addr_(grad, shared, alpha=-1)
        out.scatter_add_(1, y[:, None], -label_grad[:, None])
        return
    ratio = torch.div(out, out + eps)
    label_ratio = ratio.gather(1, y[:, None]) * label_grad[:, None]
    ratio.mul_(shared)
    out.mul_(ratio.sum(dim=1, keepdim=True) * grad[:, None] + label_ratio)
    out.addcmul_(ratio, grad[:, None], value=-1).scatter_add_(1, y[:, None], -label_ratio)
