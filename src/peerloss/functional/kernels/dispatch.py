"""Choose how a peer loss is computed. Both twins call :func:`compute_peer_loss`.

`triton_gpu` (on a GPU) and `numba_cpu` (small batches) handle the common case only: cross entropy, expected
peers, no class weights, no score matrix, a mean or a sum. Only `numba_cpu` handles soft targets. They decline
all other cases before anything has changed. Those are computed by `blocked` (large batches of cross entropy)
or `reference`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from peerloss._validation import check_choice
from peerloss.functional.base import is_tracing, needs_operations
from peerloss.functional.batch import (
    REDUCTIONS,
    Batch,
    fit_prior_to_batch,
    fit_to_batch,
    flatten_positions,
    has_positions,
    make_batch,
    mean_divisor,
    reduce_rows,
    without_autocast,
)
from peerloss.functional.kernels import numba_cpu, reference, triton_gpu
from peerloss.functional.kernels.blocked import blocked_rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from peerloss.functional.base import Base

#: Below this many logits plain torch operations cost less than a custom autograd function.
MIN_BLOCKED_LOGITS = 1 << 12


class PeerSettings(NamedTuple):
    """The checked settings of a peer loss; `functional.peer_loss` documents each."""

    base: Base
    alpha: float | Tensor
    peers: str
    score_matrix: Tensor | None
    eps: float
    weight: Tensor | None
    ignore_index: int
    reduction: str
    generator: torch.Generator | None

    def has_fast_path(self) -> bool:
        """Whether numba and Triton can compute a loss with these settings."""
        return (
            self.base.log_loss
            and self.peers == "expected"
            and self.weight is None
            and self.score_matrix is None
            and self.reduction in ("mean", "sum")
            and type(self.alpha) is float
            and type(self.ignore_index) is int
            and abs(self.ignore_index) < 2**63
        )


class PeerResult(NamedTuple):
    """A loss, and what was computed along with it."""

    loss: Tensor
    batch: Batch
    """The batch. If a fast path computed the loss, logits and targets are those that were passed: ignored
    targets are still marked by ``ignore_index``, and on a GPU the logits may be bfloat16."""
    value: float | None = None
    """The loss as a number; known only if numba computed it."""
    label_counts: Tensor | None = None
    """The counts to which a fast path has added the labels of the batch."""


def compute_peer_loss(
    logits: Tensor,
    target: Tensor,
    settings: PeerSettings,
    noisy_prior: Tensor | None,
    label_counts: Tensor | None,
    *,
    prior_of: Callable[[Batch], Tensor] = Batch.counted_prior,
    prepare: Callable[[Tensor, Tensor], Batch] | None = None,
) -> PeerResult:
    """Compute a peer loss by the fastest path that handles it. Logits and targets are checked here.

    Parameters
    ----------
    noisy_prior
        π̃ (K,), or (L, 2) for L binary labels. If it is ``None``, a fast path takes the prior from the
        counts, and torch operations call ``prior_of(batch)``.
    label_counts
        Counts (K,) to which a fast path may add the labels of this batch, or (0,) before the first label.
        ``None`` if it must not: then only a given ``noisy_prior`` has a fast path.
    prepare
        A function that replaces :func:`~peerloss.functional.batch.make_batch`. If it is given, no fast path
        is used.
    """
    if prepare is None:
        if settings.has_fast_path():
            rows = logits, target
            if isinstance(logits, Tensor) and logits.ndim > 2 and has_positions(logits, target):
                rows = flatten_positions(logits, target)  # the same for a mean or a sum
            result = _try_fast_path(*rows, settings, noisy_prior, label_counts)
            if result is not None:
                return result
        batch = make_batch(logits, target, ignore_index=settings.ignore_index, binary_labels=True)
    else:
        batch = prepare(logits, target)
    with without_autocast(batch.logits):
        return PeerResult(_compute_in_torch(batch, settings, noisy_prior, prior_of), batch)


def _try_fast_path(
    logits: Tensor, target: Tensor, settings: PeerSettings, noisy_prior: Tensor | None, counts: Tensor | None
) -> PeerResult | None:
    """Compute the common case with Triton or numba; ``None``, with unchanged counts, if neither can."""
    has_common_form = (
        type(logits) is type(target) is Tensor
        and logits.ndim == 2
        and _has_common_targets(logits, target)
        and logits.is_contiguous()
        and target.is_contiguous()
        and not is_tracing()
        and not needs_operations(logits)
    )
    if not has_common_form or (noisy_prior is None and counts is None):
        return None
    path = triton_gpu if logits.is_cuda else numba_cpu
    if not path.accepts(logits, target):
        return None
    if noisy_prior is not None:
        counts = None
    elif counts is not None and counts.shape[0] == 0:
        counted = torch.int64 if target.ndim == 1 else torch.float64
        counts = torch.zeros(logits.shape[1], dtype=counted, device=logits.device)
    clip, mean = settings.base.clip(settings.eps), settings.reduction == "mean"
    formula = reference.Formula(float(settings.alpha), clip, settings.ignore_index, mean)
    computed = path.fast_peer_loss(logits, target, formula, noisy_prior, counts)
    if computed is None:
        return None
    loss, value, largest = computed
    return PeerResult(loss, Batch(logits, target, None, largest), value, counts)


def _has_common_targets(logits: Tensor, target: Tensor) -> bool:
    """Whether targets are class codes, or soft targets that need no gradient of their own."""
    if target.ndim == 1:
        return target.dtype == torch.int64
    is_soft = target.shape == logits.shape and target.dtype == logits.dtype
    return is_soft and not (target.requires_grad or needs_operations(target))


def _compute_in_torch(
    batch: Batch, settings: PeerSettings, noisy_prior: Tensor | None, prior_of: Callable[[Batch], Tensor]
) -> Tensor:
    """Compute any peer loss in torch operations."""
    base, alpha, peers, score_matrix, eps, weight, _, reduction, generator = settings
    check_choice(reduction, "reduction", REDUCTIONS)
    if weight is not None:
        weight = fit_to_batch(weight, "weight", batch)
    if score_matrix is not None:
        score_matrix = fit_to_batch(score_matrix, "score_matrix", batch)
        score_matrix = score_matrix if weight is None else weight[:, None] * score_matrix
    if peers == "sampled":
        losses, drawn = base.columns(batch.logits, eps), reference.draw_peers(batch, generator=generator)
        rows = reference.sampled_rows(losses, alpha, drawn, weight, score_matrix, batch)
        return reduce_rows(rows, batch, weight, reduction)
    prior = fit_prior_to_batch(prior_of(batch) if noisy_prior is None else noisy_prior, batch)
    shared = reference.shared_coefficients(alpha, prior, weight, score_matrix)
    if batch.n_labels is not None:
        shared = shared.repeat(len(batch.target) // batch.n_labels, 1)
    if base.log_loss and score_matrix is None:
        return cross_entropy(batch, shared, base.clip(eps), weight, reduction)
    rows = reference.expected_rows(base.columns(batch.logits, eps), shared, weight, score_matrix, batch)
    return reduce_rows(rows, batch, weight, reduction)


def cross_entropy(batch: Batch, shared: Tensor, clip: float, weight: Tensor | None, reduction: str) -> Tensor:
    """Compute expected peer cross entropy; a large batch that needs a gradient goes through `blocked`.

    ``shared`` are the coefficients of the peer term; the other arguments are checked settings.
    """
    z, y = batch.logits, batch.target
    own, masked = None, batch.may_be_masked
    if weight is not None:
        y, own = (y * weight, None) if batch.is_soft else (y, weight[y])
    is_compiling = torch.compiler.is_compiling()
    is_small = z.numel() < MIN_BLOCKED_LOGITS and not is_compiling
    if is_small and reduction != "none" and batch.valid is None:
        total = reference.cross_entropy_sum(z, y, own, shared, clip, masked=masked)
        return total if reduction == "sum" else total / mean_divisor(batch, weight)
    # Gradients of `blocked` flow into the logits only.
    others = (y if batch.is_soft else None, own, shared)
    differentiates_others = any(x is not None and (x.requires_grad or needs_operations(x)) for x in others)
    in_torch = is_compiling or is_small or not z.requires_grad or needs_operations(z) or differentiates_others
    compute = reference.cross_entropy_rows if in_torch else blocked_rows
    rows = compute(z, y, own, shared, clip, masked=masked)
    return reduce_rows(rows, batch, weight, reduction)
