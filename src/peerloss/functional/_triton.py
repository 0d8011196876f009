"""The two kernels of ``_fused``. Importing this file needs Triton, which takes no other annotations."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit  # type: ignore[untyped-decorator]
def count(
    y,
    counts,
    divisor,
    n,
    k,
    ignored,
    counting: tl.constexpr,
    size: tl.constexpr,
) -> None:
    """Add the labels to ``counts`` where asked, and to ``divisor`` how many are not ignored."""
    rows = tl.program_id(0) * size + tl.arange(0, size)
    label = tl.load(y + rows, mask=rows < n, other=ignored)
    tl.atomic_add(divisor, tl.sum((label != ignored).to(tl.float32)))
    if counting:
        known = (label != ignored) & (label >= 0) & (label < k)
        tl.atomic_add(counts + label, 1, mask=known)


@triton.jit  # type: ignore[untyped-decorator]
def compute(
    z,
    y,
    prior,
    divisor,
    rows,
    gradient,
    k,
    alpha,
    eps,
    ignored,
    clipped: tl.constexpr,
    mean: tl.constexpr,
    size: tl.constexpr,
) -> None:
    """Write loss and gradient of one row, ``size`` columns at a time.

    Three rounds over the row: its log-sum-exp; the loss and how hard it pulls on the probabilities; the
    gradient. After the first the row comes from the cache.
    """
    row = tl.program_id(0).to(tl.int64)
    z += row * k
    gradient += row * k
    label = tl.load(y + row)
    largest = -float("inf")
    above = 0.0
    for start in range(0, k, size):
        columns = start + tl.arange(0, size)
        x = tl.load(z + columns, mask=columns < k, other=-float("inf")).to(tl.float32)
        top = tl.maximum(largest, tl.max(x, axis=0))
        base = tl.where(top == -float("inf"), 0.0, top)
        above = above * tl.exp(largest - base) + tl.sum(tl.exp(x - base), axis=0)
        largest = top
    log_sum = largest + tl.log(above)
    loss = 0.0
    pull = 0.0
    for start in range(0, k, size):
        columns = start + tl.arange(0, size)
        inside = columns < k
        x = tl.load(z + columns, mask=inside, other=0.0).to(tl.float32)
        c = -alpha * tl.load(prior + columns, mask=inside, other=0.0).to(tl.float32)
        c = tl.where(inside, c + (columns == label).to(tl.float32), 0.0)
        if clipped:
            p = tl.exp(x - log_sum)
            loss -= tl.sum(c * tl.log(p + eps), axis=0)
            pull += tl.sum(c * p / (p + eps), axis=0)
        else:
            loss -= tl.sum(tl.where(c == 0.0, 0.0, c * (x - log_sum)), axis=0)
            pull += tl.sum(c, axis=0)
    labelled = tl.maximum(tl.load(divisor), 1.0)
    if row == 0:  # for the backward pass
        tl.store(divisor, labelled)
    if mean:
        loss /= labelled
    if label == ignored:
        loss = 0.0
    elif (label < 0) | (label >= k):
        loss = float("nan")
    tl.store(rows + row, loss)
    for start in range(0, k, size):
        columns = start + tl.arange(0, size)
        inside = columns < k
        x = tl.load(z + columns, mask=inside, other=0.0).to(tl.float32)
        c = -alpha * tl.load(prior + columns, mask=inside, other=0.0).to(tl.float32)
        c = c + (columns == label).to(tl.float32)
        p = tl.exp(x - log_sum)
        if clipped:
            c = c * p / (p + eps)
        slope = tl.where(label == ignored, 0.0, pull * p - c)
        tl.store(gradient + columns, slope.to(gradient.dtype.element_ty), mask=inside)
