"""Loss corrections that need the noise: backward (Natarajan's surrogate) and forward."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from peerloss.functional._batch import (
    Batch,
    check_vector,
    fit_to_batch,
    make_batch,
    reduce_rows,
    weighted_sum,
    without_autocast,
)
from peerloss.functional.base import DEFAULT_EPS, check_base, check_eps, loss_columns
from peerloss.noise import NoiseModel, as_noise_model

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from peerloss.functional.base import LossMatrix


def backward_loss(
    logits: Tensor,
    target: Tensor,
    transition: NoiseModel | ArrayLike,
    *,
    base: str | LossMatrix = "cross_entropy",
    eps: float = DEFAULT_EPS,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """Return the backward-corrected loss ``Σ_k (T⁻¹)[ỹ_n, k] · L[n, k]``.

    Its expectation over the noise is the loss against the clean label. For two classes it is the unbiased
    surrogate of Natarajan et al. that the paper compares with.

    Parameters
    ----------
    transition
        T, as a :class:`~peerloss.NoiseModel` or a matrix.
    logits, target, base, eps, weight, ignore_index, reduction
        As in :func:`~peerloss.functional.peer_loss`.

    Raises
    ------
    NotIdentifiableError
        If T cannot be inverted.

    Examples
    --------
    >>> backward_loss(torch.tensor([2.0]), torch.tensor([1]), [[0.8, 0.2], [0.4, 0.6]], base="zero_one")
    tensor(-1.)
    """
    batch = make_batch(logits, target, ignore_index=ignore_index)
    with without_autocast(batch.logits):
        return batch_backward_loss(
            batch,
            torch.tensor(as_noise_model(transition, "transition").inverse()),
            base=check_base(base),
            eps=check_eps(eps),
            weight=None if weight is None else check_vector(weight, "weight"),
            reduction=reduction,
        )


def batch_backward_loss(
    batch: Batch,
    inverse: Tensor,
    *,
    base: str | LossMatrix,
    eps: float,
    weight: Tensor | None,
    reduction: str,
) -> Tensor:
    """Compute :func:`backward_loss` on a batch in form with T⁻¹ at hand (shared with the module)."""
    inverse = fit_to_batch(inverse, "transition", batch)
    coefficients = inverse[batch.target]
    if weight is not None:
        weight = fit_to_batch(weight, "weight", batch)
        coefficients = coefficients * weight
    rows = weighted_sum(coefficients, loss_columns(batch.logits, base, eps), batch)
    return reduce_rows(rows, batch, weight=weight, reduction=reduction)


def forward_loss(
    logits: Tensor,
    target: Tensor,
    transition: NoiseModel | ArrayLike,
    *,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """Return the forward-corrected cross entropy ``−log (p T)[ỹ_n]``.

    Predicted clean probabilities are pushed through the noise before they meet the noisy label, so the
    minimiser predicts clean probabilities. T need not be invertible.

    Parameters
    ----------
    transition
        T, as a :class:`~peerloss.NoiseModel` or a matrix.
    logits, target, weight, ignore_index, reduction
        As in :func:`~peerloss.functional.peer_loss`.

    Examples
    --------
    >>> forward_loss(torch.tensor([50.0]), torch.tensor([1]), [[0.8, 0.2], [0.5, 0.5]])
    tensor(0.6931)
    """
    batch = make_batch(logits, target, ignore_index=ignore_index)
    with without_autocast(batch.logits):
        return batch_forward_loss(
            batch,
            torch.tensor(as_noise_model(transition, "transition").transition).log(),
            weight=None if weight is None else check_vector(weight, "weight"),
            reduction=reduction,
        )


def batch_forward_loss(
    batch: Batch, log_transition: Tensor, *, weight: Tensor | None, reduction: str
) -> Tensor:
    """Compute :func:`forward_loss` on a batch in form with log T at hand (shared with the module)."""
    log_transition = fit_to_batch(log_transition, "transition", batch)
    log_p = torch.log_softmax(batch.logits, dim=1)
    rows = -torch.logsumexp(log_p + log_transition.T[batch.target], dim=1)
    if weight is not None:
        weight = fit_to_batch(weight, "weight", batch)
        rows = rows * weight[batch.target]
    return reduce_rows(rows, batch, weight=weight, reduction=reduction)
