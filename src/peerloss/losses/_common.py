"""The base class of the loss modules: reduction, ignored targets, class weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor, nn

from peerloss._validation import check_choice
from peerloss.exceptions import InvalidInputError
from peerloss.functional.batch import REDUCTIONS, Batch, check_vector, make_batch

if TYPE_CHECKING:
    from collections.abc import Callable


class LabelLoss(nn.Module):
    """Base class of the loss modules: holds and checks the options that all of them have."""

    weight: Tensor | None

    def __init__(self, *, weight: Any = None, ignore_index: int = -100, reduction: str = "mean") -> None:
        super().__init__()
        self.reduction = check_choice(reduction, "reduction", REDUCTIONS)
        if not isinstance(ignore_index, int) or isinstance(ignore_index, bool) or abs(ignore_index) >= 2**63:
            raise InvalidInputError(f"`ignore_index` must be a 64-bit integer; got {ignore_index!r}.")
        self.ignore_index = ignore_index
        self.register_buffer("weight", None if weight is None else as_buffer(check_vector(weight, "weight")))

    def batch(self, logits: Tensor, target: Tensor) -> Batch:
        """Validate and canonicalise the arguments of ``forward``."""
        return make_batch(logits, target, ignore_index=self.ignore_index)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        try:
            super()._apply(fn, recurse)
        except TypeError:  # a device without float64 (MPS): buffers become float32
            for name, buffer in self.named_buffers(recurse=False):
                if buffer.dtype == torch.float64:
                    setattr(self, name, buffer.float())
            super()._apply(fn, recurse)
        return self

    def extra_repr(self) -> str:
        """Show the reduction and the options that differ from their defaults."""
        return ", ".join((f"reduction={self.reduction!r}", *self._shown_options()))

    def _shown_options(self) -> list[str]:
        parts = []
        if self.ignore_index != -100:
            parts.append(f"ignore_index={self.ignore_index}")
        if self.weight is not None:
            parts.append(f"weight of {len(self.weight)} classes")
        return parts


def as_buffer(tensor: Tensor) -> Tensor:
    """Return a detached copy for a buffer, in its own dtype; losses cast it to that of the logits."""
    return tensor.detach().clone()
