"""CORES² (Cheng et al., 2021) from parts of this library: peer loss at α = β, a sieve and a schedule of β."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from peerloss._validation import check_count, check_finite
from peerloss.functional import loss_matrix, peer_loss
from peerloss.losses._peer import PeerLoss
from peerloss.losses._schedule import AlphaSchedule

if TYPE_CHECKING:
    from numpy.typing import ArrayLike
    from torch import Tensor

#: Added to probabilities inside the logarithm, as in the authors' code.
CORES_EPS = 1e-8


def cores_loss(
    *,
    noisy_prior: Tensor | ArrayLike | None = None,
    beta: float = 2.0,
    eps: float = CORES_EPS,
    reduction: str = "mean",
) -> PeerLoss:
    """Return the loss of CORES², ``−log p_ỹ + β·Σ_k π̃_k log p_k``.

    It is peer loss with cross entropy, expected peers and α = β. The method consists of this loss,
    :func:`cores_schedule`, which increases β, and :func:`cores_keep`, which leaves rows out.

    Parameters
    ----------
    noisy_prior
        π̃ (K,). ``None`` counts the labels that the loss sees. Pass the frequencies of all labels if the
        sieve leaves rows out, because those are not counted.
    beta
        Weight of the second term, which makes predictions confident.
    eps
        Added to p inside the logarithm. With 0 the loss is as printed, and unbounded below if β > 0.
    reduction
        As in :class:`PeerLoss`.

    Examples
    --------
    >>> import torch
    >>> from peerloss.losses import cores_keep, cores_loss, cores_schedule
    >>> loss = cores_loss(noisy_prior=[0.5, 0.5])
    >>> schedule = cores_schedule(loss)  # one step per epoch
    >>> logits, target = torch.tensor([[2.0, 0.0], [2.0, 0.0]]), torch.tensor([0, 1])
    >>> kept = cores_keep(logits, target)  # after 30 epochs
    >>> kept
    tensor([ True, False])
    >>> loss(logits, target.masked_fill(~kept, loss.ignore_index))
    tensor(0.1269)

    References
    ----------
    Cheng, Zhu, Li, Gong, Sun and Liu, *Learning with Instance-Dependent Label Noise: A Sample Sieve
    Approach*, ICLR 2021.
    """
    return PeerLoss("cross_entropy", alpha=beta, noisy_prior=noisy_prior, eps=eps, reduction=reduction)


def cores_schedule(loss: PeerLoss, *, warm_up: int = 10, rise: int = 30, beta: float = 2.0) -> AlphaSchedule:
    """Return the schedule of β: 0 for ``warm_up`` epochs, then ``rise`` epochs from 0 to ``beta``.

    The defaults are those of the authors on CIFAR-10, with a sieve after 30 epochs.

    Parameters
    ----------
    loss
        The loss of :func:`cores_loss`; its α is set immediately and by each ``step()``.
    warm_up, rise
        Numbers of epochs. The first epoch of the rise has β = 0, and the last one has ``beta``.
    beta
        The last value.

    Examples
    --------
    >>> schedule = cores_schedule(cores_loss())
    >>> [round(schedule.alpha_at(epoch), 2) for epoch in (0, 10, 20, 39, 99)]
    [0.0, 0.0, 0.69, 2.0, 2.0]
    """
    start = check_count(warm_up, "warm_up", minimum=0)
    end = start + check_count(rise, "rise", minimum=2) - 1
    return AlphaSchedule(loss, [(start, 0.0), (end, check_finite(beta, "beta"))])


def cores_keep(logits: Tensor, target: Tensor, *, eps: float = CORES_EPS, ignore_index: int = -100) -> Tensor:
    """Return which labels the sieve of CORES² keeps, (n,) bool: ``L[n, ỹ_n] < (1/K)·Σ_k L[n, k]``.

    The model disagrees less with this label than with labels on average. The rule does not depend on β and π̃,
    which occur on both sides of it. A label is kept if its peer loss, at α = 1 and with equal priors, is
    below 0. :func:`peerloss.training.keep_rows` has π̃ instead of equal priors.

    Parameters
    ----------
    logits
        (n, K), or (n,) and (n, 1) for two classes. No gradient flows through the result.
    target
        Noisy labels (n,); those equal to ``ignore_index`` are not kept.
    eps
        Added to p inside the logarithm.
    ignore_index
        The label of rows without a label.

    Examples
    --------
    >>> import torch
    >>> cores_keep(torch.tensor([[2.0, 0.0, 0.0]]).expand(3, 3), torch.tensor([0, 1, -100]))
    tensor([ True, False, False])
    """
    z = logits.detach()
    k = loss_matrix(z[:1]).shape[1]
    dtype = torch.promote_types(z.dtype, torch.float32)  # half precision does not sum to 1
    equal = z.new_full((k,), 1.0 / k, dtype=dtype)
    rows = peer_loss(z, target, noisy_prior=equal, eps=eps, ignore_index=ignore_index, reduction="none")
    return rows < 0
