"""Peer cross entropy of a linear layer in chunks of rows: the logits of all rows are never stored.

For each chunk one product gives the logits, one pass over them gives the losses and the gradient of the
logits (`triton_gpu` in place, else `blocked`), and two products add the chunk to the gradients of the layer.
A sum of losses needs nothing else: the backward pass multiplies these gradients by a number. For losses of
single rows the backward pass computes the logits again.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 (torch's own convention)

from peerloss.functional.base import is_tracing, values_are_checkable
from peerloss.functional.batch import check_logits, split_ignored, without_autocast
from peerloss.functional.kernels import triton_gpu
from peerloss.functional.kernels.blocked import loss_and_gradient
from peerloss.functional.kernels.reference import cross_entropy_rows

if TYPE_CHECKING:
    from collections.abc import Callable

#: Bounds of the default number of rows in a chunk: products of fewer rows use the hardware badly.
MIN_CHUNK, MAX_CHUNK = 256, 4096
_HALF = (torch.float16, torch.bfloat16)


class Layer(NamedTuple):
    """The inputs and parameters of a linear layer, whose outputs are logits."""

    hidden: Tensor
    """(n, d)"""
    weight: Tensor
    """(K, d)"""
    bias: Tensor | None
    """(K,)"""


class Terms(NamedTuple):
    """What the loss of each row needs besides its logits, and how it is computed."""

    y: Tensor
    """(n,) int64, where ignored entries hold ``ignore_index``"""
    shared: Tensor | None
    """(K,), the coefficients −α·π̃, or ``None`` if α = 0"""
    labelled: Tensor | None
    """Number of labels that are not ignored. If it is given, the kernel divides by it."""
    ignore_index: int
    eps: float
    dtype: torch.dtype
    """of the products"""
    chunk: int
    """number of rows"""


class Computed(NamedTuple):
    """Losses of all rows, and gradients of their weighted sum."""

    rows: Tensor
    """(n,), 0 for ignored rows"""
    gradients: tuple[Tensor | None, Tensor | None, Tensor | None]
    """of the three parts of the layer, ``None`` if not asked for"""
    largest: float | None
    """Largest finite |logit|, or ``None`` if the values were not read"""


def default_chunk(layer: Layer) -> int:
    """Return the number of rows in a chunk: d, rounded up to a power of two.

    Then, from d = 128 on, the logits of a chunk take at most twice the memory of the weight. Every chunk is
    added to the gradient of the weight, so many small chunks cost time.
    """
    d = layer.weight.shape[1]
    return min(max(1 << (d - 1).bit_length(), MIN_CHUNK), MAX_CHUNK)


def has_kernel(layer: Layer, dtype: torch.dtype) -> bool:
    """Whether the Triton kernel computes the losses of logits of this dtype."""
    return not is_tracing() and triton_gpu.has_kernels(layer.hidden.device, dtype)


def linear_loss(layer: Layer, terms: Terms, *, total: bool) -> tuple[Tensor, float | None]:
    """Return the losses of the rows (n,), or their sum if ``total``, and the largest finite |logit| if known.

    Gradients flow into the three parts of the layer.
    """
    wants = [torch.is_grad_enabled() and part is not None and part.requires_grad for part in layer]
    with torch.no_grad(), without_autocast(layer.hidden):
        computed = run_chunks(layer, terms, None, wants if total else [False] * 3)
    loss: Tensor = _LinearLoss.apply(*layer, *terms[:3], terms, wants, computed, total)
    return loss, computed.largest


class _LinearLoss(torch.autograd.Function):
    """Losses that have been computed. Tensors are arguments of their own so that autograd guards them."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, y: Tensor, shared: Tensor | None,
        labelled: Tensor | None, terms: Terms, wants: list[bool], computed: Computed, total: bool,
    ) -> Tensor:  # fmt: skip
        ctx.save_for_backward(hidden, weight, bias, y, shared, labelled, *computed.gradients)
        ctx.settings, ctx.wants, ctx.total = terms[3:], wants, total
        return computed.rows.sum() if total else computed.rows

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors
        layer, terms, gradients = Layer(*saved[:3]), Terms(*saved[3:6], *ctx.settings), saved[6:]
        nothing = (None,) * 7
        if torch.is_grad_enabled():  # for a second derivative
            return *_differentiable_gradients(layer, terms, ctx.wants, grad, total=ctx.total), *nothing
        # A scalar would be rounded to the dtype of the gradients first; a tensor of one dimension is not.
        factor = grad.view(1) if ctx.total else None
        if not ctx.total:
            with without_autocast(layer.hidden):  # the backward pass may run inside an autocast region
                gradients = run_chunks(layer, terms, grad.contiguous(), ctx.wants).gradients
        return *(_multiply(*pair, factor) for pair in zip(gradients, layer, strict=True)), *nothing


def run_chunks(layer: Layer, terms: Terms, factors: Tensor | None, wants: list[bool]) -> Computed:
    """Return the losses of all rows, and the gradients of Σ_n factor_n·loss_n that are wanted."""
    hidden, wide = layer.hidden, torch.promote_types(terms.dtype, torch.float32)
    n = hidden.shape[0]
    compute: Callable[..., tuple[Tensor | None, float | None]] = _chunk_in_kernel
    if not has_kernel(layer, terms.dtype):
        compute = _chunk_in_torch
        y, valid = split_ignored(terms.y, layer.weight.shape[0], terms.ignore_index)
        terms = terms._replace(y=y)
        if valid is not None:
            factors = valid.to(wide) if factors is None else factors.masked_fill(~valid, 0.0)
    sums = _GradientSums(layer, terms, wants)
    rows = hidden.new_empty(n, dtype=wide)
    largest = 0.0 if values_are_checkable(hidden) else None
    weight = layer.weight.to(terms.dtype)
    bias = None if layer.bias is None else layer.bias.to(terms.dtype)
    for start in range(0, n, terms.chunk):
        part = slice(start, min(start + terms.chunk, n))
        h = hidden[part].to(terms.dtype)
        here = terms._replace(y=terms.y[part])
        part_factors = None if factors is None else factors[part]
        gradient, top = compute(
            F.linear(h, weight, bias), here, part_factors, rows[part], start, wants_gradient=any(wants)
        )
        if largest is not None:
            largest = max(largest, top or 0.0)
        if gradient is not None:
            sums.add(part, gradient, h, weight)
        del gradient  # before the next chunk is allocated
    return Computed(rows, sums.gradients(), largest)


def _chunk_in_kernel(
    z: Tensor, terms: Terms, factors: Tensor | None, rows: Tensor, _: int, *, wants_gradient: bool
) -> tuple[Tensor | None, None]:
    """Do what :func:`_chunk_in_torch` does in one Triton kernel, which does not read the largest |logit|."""
    triton_gpu.rows_in_place(
        triton_gpu.kernels_for(z.dtype), z, terms.y, rows, shared=terms.shared, labelled=terms.labelled,
        factors=factors, eps=terms.eps, ignore_index=terms.ignore_index, writes_gradient=wants_gradient,
    )  # fmt: skip
    return z if wants_gradient else None, None


def _chunk_in_torch(
    z: Tensor, terms: Terms, factors: Tensor | None, rows: Tensor, first_row: int, *, wants_gradient: bool
) -> tuple[Tensor | None, float | None]:
    """Write the losses of a chunk to ``rows``; return their gradient and the largest |logit|.

    The gradient may overwrite the logits ``z``, which start at ``first_row``. It is multiplied by ``factors``
    if they are given; a row with the factor 0 has the loss 0.
    """
    dtype, largest, masked = z.dtype, None, True
    z = z.float() if dtype in _HALF else z
    if values_are_checkable(z):
        largest, masked = check_logits(
            z, None, name="`hidden` @ `weight`.T (the logits)", first_row=first_row
        )
    shared = z.new_zeros(z.shape[1]) if terms.shared is None else terms.shared
    losses, gradient = loss_and_gradient(z, terms.y, None, shared, terms.eps, masked=masked)
    if factors is not None:
        is_out = factors == 0
        losses = losses.masked_fill(is_out, 0.0)
        gradient = gradient.mul_(factors[:, None]).masked_fill_(is_out[:, None], 0.0)
    rows.copy_(losses)
    return gradient.to(dtype) if wants_gradient else None, largest


class _GradientSums:
    """Sums of the chunks' gradients, in float32 if half precision would round them more than once."""

    def __init__(self, layer: Layer, terms: Terms, wants: list[bool]) -> None:
        self.layer = layer
        self.wants_hidden, self.wants_weight, self.wants_bias = wants
        # float16 also overflows: the gradients are not yet divided by the number of rows.
        is_rounded_once = layer.hidden.shape[0] <= terms.chunk and terms.dtype != torch.float16
        wide = torch.promote_types(terms.dtype, torch.float32)
        self.dtype = terms.dtype if is_rounded_once and layer.weight.dtype == terms.dtype else wide
        shape = layer.hidden.shape
        self.hidden = layer.hidden.new_empty(shape, dtype=terms.dtype) if self.wants_hidden else None
        self.weight: Tensor | None = None
        self.bias: Tensor | None = None

    def add(self, part: slice, gradient: Tensor, h: Tensor, weight: Tensor) -> None:
        """Add a chunk, given the gradient of its logits and its inputs."""
        if self.hidden is not None:
            torch.mm(gradient, weight, out=self.hidden[part])
        if self.wants_weight:
            self.weight = _add_product(self.weight, gradient.T, h, self.dtype)
        if self.wants_bias:
            total = gradient.sum(dim=0, dtype=self.dtype)
            self.bias = total if self.bias is None else self.bias.add_(total)

    def gradients(self) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """Return the sums, 0 if there was no row."""
        _, weight, bias = self.layer
        if self.wants_weight and self.weight is None:
            self.weight = torch.zeros_like(weight)
        if self.wants_bias and self.bias is None and bias is not None:
            self.bias = torch.zeros_like(bias)
        return self.hidden, self.weight, self.bias


def _add_product(total: Tensor | None, a: Tensor, b: Tensor, dtype: torch.dtype) -> Tensor:
    """Return ``total + a @ b`` in a dtype that may be wider than that of a and b; changes ``total``."""
    options: dict[str, Any] = {}
    if a.dtype != dtype:
        if _has_wide_products(a.device, a.dtype):
            options["out_dtype"] = dtype
        else:
            a, b = a.to(dtype), b.to(dtype)
    if total is None:
        return torch.mm(a, b, **options)
    return torch.addmm(total, a, b, **options, out=total)


@cache
def _has_wide_products(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether products of half precision can be added to float32: on CUDA, since torch 2.8."""
    try:
        ones = torch.ones(16, 16, device=device, dtype=dtype)
        total = torch.mm(ones, ones, out_dtype=torch.float32)
        torch.addmm(total, ones, ones, out_dtype=torch.float32, out=total)
        return bool((total == 32.0).all())
    except (TypeError, RuntimeError):  # an older torch, or a device that has no such products
        return False


def _multiply(gradient: Tensor | None, part: Tensor | None, factor: Tensor | None) -> Tensor | None:
    """Return the gradient times a number (1 if ``None``) in the dtype of a part of the layer, in one pass."""
    if gradient is None or part is None:
        return None
    if factor is None:
        return gradient.to(part.dtype)
    return torch.mul(gradient, factor, out=torch.empty_like(gradient, dtype=part.dtype))


def _differentiable_gradients(
    layer: Layer, terms: Terms, wants: list[bool], grad: Tensor, *, total: bool
) -> list[Tensor | None]:
    """Return the gradients of the layer in torch operations, which store the logits of all rows."""
    hidden, weight, bias = layer
    with torch.enable_grad(), without_autocast(hidden):
        dtype, wide = terms.dtype, torch.promote_types(terms.dtype, torch.float32)
        z = F.linear(hidden.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype)).to(wide)
        shared = z.new_zeros(z.shape[1]) if terms.shared is None else terms.shared
        y, valid = split_ignored(terms.y, weight.shape[0], terms.ignore_index)
        rows = cross_entropy_rows(z, y, None, shared, terms.eps)
        rows = rows if valid is None else rows.masked_fill(~valid, 0.0)
        rows = rows if terms.labelled is None else rows / terms.labelled.clamp(min=1)
        inputs = [part for part, wanted in zip(layer, wants, strict=True) if wanted and part is not None]
        found = iter(torch.autograd.grad(rows.sum() if total else rows, inputs, grad, create_graph=True))
    return [next(found) if wanted else None for wanted in wants]
