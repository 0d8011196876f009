"""Determinant-based mutual information (DMI): a function of the whole batch, not a sum over rows."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from peerloss._validation import check_in_range
from peerloss.functional.batch import Batch, make_batch, values_are_checkable, without_autocast

#: Added to |det J| of two classes.
DEFAULT_DMI_EPS = 1e-4


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
    floor = check_in_range(eps, "eps", 0.0, 1.0)
    batch = make_batch(logits, target, ignore_index=ignore_index)
    with without_autocast(batch.logits):
        if batch.valid is None:
            return joint_loss(_joint(batch, len(batch.target)), floor) if len(batch.target) else _zero(batch)
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
    return p.new_zeros(k, k).index_add(0, batch.target, p) / rows


def _zero(batch: Batch) -> Tensor:
    """Return 0 as a function of the (empty) logits."""
    return batch.logits.sum()
