"""The kernels of ``_fused``. Importing this file needs Triton, which takes no other annotations."""

import triton
import triton.language as tl


@triton.jit  # type: ignore[untyped-decorator]
def at_once(
    z,
    y,
    counts,
    prior,
    labelled,
    loss,
    gradient,
    n,
    k,
    alpha,
    eps,
    ignored,
    counting: tl.constexpr,
    clipped: tl.constexpr,
    mean: tl.constexpr,
    rows: tl.constexpr,
    wide: tl.constexpr,
) -> None:
    """Do everything for a small batch in one program, ``rows`` rows at a time.

    Where labels are counted the ``prior`` is written, elsewhere read. ``labelled`` gets the number of labels
    that are not ignored.
    """
    columns = tl.arange(0, wide)
    exists = columns < k
    many = 0.0
    seen = tl.zeros((wide,), tl.int64)
    for start in range(0, n, rows):
        row = start + tl.arange(0, rows)
        label = tl.load(y + row, mask=row < n, other=ignored)
        used = label != ignored
        many += tl.sum(used.to(tl.float32), axis=0)
        if counting:
            hit = (label[:, None] == columns[None, :]) & used[:, None] & exists[None, :]
            seen += tl.sum(hit.to(tl.int64), axis=0)
    tl.store(labelled, many)
    if counting:
        seen += tl.load(counts + columns, mask=exists, other=0)
        tl.store(counts + columns, seen, mask=exists)
        share = seen.to(tl.float32) / tl.maximum(tl.sum(seen, axis=0), 1).to(tl.float32)
        tl.store(prior + columns, share, mask=exists)
    else:
        share = tl.load(prior + columns, mask=exists, other=0.0).to(tl.float32)
    scale = 1.0
    if mean:
        scale = 1.0 / tl.maximum(many, 1.0)
    total = 0.0
    for start in range(0, n, rows):
        row = start + tl.arange(0, rows)
        label = tl.load(y + row, mask=row < n, other=ignored)
        inside = (row < n)[:, None] & exists[None, :]
        at = row.to(tl.int64)[:, None] * k + columns[None, :]
        x = tl.load(z + at, mask=inside, other=-float("inf")).to(tl.float32)
        x = tl.where((row < n)[:, None], x, 0.0)
        largest = tl.max(x, axis=1)
        log_sum = largest + tl.log(tl.sum(tl.exp(x - largest[:, None]), axis=1))
        log_p = tl.where(inside, x - log_sum[:, None], 0.0)
        p = tl.exp(log_p)
        c = (columns[None, :] == label[:, None]).to(tl.float32) - alpha * share[None, :]
        if clipped:
            each = c * tl.log(p + eps)
            c = c * p / (p + eps)
        else:
            each = tl.where(c == 0.0, 0.0, c * log_p)
        used = label != ignored
        lost = -tl.sum(tl.where(inside, each, 0.0), axis=1)
        lost = tl.where((label < 0) | (label >= k), float("nan"), lost)
        total += tl.sum(tl.where(used, lost, 0.0), axis=0)
        pull = tl.sum(tl.where(inside, c, 0.0), axis=1)
        slope = tl.where(used[:, None], scale * (pull[:, None] * p - c), 0.0)
        tl.store(gradient + at, slope.to(gradient.dtype.element_ty), mask=inside)
    tl.store(loss, scale * total)


@triton.jit  # type: ignore[untyped-decorator]
def count(
    y,
    counts,
    labelled,
    n,
    k,
    ignored,
    counting: tl.constexpr,
    size: tl.constexpr,
) -> None:
    """Add the labels to ``counts`` where asked, and to ``labelled`` how many are not ignored."""
    rows = tl.program_id(0) * size + tl.arange(0, size)
    label = tl.load(y + rows, mask=rows < n, other=ignored)
    tl.atomic_add(labelled, tl.sum((label != ignored).to(tl.float32)))
    if counting:
        known = (label != ignored) & (label >= 0) & (label < k)
        tl.atomic_add(counts + label, 1, mask=known)


@triton.jit  # type: ignore[untyped-decorator]
def compute(
    z,
    y,
    prior,
    labelled,
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
    scale = 1.0
    if mean:
        scale = 1.0 / tl.maximum(tl.load(labelled), 1.0)
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
    loss *= scale
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
        slope = tl.where(label == ignored, 0.0, scale * (pull * p - c))
        tl.store(gradient + columns, slope.to(gradient.dtype.element_ty), mask=inside)
