"""Losses from information theory: f-divergence peers and determinant-based mutual information (DMI).

f-divergence peers measure how far predictions and labels of one row are from those of different rows.
With r_k = p_k / π̃_k, the ratio of the predicted probability of label k to its frequency among peers, the
variational form of an f-divergence between "own label" and "peer's label" is

    E[g(r_ỹ)] − E Σ_k π̃_k f*(g(r_k)),    g = f′ if the divergence is smooth,

which is at most the divergence, for every p. The losses are its negative:

- Jensen–Shannon: g = log(2r/(1 + r)), f*(g) = log((1 + r)/2). It is largest, and equals the divergence,
  if p is the posterior η̃ of the noisy label.
- Total variation: g = f*(g) = ½·(r − 1)/(r + 1), a smooth approximation of ½·sign(r − 1). This is expected
  peer loss (α = 1) with the bounded loss matrix −g. It is *not* largest at the posterior. A maximiser has
  p_k = 0 for every class with η̃_k ≤ π̃_k, so for two classes it is the decision η̃ > π̃ of peer loss at α = 1.
  For equal π̃_k its most probable class is that of the posterior.

Under noise with T[i, j] = e_j for i ≠ j, total variation is (1 − Σe) times its clean value for every p if r
uses one prior for both. If r uses the prior of the given labels, this holds if the noise leaves that prior
unchanged (e_j = π_j·Σe, for example equal rates and equal π_j). Otherwise the ratio depends on p.
In all cases the same classes have η̃_k > π̃_k, hence the decision for two classes stays the same.

(Kullback–Leibler gives g = 1 + log r, f*(g) = r: cross entropy up to a constant.)
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from peerloss._validation import check_choice
from peerloss.functional.base import check_eps, check_prior, values_are_checkable
from peerloss.functional.batch import (
    Batch,
    fit_prior_to_batch,
    make_batch,
    reduce_rows,
    without_autocast,
)
from peerloss.functional.kernels.reference import label_entries, weighted_sum

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

DIVERGENCES = ("total_variation", "jensen_shannon")
#: Replaces the prior 0 of a class without labels, whose ratio has weight 0.
_SMALLEST_PRIOR = 1e-6

#: Added to |det J| of two classes.
DEFAULT_DMI_EPS = 1e-4


def f_divergence_loss(
    logits: Tensor,
    target: Tensor,
    *,
    divergence: str = "total_variation",
    noisy_prior: Tensor | ArrayLike | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """Return the negative variational f-divergence between own and peers' labels.

    Parameters
    ----------
    logits, target, ignore_index, reduction
        As in :func:`~peerloss.functional.peer_loss`.
    divergence
        ``"total_variation"`` (bounded in [−1, 1]; approaches the decisions of peer loss at α = 1) or
        ``"jensen_shannon"`` (approaches the posterior of the noisy label).
    noisy_prior
        π̃ (K,); counted in this batch if not given.

    Returns
    -------
    A scalar, or (n,) with ``reduction="none"``; 0 for a model that always predicts π̃.

    Examples
    --------
    >>> confident = torch.tensor([[0.0, 99.0], [99.0, 0.0]])
    >>> f_divergence_loss(confident, torch.tensor([1, 0]))
    tensor(-0.3333)

    References
    ----------
    Wei and Liu, *When Optimizing f-Divergence is Robust with Label Noise*, ICLR 2021.
    """
    batch = make_batch(logits, target, ignore_index=ignore_index)
    check_choice(divergence, "divergence", DIVERGENCES)
    prior = batch.counted_prior() if noisy_prior is None else check_prior(noisy_prior)
    return batch_divergence_loss(batch, divergence, prior, reduction)


def batch_divergence_loss(batch: Batch, divergence: str, prior: Tensor, reduction: str) -> Tensor:
    """Compute :func:`f_divergence_loss` from checked arguments (shared with the module)."""
    with without_autocast(batch.logits):
        prior = fit_prior_to_batch(prior, batch)
        log_ratio = torch.log_softmax(batch.logits, dim=1) - prior.clamp(min=_SMALLEST_PRIOR).log()
        if divergence == "total_variation":
            own = peers = 0.5 * torch.tanh(0.5 * log_ratio)
        else:
            log_two = torch.log(log_ratio.new_tensor(2.0))
            own = log_two - torch.nn.functional.softplus(-log_ratio)
            peers = torch.nn.functional.softplus(log_ratio) - log_two
        if batch.is_soft:
            rows = peers @ prior - weighted_sum(batch.target, own, batch)
        else:
            rows = peers @ prior - label_entries(own, batch.target)
        return reduce_rows(rows, batch, None, reduction)


def dmi_loss(
    logits: Tensor, target: Tensor, *, eps: float = DEFAULT_DMI_EPS, ignore_index: int = -100
) -> Tensor:
    """Return ``−log(|det J| + eps_K)`` with J[i, j] = mean of 1[ỹ = i]·p_j, the batch's joint matrix.

    Noise multiplies det J by det T, so class-conditional noise changes the loss only by a constant (Xu et
    al., 2019). Single rows have no loss. The loss is symmetric under permutations of the classes, so start
    from a model that has been trained with another loss.

    |det J| is at most K⁻ᴷ. So the floor is scaled with the number of classes, eps_K = (2√eps/K)ᴷ, which is
    ``eps`` itself for two classes. It matters if the singular values of K·J are about 2√eps.

    If the batch lacks a class, det J is 0. The loss is then −log eps_K, or a large finite number if ``eps``
    is 0, and its gradient is 0. Use batches with several rows of every class.

    Parameters
    ----------
    logits, target, ignore_index
        As in :func:`~peerloss.functional.peer_loss`.
    eps
        Sets the floor of |det J|. With 0 the loss is −log |det J| if that is finite.

    Returns
    -------
    A scalar; 0 for a batch without labels.

    Examples
    --------
    >>> dmi_loss(torch.tensor([-99.0, 99.0]), torch.tensor([0, 1]), eps=0.0)
    tensor(1.3863)
    """
    floor = check_eps(eps)
    batch = make_batch(logits, target, ignore_index=ignore_index)
    with without_autocast(batch.logits):
        if batch.valid is None:
            n = len(batch.target)  # without rows the loss is 0, a function of the empty logits
            return joint_loss(_joint(batch, n), floor) if n else batch.logits.sum()
        rows = batch.valid.sum()
        loss = joint_loss(_joint(batch, rows.clamp(min=1)), floor)
        return torch.where(rows > 0, loss, 0.0)


def joint_loss(joint: Tensor, eps: float) -> Tensor:
    """Return ``−log(|det J| + eps_K)`` of joint matrices J (…, K, K), shape (…).

    If det J is 0, the gradient is 0 and the loss is finite, also for ``eps = 0``.
    """
    k = joint.shape[-1]
    scaled = k * joint  # its determinant is at most 1 in absolute value
    log_det = torch.linalg.slogdet(scaled).logabsdet
    log_floor = 0.5 * k * math.log(4.0 * eps) if eps > 0 else k * math.log(torch.finfo(joint.dtype).tiny)
    floor = torch.full_like(log_det, log_floor)
    singular = log_det.detach() == -math.inf
    if values_are_checkable(log_det) and not singular.any():
        return k * math.log(k) - (torch.logaddexp(log_det, floor) if eps > 0 else log_det)
    # The gradient is the inverse, so a constant matrix replaces a singular one.
    identity = torch.eye(k, dtype=joint.dtype, device=joint.device)
    log_det = torch.linalg.slogdet(torch.where(singular[..., None, None], identity, scaled)).logabsdet
    floored = torch.logaddexp(log_det, floor) if eps > 0 else log_det
    return k * math.log(k) - torch.where(singular, floor, floored)


def _joint(batch: Batch, rows: Tensor | int) -> Tensor:
    k = batch.logits.shape[1]
    p = torch.softmax(batch.logits, dim=1)
    if batch.valid is not None:
        p = p * batch.valid[:, None]
    if batch.is_soft:
        return batch.target.T @ p / rows
    return p.new_zeros(k, k).index_add(0, batch.target, p) / rows
