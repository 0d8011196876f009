"""The kernels of `triton_gpu`: the formulas of `reference` in Triton.

``z``, ``y``, ``alpha``, ``eps`` and ``p`` are those of `reference`; there are ``n`` rows and ``k`` classes.
Arguments that are tensors arrive as pointers.
"""

import triton
import triton.language as tl


@triton.jit  # type: ignore[untyped-decorator]
def weighted_logs(coefficient, log_p, eps, has_clip: tl.constexpr):
    """Return c·log(p + eps) and its derivative with respect to log p, for a coefficient c."""
    if has_clip:
        p = tl.exp(log_p)
        logs = coefficient * tl.log(p + eps)
        slopes = coefficient * p / (p + eps)
    else:
        # A masked class (log p = -inf) is left out.
        logs = tl.where(coefficient == 0.0, 0.0, coefficient * log_p)
        slopes = coefficient
    return logs, slopes


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
        logs, slopes = weighted_logs(tl.where(is_entry, coefficient, 0.0), log_p, eps, has_clip)
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


@triton.jit  # type: ignore[untyped-decorator]
def one_row(
    z, y, prior, labelled, losses, gradient, k, alpha, eps, ignore_index,
    has_clip: tl.constexpr, is_mean: tl.constexpr, columns_at_once: tl.constexpr,
) -> None:  # fmt: skip
    """Write loss and gradient of one row, ``columns_at_once`` columns at a time.

    The first pass over the row computes its log-sum-exp, the second the loss and Σ_k c_k r_k (``slope_sum``),
    the third the gradient. After the first pass the row comes from the cache.
    """
    row = tl.program_id(0).to(tl.int64)
    z += row * k
    gradient += row * k
    label = tl.load(y + row)
    scale = 1.0
    if is_mean:
        scale = 1.0 / tl.maximum(tl.load(labelled), 1.0)
    largest = -float("inf")
    exp_sum = 0.0
    for start in range(0, k, columns_at_once):
        columns = start + tl.arange(0, columns_at_once)
        row_logits = tl.load(z + columns, mask=columns < k, other=-float("inf")).to(tl.float32)
        new_largest = tl.maximum(largest, tl.max(row_logits, axis=0))
        shift = tl.where(new_largest == -float("inf"), 0.0, new_largest)
        exp_sum = exp_sum * tl.exp(largest - shift) + tl.sum(tl.exp(row_logits - shift), axis=0)
        largest = new_largest
    log_exp_sum = tl.log(exp_sum)
    loss = 0.0
    slope_sum = 0.0
    for start in range(0, k, columns_at_once):
        columns = start + tl.arange(0, columns_at_once)
        row_logits = tl.load(z + columns, mask=columns < k, other=-float("inf")).to(tl.float32)
        coefficient = -alpha * tl.load(prior + columns, mask=columns < k, other=0.0).to(tl.float32)
        coefficient = tl.where(columns < k, coefficient + (columns == label).to(tl.float32), 0.0)
        log_p = tl.where(columns < k, (row_logits - largest) - log_exp_sum, 0.0)
        logs, slopes = weighted_logs(coefficient, log_p, eps, has_clip)
        loss -= tl.sum(logs, axis=0)
        slope_sum += tl.sum(slopes, axis=0)
    is_invalid = (label != ignore_index) & ((label < 0) | (label >= k))
    loss = tl.where(label == ignore_index, 0.0, tl.where(is_invalid, float("nan"), scale * loss))
    tl.store(losses + row, loss)
    for start in range(0, k, columns_at_once):
        columns = start + tl.arange(0, columns_at_once)
        row_logits = tl.load(z + columns, mask=columns < k, other=-float("inf")).to(tl.float32)
        coefficient = -alpha * tl.load(prior + columns, mask=columns < k, other=0.0).to(tl.float32)
        log_p = tl.where(columns < k, (row_logits - largest) - log_exp_sum, 0.0)
        _, slopes = weighted_logs(coefficient + (columns == label).to(tl.float32), log_p, eps, has_clip)
        entry_gradient = scale * (slope_sum * tl.exp(log_p) - slopes)
        entry_gradient = tl.where(
            is_invalid, float("nan"), tl.where(label == ignore_index, 0.0, entry_gradient)
        )
        tl.store(gradient + columns, entry_gradient.to(gradient.dtype.element_ty), mask=columns < k)
