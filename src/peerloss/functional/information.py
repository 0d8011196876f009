"""DMI: an information measure of the whole batch instead of a sum over rows."""

from __future__ import annotations

import torch
from torch import Tensor

from peerloss._validation import check_in_range
from peerloss.functional._batch import make_batch, without_autocast


def dmi_loss(logits: Tensor, target: Tensor, *, eps: float = 1e-4, ignore_index: int = -100) -> Tensor:
    """Return ``−log(|det J| + eps)`` with J[i, j] = mean of 1[ỹ = i]·p_j, the batch's joint matrix.

    Noise multiplies det J by det T, so up to a constant the loss does not see class-conditional noise
    (Xu et al., 2019). It is a function of the batch: there is no loss of a row. It is symmetric under
    permutations of the classes, so start it from a model that has been trained with another loss.

    Parameters
    ----------
    logits, target, ignore_index
        As in :func:`~peerloss.functional.peer_loss`.
    eps
        Keeps the logarithm finite. |det J| is at most K⁻ᴷ: with many classes pass 0, which takes
        log |det J| itself.

    Returns
    -------
    A scalar.

    Examples
    --------
    >>> dmi_loss(torch.tensor([-99.0, 99.0]), torch.tensor([0, 1]), eps=0.0)
    tensor(1.3863)
    """
    floor = check_in_range(eps, "eps", 0.0, 1.0)
    batch = make_batch(logits, target, ignore_index=ignore_index)
    with without_autocast(batch.logits):
        p = torch.softmax(batch.logits, dim=1)
        if batch.valid is not None:
            p = p * batch.valid[:, None]
        joint = torch.zeros(batch.logits.shape[1], batch.logits.shape[1], dtype=p.dtype, device=p.device)
        joint = joint.index_add(0, batch.target, p)
        rows = p.shape[0] if batch.valid is None else batch.valid.sum().clamp(min=1)
        joint = joint / rows
        if floor == 0:
            log_determinant: Tensor = torch.linalg.slogdet(joint).logabsdet
            return -log_determinant
        return -torch.log(torch.linalg.det(joint).abs() + floor)
