"""Backward and forward correction as modules. Their state is T⁻¹ or log T, computed once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from peerloss._deprecation import renamed_parameters
from peerloss.functional.base import DEFAULT_EPS, as_base, check_eps
from peerloss.functional.correction import batch_backward_loss, batch_forward_loss
from peerloss.losses._common import LabelLoss, show_base
from peerloss.noise import NoiseModel, as_noise_model

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from peerloss.functional.base import LossMatrix


class BackwardLoss(LabelLoss):
    """Backward correction, for two classes Natarajan's unbiased surrogate; twin of ``backward_loss``.

    Parameters
    ----------
    noise
        T, as a :class:`~peerloss.NoiseModel` or a matrix; it must be invertible.
    base, eps, weight, ignore_index, reduction
        As in :class:`PeerLoss`.

    Examples
    --------
    >>> BackwardLoss([[0.8, 0.2], [0.4, 0.6]], base="zero_one")(torch.tensor([2.0]), torch.tensor([1]))
    tensor(-1.)
    """

    inverse: Tensor

    @renamed_parameters(transition="noise")
    def __init__(
        self,
        noise: NoiseModel | ArrayLike,
        *,
        base: str | LossMatrix = "cross_entropy",
        eps: float = DEFAULT_EPS,
        weight: Tensor | ArrayLike | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
    ) -> None:
        super().__init__(weight=weight, ignore_index=ignore_index, reduction=reduction)
        as_base(base)  # raises if it is unknown
        self.base = base
        self.eps = check_eps(eps)
        self.register_buffer("inverse", torch.tensor(as_noise_model(noise, "noise").inverse()))

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """Return the loss of logits (n, K) against noisy labels (n,), or soft targets (n, K)."""
        batch, base = self.batch(logits, target), as_base(self.base)
        return batch_backward_loss(batch, self.inverse, base, self.eps, self.weight, self.reduction)

    def extra_repr(self) -> str:
        """Show base and options."""
        return f"{show_base(self.base)}, eps={self.eps:g}, {super().extra_repr()}"


class ForwardLoss(LabelLoss):
    """Forward correction; module twin of :func:`peerloss.functional.forward_loss`.

    Parameters
    ----------
    noise
        T, as a :class:`~peerloss.NoiseModel` or a matrix.
    weight, ignore_index, reduction
        As in :class:`PeerLoss`.

    Examples
    --------
    >>> ForwardLoss([[0.8, 0.2], [0.5, 0.5]])(torch.tensor([50.0]), torch.tensor([1]))
    tensor(0.6931)
    """

    log_transition: Tensor

    @renamed_parameters(transition="noise")
    def __init__(
        self,
        noise: NoiseModel | ArrayLike,
        *,
        weight: Tensor | ArrayLike | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
    ) -> None:
        super().__init__(weight=weight, ignore_index=ignore_index, reduction=reduction)
        transition = torch.tensor(as_noise_model(noise, "noise").transition)
        self.register_buffer("log_transition", transition.log())

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """Return the loss of logits (n, K) against noisy labels (n,), or soft targets (n, K)."""
        batch = self.batch(logits, target)
        return batch_forward_loss(batch, self.log_transition, self.weight, self.reduction)
