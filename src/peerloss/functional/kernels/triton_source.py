"""The kernels of `triton_gpu`: the formulas of `reference` in Triton."""

import triton
import triton.language as tl


@triton.jit  # type: ignore[untyped-decorator]
def weighted_logs(c, log_p, eps, clipped: tl.constexpr):
    """Return c·log(p + eps) and its derivative by log p."""
    if clipped:
        p = tl.exp(log_p)
        logs = c * tl.log(p + eps)
        slopes = c * p / (p + eps)
    else:
        logs = tl.where(c == 0.0, 0.0, c * log_p)  # a masked class (log p = -inf) is left out
        slopes = c
    return logs, slopes


@triton.jit  # type: ignore[untyped-decorator]
def small_batch(
    z, y, counts, prior, labelled, loss, gradient, n, k, alpha, eps, ignored, counting: tl.constexpr,
    clipped: tl.constexpr, mean: tl.constexpr, rows: tl.constexpr, wide: tl.constexpr,
) -> None:  # fmt: skip
    """Compute loss and gradient of a small batch in one program, ``rows`` rows at a time.

    If labels are counted the ``prior`` is written, otherwise it is read. The number of labels that are not
    ignored is written to ``labelled``.
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
        tl.debug_barrier()  # every thread has read the counts before one of them writes
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
        x -= tl.max(x, axis=1)[:, None]
        log_p = tl.where(inside, x - tl.log(tl.sum(tl.exp(x), axis=1))[:, None], 0.0)
        c = (columns[None, :] == label[:, None]).to(tl.float32) - alpha * share[None, :]
        logs, slopes = weighted_logs(tl.where(inside, c, 0.0), log_p, eps, clipped)
        used = label != ignored
        wrong = used & ((label < 0) | (label >= k))
        lost = tl.where(wrong, float("nan"), -tl.sum(logs, axis=1))
        total += tl.sum(tl.where(used, lost, 0.0), axis=0)
        slope = scale * (tl.sum(slopes, axis=1)[:, None] * tl.exp(log_p) - slopes)
        slope = tl.where(wrong[:, None], float("nan"), tl.where(used[:, None], slope, 0.0))
        tl.store(gradient + at, slope.to(gradient.dtype.element_ty), mask=inside)
    tl.store(loss, scale * total)


@triton.jit  # type: ignore[untyped-decorator]
def count(y, counts, labelled, n, k, ignored, counting: tl.constexpr, size: tl.constexpr) -> None:
    """Add how many labels are not ignored to ``labelled`` and, if ``counting``, the labels to ``counts``."""
    rows = tl.program_id(0) * size + tl.arange(0, size)
    label = tl.load(y + rows, mask=rows < n, other=ignored)
    tl.atomic_add(labelled, tl.sum((label != ignored).to(tl.float32)))
    if counting:
        known = (label != ignored) & (label >= 0) & (label < k)
        tl.atomic_add(counts + label, 1, mask=known)


@triton.jit  # type: ignore[untyped-decorator]
def one_row(
    z, y, prior, labelled, rows, gradient, k, alpha, eps, ignored,
    clipped: tl.constexpr, mean: tl.constexpr, size: tl.constexpr,
) -> None:  # fmt: skip
    """Write loss and gradient of one row, ``size`` columns at a time.

    There are three passes over the row: its log-sum-exp; the loss and the sum Σ_k c_k r_k; the gradient.
    After the first pass the row comes from the cache.
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
    log_above = tl.log(above)
    loss = 0.0
    pull = 0.0
    for start in range(0, k, size):
        columns = start + tl.arange(0, size)
        x = tl.load(z + columns, mask=columns < k, other=-float("inf")).to(tl.float32)
        c = -alpha * tl.load(prior + columns, mask=columns < k, other=0.0).to(tl.float32)
        c = tl.where(columns < k, c + (columns == label).to(tl.float32), 0.0)
        log_p = tl.where(columns < k, (x - largest) - log_above, 0.0)
        logs, slopes = weighted_logs(c, log_p, eps, clipped)
        loss -= tl.sum(logs, axis=0)
        pull += tl.sum(slopes, axis=0)
    wrong = (label != ignored) & ((label < 0) | (label >= k))
    loss = tl.where(label == ignored, 0.0, tl.where(wrong, float("nan"), scale * loss))
    tl.store(rows + row, loss)
    for start in range(0, k, size):
        columns = start + tl.arange(0, size)
        x = tl.load(z + columns, mask=columns < k, other=-float("inf")).to(tl.float32)
        c = -alpha * tl.load(prior + columns, mask=columns < k, other=0.0).to(tl.float32)
        log_p = tl.where(columns < k, (x - largest) - log_above, 0.0)
        _, slopes = weighted_logs(c + (columns == label).to(tl.float32), log_p, eps, clipped)
        slope = scale * (pull * tl.exp(log_p) - slopes)
        slope = tl.where(wrong, float("nan"), tl.where(label == ignored, 0.0, slope))
        tl.store(gradient + columns, slope.to(gradient.dtype.element_ty), mask=columns < k)
