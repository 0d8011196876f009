"""CORES² (Cheng et al., 2021) from parts of this library: peer loss at α = β, a sieve and a schedule of β."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from peerloss._validation import check_count, check_finite
from peerloss.exceptions import InvalidInputError
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
    sieve_from: float | None = None,
    eps: float = CORES_EPS,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> PeerLoss:
    """Return the loss of CORES², ``−log p_ỹ + β·Σ_k π̃_k log p_k``, with its sieve.

    It is peer loss with cross entropy, expected peers and α = β. The method consists of this loss,
    :func:`cores_schedule`, which increases β, and the sieve, which leaves out the rows of each batch that
    :func:`cores_keep` does not keep.

    Parameters
    ----------
    noisy_prior
        π̃ (K,). ``None`` counts the labels that the loss sees. With a sieve it must be given, because rows
        that are left out would not be counted.
    beta
        Weight of the second term, which makes predictions confident.
    sieve_from
        The β from which on the sieve is used in training mode. It needs class codes as targets. With 1.4 and
        the schedule of :func:`cores_schedule` it starts after epoch 30, as in the authors' code. ``None``:
        no sieve.
    eps
        Added to p inside the logarithm. With 0 the loss is as printed, and unbounded below if β > 0.
    ignore_index, reduction
        As in :class:`PeerLoss`.

    Examples
    --------
    >>> import torch
    >>> from peerloss.losses import cores_keep, cores_loss, cores_schedule
    >>> loss = cores_loss(noisy_prior=[0.5, 0.5], sieve_from=1.4)
    >>> schedule = cores_schedule(loss)  # one step per epoch
    >>> logits, target = torch.tensor([[2.0, 0.0], [2.0, 0.0]]), torch.tensor([0, 1])
    >>> loss(logits, target)  # cross entropy
    tensor(1.1269)
    >>> for epoch in range(40):
    ...     schedule.step()
    >>> cores_keep(logits, target)
    tensor([ True, False])
    >>> loss(logits, target)  # of the first row alone
    tensor(-2.1269)

    References
    ----------
    Cheng, Zhu, Li, Gong, Sun and Liu, *Learning with Instance-Dependent Label Noise: A Sample Sieve
    Approach*, ICLR 2021.
    """
    options: Any = {
        "alpha": check_finite(beta, "beta"),
        "noisy_prior": noisy_prior,
        "eps": eps,
        "ignore_index": ignore_index,
        "reduction": reduction,
    }
    if sieve_from is None:
        return PeerLoss("cross_entropy", **options)
    if noisy_prior is None:
        raise InvalidInputError(
            "`noisy_prior` must be given with `sieve_from`, because labels that the sieve leaves out would "
            "not be counted. Pass the frequencies of all labels."
        )
    return _SievedLoss(check_finite(sieve_from, "sieve_from"), **options)


class _SievedLoss(PeerLoss):
    """Peer loss of the rows of a batch that :func:`cores_keep` keeps, as soon as α is large enough."""

    def __init__(self, sieve_from: float, **options: Any) -> None:
        super().__init__("cross_entropy", **options)
        self.sieve_from = sieve_from

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        is_sieved = self.training and self.alpha >= self.sieve_from
        if is_sieved and isinstance(target, torch.Tensor):  # other targets are refused below
            if target.is_floating_point():
                raise InvalidInputError(
                    "`target` must be class codes for the sieve of CORES²; got soft targets. Use "
                    "target.argmax(dim=1), or sieve_from=None."
                )
            kept = cores_keep(logits, target, eps=self.eps, ignore_index=self.ignore_index)
            # int64: in bool or uint8 the ignored label would become another class.
            target = target.long().masked_fill(~kept, self.ignore_index)
        return super().forward(logits, target)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, sieve_from={self.sieve_from:g}"


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
        (n, K), or (n,) and (n, 1) for two classes, or (N, K, d) for tokens. No gradient flows through the
        result, which has the shape of the labels.
    target
        Noisy labels (n,) or (N, d); those equal to ``ignore_index`` are not kept.
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
    k = z.shape[1] if z.ndim > 2 else loss_matrix(z[:1]).shape[1]  # one logit stands for two classes
    dtype = torch.promote_types(z.dtype, torch.float32)  # half precision does not sum to 1
    equal = z.new_full((k,), 1.0 / k, dtype=dtype)
    rows = peer_loss(z, target, noisy_prior=equal, eps=eps, ignore_index=ignore_index, reduction="none")
    return rows < 0
