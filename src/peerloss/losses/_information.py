"""The losses from information theory as modules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerloss._validation import check_choice
from peerloss.functional.base import check_eps
from peerloss.functional.information import DEFAULT_DMI_EPS, DIVERGENCES, batch_divergence_loss, dmi_loss
from peerloss.losses._common import LabelLoss, PriorLoss

if TYPE_CHECKING:
    from numpy.typing import ArrayLike
    from torch import Tensor


class DMILoss(LabelLoss):
    """Determinant-based mutual information of the batch; twin of :func:`peerloss.functional.dmi_loss`.

    It is a function of the batch, so it has no ``reduction`` and no class weights.

    Parameters
    ----------
    eps
        Sets the floor of |det J|, scaled with the number of classes.
    ignore_index
        Rows with this target are excluded.

    Examples
    --------
    >>> import torch
    >>> DMILoss(eps=0.0)(torch.tensor([-99.0, 99.0]), torch.tensor([0, 1]))
    tensor(1.3863)
    """

    def __init__(self, *, eps: float = DEFAULT_DMI_EPS, ignore_index: int = -100) -> None:
        super().__init__(ignore_index=ignore_index)
        self.eps = check_eps(eps)

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """Return the loss of logits (n, K) against noisy labels (n,), or soft targets (n, K)."""
        return dmi_loss(logits, target, eps=self.eps, ignore_index=self.ignore_index)

    def extra_repr(self) -> str:
        """Show eps and options; there is no reduction."""
        return ", ".join((f"eps={self.eps:g}", *self._shown_options()))


class FDivergenceLoss(PriorLoss):
    """f-divergence between own and peers' labels; twin of :func:`peerloss.functional.f_divergence_loss`.

    Gradients of total variation vanish for confident predictions: start from a model that has been trained
    with another loss.

    Parameters
    ----------
    divergence
        ``"total_variation"`` or ``"jensen_shannon"``.
    noisy_prior
        π̃ (K,), or ``None`` to count it as :class:`PeerLoss` does: over all training batches so far.
    ignore_index, reduction
        As in :class:`PeerLoss`.

    Examples
    --------
    >>> import torch
    >>> FDivergenceLoss()(torch.tensor([-99.0, 99.0]), torch.tensor([0, 1]))
    tensor(-0.3333)
    """

    def __init__(
        self,
        divergence: str = "total_variation",
        *,
        noisy_prior: Tensor | ArrayLike | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
    ) -> None:
        super().__init__(noisy_prior=noisy_prior, ignore_index=ignore_index, reduction=reduction)
        self.divergence = check_choice(divergence, "divergence", DIVERGENCES)

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """Return the loss of logits (n, K) against noisy labels (n,), or soft targets (n, K)."""
        batch = self.batch(logits, target)
        return batch_divergence_loss(batch, self.divergence, self._prior(batch), self.reduction)

    def extra_repr(self) -> str:
        """Show divergence and options."""
        return f"{self.divergence!r}, {super().extra_repr()}"
