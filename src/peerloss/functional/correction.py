"""Loss corrections that need the noise: backward (Natarajan's surrogate) and forward."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from peerloss._deprecation import renamed_parameters
from peerloss.functional.base import DEFAULT_EPS, as_base, check_eps, check_vector, values_are_checkable
from peerloss.functional.batch import Batch, fit_to_batch, make_batch, reduce_rows, without_autocast
from peerloss.functional.kernels.reference import rows_of_labels, weighted_sum
from peerloss.noise import NoiseModel, as_noise_model

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from peerloss.functional.base import Base, LossMatrix


@renamed_parameters(transition="noise")
def backward_loss(
    logits: Tensor,
    target: Tensor,
    noise: NoiseModel | ArrayLike,
    *,
    base: str | LossMatrix = "cross_entropy",
    eps: float = DEFAULT_EPS,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """Return the backward-corrected loss ``Σ_k (T⁻¹)[ỹ_n, k] · L[n, k]``.

    Its expectation over the noise is the loss against the clean label. For two classes it is the unbiased
    surrogate of Natarajan et al. that the paper compares with. It is linear in the label, so for a soft
    target q the coefficients are ``(q T⁻¹)[n, k]``.

    Parameters
    ----------
    noise
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
    inverse = torch.tensor(as_noise_model(noise, "noise").inverse())
    record, eps = as_base(base), check_eps(eps)
    weight = None if weight is None else check_vector(weight, "weight")
    return batch_backward_loss(batch, inverse, record, eps, weight, reduction)


def batch_backward_loss(
    batch: Batch, inverse: Tensor, base: Base, eps: float, weight: Tensor | None, reduction: str
) -> Tensor:
    """Compute :func:`backward_loss` from a checked batch and T⁻¹ (shared with the module)."""
    with without_autocast(batch.logits):
        coefficients = rows_of_labels(fit_to_batch(inverse, "noise", batch), batch)
        if weight is not None:
            weight = fit_to_batch(weight, "weight", batch)
            coefficients = coefficients * weight
        rows = weighted_sum(coefficients, base.columns(batch.logits, eps), batch)
        return reduce_rows(rows, batch, weight, reduction)


@renamed_parameters(transition="noise")
def forward_loss(
    logits: Tensor,
    target: Tensor,
    noise: NoiseModel | ArrayLike,
    *,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """Return the forward-corrected cross entropy ``−log (p T)[ỹ_n]``.

    The predicted clean probabilities p give the probabilities p·T of the noisy label, so the minimiser
    predicts clean probabilities. T need not be invertible. For a soft target q the loss is
    ``−Σ_k q[n, k] log (p T)[k]``: q are probabilities of the *noisy* label, such as shares of votes. If q are
    probabilities of the clean label, use :func:`plain_loss`; ``−log Σ_k q[n, k] (p T)[k]``, the likelihood of
    a set of possible labels, is another loss.

    Parameters
    ----------
    noise
        T, as a :class:`~peerloss.NoiseModel` or a matrix.
    logits, target, weight, ignore_index, reduction
        As in :func:`~peerloss.functional.peer_loss`.

    Examples
    --------
    >>> forward_loss(torch.tensor([50.0]), torch.tensor([1]), [[0.8, 0.2], [0.5, 0.5]])
    tensor(0.6931)
    """
    batch = make_batch(logits, target, ignore_index=ignore_index)
    log_transition = torch.tensor(as_noise_model(noise, "noise").transition).log()
    weight = None if weight is None else check_vector(weight, "weight")
    return batch_forward_loss(batch, log_transition, weight, reduction)


def batch_forward_loss(batch: Batch, log_transition: Tensor, weight: Tensor | None, reduction: str) -> Tensor:
    """Compute :func:`forward_loss` from a checked batch and log T (shared with the module)."""
    with without_autocast(batch.logits):
        log_transition = fit_to_batch(log_transition, "noise", batch)
        weight = None if weight is None else fit_to_batch(weight, "weight", batch)
        z, y = batch.logits, batch.target
        if batch.is_soft:
            coefficients = y if weight is None else y * weight
            rows = (coefficients * forward_columns(z, log_transition, coefficients != 0)).sum(dim=1)
        else:
            rows = forward_rows(z, log_transition.T[y])
            rows = rows if weight is None else rows * weight[y]
        return reduce_rows(rows, batch, weight, reduction)


def forward_rows(z: Tensor, log_likelihood: Tensor) -> Tensor:
    """Return −log Σ_k p_k T[k, ỹ_n] of rows ``z`` (…, n, K), from log T[k, ỹ_n] of the same shape."""
    return -torch.logsumexp(torch.log_softmax(z, dim=-1) + log_likelihood, dim=-1)


def forward_columns(z: Tensor, log_transition: Tensor, needed: Tensor) -> Tensor:
    """Return −log (p T)[k] of every noisy label k, (n, K); entries that are not ``needed`` are finite.

    The sums are one matrix product. Where a needed one would underflow, because T has zeros, it is computed
    in logarithms. If the values cannot be read, this is done for all entries and takes memory for n·K²
    numbers.
    """
    noisy = torch.softmax(z, dim=1) @ log_transition.exp()
    floor = torch.finfo(z.dtype).tiny ** 0.8  # far above the numbers that lose digits
    columns = -noisy.clamp(min=floor).log()
    rare = needed & (noisy <= floor)
    if values_are_checkable(z):
        rows, labels = rare.nonzero(as_tuple=True)
        return columns.index_put((rows, labels), forward_rows(z[rows], log_transition.T[labels]))
    # A sum without a positive term has no gradient, so the other entries get terms of 1.
    log_likelihood = log_transition.T.masked_fill(~rare[:, :, None], 0.0)
    return torch.where(rare, forward_rows(z[:, None], log_likelihood), columns)
