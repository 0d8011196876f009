"""DMI as a module."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerloss._validation import check_in_range
from peerloss.functional.information import DEFAULT_DMI_EPS, dmi_loss
from peerloss.losses._common import LabelLoss

if TYPE_CHECKING:
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
        self.eps = check_in_range(eps, "eps", 0.0, 1.0)

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """Return the loss of logits (n, K) against noisy labels (n,)."""
        return dmi_loss(logits, target, eps=self.eps, ignore_index=self.ignore_index)

    def extra_repr(self) -> str:
        """Show eps and options; there is no reduction."""
        return ", ".join((f"eps={self.eps:g}", *self._shown_options()))
