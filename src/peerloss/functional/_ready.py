"""What the two short ways to an expected peer loss share: compiled loops (CPU) and kernels (GPU).

Either takes ``(logits, target, formula, noisy_prior, label_counts)``. ``noisy_prior`` is π̃ (K,), or ``None``
for the shares of ``label_counts`` (K,), to which the labels are then added first. Where torch's operations
have to do it they return ``None``, and the counts are what they were.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor


class Formula(NamedTuple):
    """What turns logits, labels and a prior into the loss, as in :func:`peerloss.functional.peer_loss`."""

    alpha: float
    eps: float
    ignore_index: int
    mean: bool
    """Whether the loss is the mean over the rows that are not ignored, or their sum."""


class Ready(NamedTuple):
    """A loss and what is known of it without asking the tensor."""

    loss: Tensor
    value: float | None = None
    """``None`` where nobody has waited for the device."""
    largest: float = 0.0
    """Largest finite |logit|; 0 where it is not known."""
