"""The kernels of `triton_gpu`: the formulas of `reference` in Triton.

``z``, ``y``, ``shared``, ``eps`` and ``p`` are those of `reference`; there are ``n`` rows and ``k`` classes.
``has_peers`` is false if α = 0: then ``shared`` is not read. Arguments that are tensors arrive as pointers.
"""

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

#: Whether there are approximate logarithms and quotients: not in Triton's interpreter, not on AMD devices.
HAS_FAST_MATH = tl.constexpr(torch.cuda.is_available() and torch.version.hip is None)
LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def exp2(x):
    """Return 2^x, approximately if that is faster."""
    if HAS_FAST_MATH:
        return libdevice.exp2(x)
    else:  # noqa: RET505 (Triton compiles one of the two)
        return tl.exp2(x)


@triton.jit
def log(x):
    """Return log x, approximately if that is faster."""
    if HAS_FAST_MATH:
        return libdevice.fast_logf(x)
    else:  # noqa: RET505 (as above)
        return tl.log(x)


@triton.jit
def divide(x, y):
    """Return x / y, approximately if that is faster."""
    if HAS_FAST_MATH:
        return libdevice.fast_dividef(x, y)
    else:  # noqa: RET505 (as above)
        return x / y


@triton.jit  # type: ignore[untyped-decorator]
def weighted_logs(coefficient, log_p, p, eps, has_clip: tl.constexpr):
    """Return c·log(p + eps) and its derivative with respect to log p, for a coefficient c."""
    if has_clip:
        logs = coefficient * log(p + eps)
        slopes = coefficient * divide(p, p + eps)
    else:
        # A masked class (log p = -inf) is left out.
        logs = tl.where(coefficient == 0.0, 0.0, coefficient * log_p)
        slopes = coefficient
    return logs, slopes


@triton.jit
def probability(logits, shift, log2_sum):
    """Return softmax(z) from log₂ Σ_k exp(z_k − shift)."""
    return exp2((logits - shift) * LOG2_E - log2_sum)


@triton.jit  # type: ignore[untyped-decorator]
def small_batch(
    z, y, counts, prior, labelled, loss, gradient, n, k, alpha, eps, ignore_index, is_counting: tl.constexpr,
    has_clip: tl.constexpr, is_mean: tl.constexpr, rows_at_once: tl.constexpr, padded_k: tl.constexpr,
) -> None:  # fmt: skip
    """Compute loss and gradient of a small batch in one program, ``rows_at_once`` rows at a time.

    If labels are counted, the ``prior`` is written, otherwise it is read. The number of labels that are not
    ignored is written to ``labelled``. Triton needs a power of two as the number of columns, ``padded_k``.
    """
    columns = tl.arange(0, padded_k)
    is_class = columns < k
    n_labelled = 0.0
    class_counts = tl.zeros((padded_k,), tl.int64)
    for start in range(0, n, rows_at_once):
        row = start + tl.arange(0, rows_at_once)
        label = tl.load(y + row, mask=row < n, other=ignore_index)
        is_used = label != ignore_index
        n_labelled += tl.sum(is_used.to(tl.float32), axis=0)
        if is_counting:
            is_label = (label[:, None] == columns[None, :]) & is_used[:, None] & is_class[None, :]
            class_counts += tl.sum(is_label.to(tl.int64), axis=0)
    tl.store(labelled, n_labelled)
    if is_counting:
        class_counts += tl.load(counts + columns, mask=is_class, other=0)
        tl.debug_barrier()  # every thread has read the counts before one of them writes
        tl.store(counts + columns, class_counts, mask=is_class)
        prior_row = class_counts.to(tl.float32) / tl.maximum(tl.sum(class_counts, axis=0), 1).to(tl.float32)
        tl.store(prior + columns, prior_row, mask=is_class)
    else:
        prior_row = tl.load(prior + columns, mask=is_class, other=0.0).to(tl.float32)
    scale = 1.0
    if is_mean:
        scale = 1.0 / tl.maximum(n_labelled, 1.0)
    total = 0.0
    for start in range(0, n, rows_at_once):
        row = start + tl.arange(0, rows_at_once)
        label = tl.load(y + row, mask=row < n, other=ignore_index)
        is_entry = (row < n)[:, None] & is_class[None, :]
        offsets = row.to(tl.int64)[:, None] * k + columns[None, :]
        shifted = tl.load(z + offsets, mask=is_entry, other=-float("inf")).to(tl.float32)
        shifted = tl.where((row < n)[:, None], shifted, 0.0)
        shifted -= tl.max(shifted, axis=1)[:, None]
        log_p = tl.where(is_entry, shifted - tl.log(tl.sum(tl.exp(shifted), axis=1))[:, None], 0.0)
        coefficient = (columns[None, :] == label[:, None]).to(tl.float32) - alpha * prior_row[None, :]
        logs, slopes = weighted_logs(
            tl.where(is_entry, coefficient, 0.0), log_p, tl.exp(log_p), eps, has_clip
        )
        is_used = label != ignore_index
        is_invalid = is_used & ((label < 0) | (label >= k))
        row_loss = tl.where(is_invalid, float("nan"), -tl.sum(logs, axis=1))
        total += tl.sum(tl.where(is_used, row_loss, 0.0), axis=0)
        row_gradient = scale * (tl.sum(slopes, axis=1)[:, None] * tl.exp(log_p) - slopes)
        row_gradient = tl.where(
            is_invalid[:, None], float("nan"), tl.where(is_used[:, None], row_gradient, 0.0)
        )
        tl.store(gradient + offsets, row_gradient.to(gradient.dtype.element_ty), mask=is_entry)
    tl.store(loss, scale * total)


@triton.jit  # type: ignore[untyped-decorator]
def count(
    y, counts, labelled, n, k, ignore_index, is_counting: tl.constexpr, labels_per_program: tl.constexpr
) -> None:
    """Add the number of labels that are not ignored to ``labelled``, and those of each class to ``counts``.

    ``counts`` changes only if ``is_counting``.
    """
    rows = tl.program_id(0) * labels_per_program + tl.arange(0, labels_per_program)
    label = tl.load(y + rows, mask=rows < n, other=ignore_index)
    tl.atomic_add(labelled, tl.sum((label != ignore_index).to(tl.float32)))
    if is_counting:
        is_counted = (label != ignore_index) & (label >= 0) & (label < k)
        tl.atomic_add(counts + label, 1, mask=is_counted)


@triton.jit
def load_logits(z, columns, k):
    """Return some columns of one row in float32; −inf from column k on."""
    return tl.load(z + columns, mask=columns < k, other=-float("inf")).to(tl.float32)


@triton.jit
def finite_or_zero(x):
    """Return x, or 0 if it is −inf."""
    return tl.where(x == -float("inf"), 0.0, x)


@triton.jit
def load_shared(shared, columns, k):
    """Return some of the coefficients ``shared``; 0 from column k on."""
    return tl.load(shared + columns, mask=columns < k, other=0.0)


@triton.jit  # type: ignore[untyped-decorator]
def first_pass(z, shared, shift, k, has_sums: tl.constexpr, columns_at_once: tl.constexpr):
    """Return the largest logit of one row, Σ_k exp(z_k − shift), Σ_k shared_k·(z_k − shift) and Σ_k shared_k.

    The last two are 0 unless ``has_sums``.
    """
    largest = tl.full((columns_at_once,), -float("inf"), tl.float32)
    exp_sums = tl.zeros((columns_at_once,), tl.float32)
    log_sums = tl.zeros((columns_at_once,), tl.float32)
    slope_sums = tl.zeros((columns_at_once,), tl.float32)
    for start in range(0, k, columns_at_once):
        columns = start + tl.arange(0, columns_at_once)
        logits = load_logits(z, columns, k)
        largest = tl.maximum(largest, logits)
        exp_sums += exp2((logits - shift) * LOG2_E)
        if has_sums:
            logs, slopes = weighted_logs(
                load_shared(shared, columns, k), tl.where(columns < k, logits - shift, 0.0), 0.0, 0.0, False
            )
            log_sums += logs
            slope_sums += slopes
    return (
        tl.max(largest, axis=0),
        tl.sum(exp_sums, axis=0),
        tl.sum(log_sums, axis=0),
        tl.sum(slope_sums, axis=0),
    )


@triton.jit  # type: ignore[untyped-decorator]
def row_sums(
    z, label, shared, k, eps, has_peers: tl.constexpr, has_clip: tl.constexpr, columns_at_once: tl.constexpr
):
    """Return of one row the loss, a logit (``shift``), log₂ Σ_k exp(z_k − shift), and Σ_k c_k r_k.

    The row is read once, and once more for the peer term if it is clipped. Sums are kept per column of a
    block, so that threads wait for each other only after the last block. The term of the label is added
    separately, because comparing each column with the label takes longer. A label that does not exist makes
    the loss and Σ_k c_k r_k NaN.
    """
    lanes = tl.arange(0, columns_at_once)
    is_class = (label >= 0) & (label < k)
    own = tl.load(z + label, mask=is_class, other=0.0).to(tl.float32)
    # The largest logit of the first block: no sum underflows, and hardly any overflows.
    shift = finite_or_zero(tl.max(load_logits(z, lanes, k), axis=0))
    has_sums: tl.constexpr = has_peers and not has_clip
    largest, exp_sum, logs, slopes = first_pass(z, shared, shift, k, has_sums, columns_at_once)
    if (exp_sum == float("inf")) | (exp_sum == 0.0):
        shift = finite_or_zero(largest)
        largest, exp_sum, logs, slopes = first_pass(z, shared, shift, k, has_sums, columns_at_once)
    log_sum = tl.log(exp_sum)
    log2_sum = log_sum * LOG2_E
    if has_peers and has_clip:
        log_sums = tl.zeros((columns_at_once,), tl.float32)
        slope_sums = tl.zeros((columns_at_once,), tl.float32)
        # From the last columns on, which are still in the cache.
        for start in range(0, k, columns_at_once):
            columns = (tl.cdiv(k, columns_at_once) - 1) * columns_at_once - start + lanes
            p = probability(load_logits(z, columns, k), shift, log2_sum)
            more_logs, more_slopes = weighted_logs(load_shared(shared, columns, k), p, p, eps, has_clip)
            log_sums += more_logs
            slope_sums += more_slopes
        logs, slopes = tl.sum(log_sums, axis=0), tl.sum(slope_sums, axis=0)
    else:
        logs -= slopes * log_sum
    own_log_p = (own - shift) - log_sum
    own_log, own_slope = weighted_logs(1.0, own_log_p, tl.exp(own_log_p), eps, has_clip)
    loss = tl.where(is_class, -(own_log + logs), float("nan"))
    return loss, shift, log2_sum, tl.where(is_class, own_slope + slopes, float("nan"))


@triton.jit  # type: ignore[untyped-decorator]
def store_gradients(
    z, gradient, columns, shared, k, eps, scale, shift, log2_sum, slope_sum,
    has_peers: tl.constexpr, has_clip: tl.constexpr,
) -> None:  # fmt: skip
    """Write the gradient of some columns of one row times ``scale``, as if none of them were the label."""
    p = probability(load_logits(z, columns, k), shift, log2_sum)
    entries = slope_sum * p
    if has_peers:
        _, slopes = weighted_logs(load_shared(shared, columns, k), p, p, eps, has_clip)
        entries -= slopes
    tl.store(gradient + columns, (scale * entries).to(gradient.dtype.element_ty), mask=columns < k)


@triton.jit  # type: ignore[untyped-decorator]
def store_label_gradient(
    gradient, own, label, shared, eps, scale, shift, log2_sum, slope_sum,
    has_peers: tl.constexpr, has_clip: tl.constexpr,
) -> None:  # fmt: skip
    """Overwrite the gradient of the label, whose logit is ``own``, after the other columns were written."""
    p = probability(own, shift, log2_sum)
    c = 1.0
    if has_peers:
        c += tl.load(shared + label)
    _, slope = weighted_logs(c, p, p, eps, has_clip)
    tl.debug_barrier()  # another thread may have written the entry of the label
    tl.store(gradient + label, (scale * (slope_sum * p - slope)).to(gradient.dtype.element_ty))


@triton.jit  # type: ignore[untyped-decorator]
def row_losses(
    z, y, shared, labelled, losses, statistics, k, eps, ignore_index,
    has_peers: tl.constexpr, has_clip: tl.constexpr, is_mean: tl.constexpr, columns_at_once: tl.constexpr,
) -> None:  # fmt: skip
    """Write the loss of one row, and into ``statistics`` (n, 3) what its gradient needs."""
    row = tl.program_id(0).to(tl.int64)
    label = tl.load(y + row)
    if label == ignore_index:
        tl.store(losses + row, 0.0)
    else:
        loss, shift, log2_sum, slope_sum = row_sums(
            z + row * k, label, shared, k, eps, has_peers, has_clip, columns_at_once
        )
        if is_mean:
            loss /= tl.maximum(tl.load(labelled), 1.0)
        tl.store(losses + row, loss)
        tl.store(statistics + 3 * row, shift)
        tl.store(statistics + 3 * row + 1, log2_sum)
        tl.store(statistics + 3 * row + 2, slope_sum)


@triton.jit  # type: ignore[untyped-decorator]
def row_gradients(
    z, y, shared, labelled, statistics, upstream, gradient, k, eps, ignore_index,
    has_peers: tl.constexpr, has_clip: tl.constexpr, is_mean: tl.constexpr, columns_at_once: tl.constexpr,
) -> None:  # fmt: skip
    """Write the gradient of some columns of one row, times the gradient ``upstream`` of the loss."""
    row = tl.program_id(0).to(tl.int64)
    start = tl.program_id(1) * columns_at_once
    columns = start + tl.arange(0, columns_at_once)
    z += row * k
    gradient += row * k
    label = tl.load(y + row)
    if label == ignore_index:
        entries = tl.zeros((columns_at_once,), gradient.dtype.element_ty)
        tl.store(gradient + columns, entries, mask=columns < k)
    else:
        shift = tl.load(statistics + 3 * row)
        log2_sum = tl.load(statistics + 3 * row + 1)
        slope_sum = tl.load(statistics + 3 * row + 2)
        scale = tl.load(upstream).to(tl.float32)
        if is_mean:
            scale /= tl.maximum(tl.load(labelled), 1.0)
        store_gradients(
            z, gradient, columns, shared, k, eps, scale, shift, log2_sum, slope_sum, has_peers, has_clip
        )
        if (label >= start) & (label < tl.minimum(start + columns_at_once, k)):
            own = tl.load(z + label).to(tl.float32)
            store_label_gradient(
                gradient, own, label, shared, eps, scale, shift, log2_sum, slope_sum, has_peers, has_clip
            )


@triton.jit  # type: ignore[untyped-decorator]
def rows_in_place(
    z, y, shared, labelled, factors, losses, k, eps, ignore_index,
    has_peers: tl.constexpr, has_clip: tl.constexpr, is_mean: tl.constexpr, has_factors: tl.constexpr,
    writes_gradient: tl.constexpr, columns_at_once: tl.constexpr,
) -> None:  # fmt: skip
    """Write the loss of one row. If ``writes_gradient``, replace its logits by their gradient.

    If ``is_mean``, both are divided by ``labelled``, the number of labels that are not ignored. If
    ``has_factors``, the gradient is multiplied by the row's factor; a row with the factor 0 has the loss 0.
    """
    row = tl.program_id(0).to(tl.int64)
    z += row * k
    label = tl.load(y + row)
    is_used = label != ignore_index
    mean_scale = 1.0
    if is_mean:
        mean_scale = 1.0 / tl.maximum(tl.load(labelled), 1.0)
    scale = mean_scale
    if has_factors:
        factor = tl.load(factors + row).to(tl.float32)
        is_used = is_used & (factor != 0.0)
        scale = mean_scale * factor
    lanes = tl.arange(0, columns_at_once)
    if is_used:
        loss, shift, log2_sum, slope_sum = row_sums(
            z, label, shared, k, eps, has_peers, has_clip, columns_at_once
        )
        tl.store(losses + row, mean_scale * loss)
        if writes_gradient:
            is_class = (label >= 0) & (label < k)
            own = tl.load(z + label, mask=is_class, other=0.0).to(tl.float32)
            tl.debug_barrier()  # every thread has read the label's logit before one of them overwrites it
            for start in range(0, k, columns_at_once):
                store_gradients(
                    z,
                    z,
                    start + lanes,
                    shared,
                    k,
                    eps,
                    scale,
                    shift,
                    log2_sum,
                    slope_sum,
                    has_peers,
                    has_clip,
                )
            if is_class:
                store_label_gradient(
                    z, own, label, shared, eps, scale, shift, log2_sum, slope_sum, has_peers, has_clip
                )
    else:
        tl.store(losses + row, 0.0)
        if writes_gradient:
            for start in range(0, k, columns_at_once):
                entries = tl.zeros((columns_at_once,), z.dtype.element_ty)
                tl.store(z + start + lanes, entries, mask=start + lanes < k)
