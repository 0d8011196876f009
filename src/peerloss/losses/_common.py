"""The base classes of the loss modules: their common options, and the noisy prior, given or counted."""

from __future__ import annotations

import gc
import sys
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor, distributed, nn

from peerloss._device import count_ranks
from peerloss._validation import check_choice
from peerloss.exceptions import InvalidInputError
from peerloss.functional.base import as_base, check_eps, check_prior, check_vector, has_transforms
from peerloss.functional.batch import REDUCTIONS, Batch, check_ignore_index, label_frequencies, make_batch
from peerloss.functional.peer import check_alpha
from peerloss.losses._divergence_watch import DivergenceWatch

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike

    from peerloss.functional.base import LossMatrix

REMEDY = "Pass `noisy_prior=`, the label frequencies of the training set; nothing is counted then."


class LabelLoss(nn.Module):
    """Base class of the loss modules: holds and checks the options that all of them have."""

    weight: Tensor | None

    def __init__(self, *, weight: Any = None, ignore_index: int = -100, reduction: str = "mean") -> None:
        super().__init__()
        self.reduction = check_choice(reduction, "reduction", REDUCTIONS)
        self.ignore_index = check_ignore_index(ignore_index)
        weight = None if weight is None else check_vector(weight, "weight").detach().clone()
        self.register_buffer("weight", weight)

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


def show_base(base: str | LossMatrix) -> str:
    """Return a base loss as shown by the modules: its name, or its record if it was given as a callable."""
    return repr(base) if isinstance(base, str) else repr(as_base(base))


class PriorLoss(LabelLoss):
    """Base class of the losses that need π̃; without ``noisy_prior`` labels are counted as in ``PeerLoss``."""

    noisy_prior: Tensor | None
    label_counts: Tensor
    _checked_ranks = False

    def __init__(self, *, noisy_prior: Tensor | ArrayLike | None, **options: Any) -> None:
        super().__init__(**options)
        prior = None if noisy_prior is None else check_prior(noisy_prior).detach().clone()
        self.register_buffer("noisy_prior", prior)
        self.register_buffer("label_counts", torch.zeros(0, dtype=torch.int64))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        counts = self.label_counts
        super()._apply(fn, recurse)
        moved = self.label_counts
        # In half precision, counts of soft targets would be rounded or become infinite.
        if moved.dtype != counts.dtype and moved.device.type != "mps":
            self.label_counts = counts.to(moved.device)
        return self

    def current_prior(self) -> Tensor | None:
        """Return π̃ as given or as counted so far; ``None`` before the first label."""
        if self.noisy_prior is not None:
            return self.noisy_prior
        counts = self.label_counts
        return None if len(counts) == 0 else label_frequencies(counts, torch.get_default_dtype())

    def reset_prior(self) -> None:
        """Set the counts to zero, for example because the data change."""
        self.label_counts = self.label_counts.new_zeros(0, dtype=torch.int64)

    def _counts_labels(self) -> bool:
        """Whether the labels of the current batch are counted, unless the prior is given."""
        return self.training and torch.is_grad_enabled()

    def _kernels_may_count(self) -> bool:
        """Whether a kernel may count the labels, which it can if no other process counts with this one."""
        return self._counts_labels() and count_ranks() <= 1

    def _prior(self, batch: Batch) -> Tensor:
        if self.noisy_prior is not None:
            return self.noisy_prior
        if self._counts_labels():
            self._count(batch)
        if len(self.label_counts) == 0:
            return batch.counted_prior()
        return label_frequencies(self.label_counts, batch.logits.dtype)

    def _count(self, batch: Batch) -> None:
        if has_transforms():
            raise InvalidInputError(
                "`noisy_prior` must be given under torch.func (vmap, grad, …) while the loss is in training "
                f"mode: labels cannot be counted there. {REMEDY} Or call `loss.eval()` to use the prior "
                "counted so far."
            )
        counts = batch.label_counts()
        if count_ranks() > 1:
            self._sum_over_ranks(counts)
        if len(self.label_counts) == 0:
            self.label_counts = counts
            return
        if self.label_counts.shape != counts.shape:
            raise InvalidInputError(
                f"`logits` must keep their number of classes: labels of {_count_classes(self.label_counts)} "
                f"have been counted, these logits have {_count_classes(counts)}. Use one loss per task, or "
                "`reset_prior()`."
            )
        if counts.is_floating_point() and self.label_counts.dtype != counts.dtype:
            # The first soft targets after class codes, or after the module was cast to half precision.
            self.label_counts = self.label_counts.to(counts.dtype) + counts
            return
        if not torch.compiler.is_compiling() and self.label_counts.is_inference():
            self.label_counts = self.label_counts.clone()  # loaded under torch.inference_mode()
        self.label_counts.add_(counts)

    def _sum_over_ranks(self, counts: Tensor) -> None:
        # Looking for Join takes milliseconds. It surrounds the training loop, so one check is enough.
        if not self._checked_ranks and not torch.compiler.is_compiling():
            if in_join():
                raise InvalidInputError(
                    "`noisy_prior` must be given inside torch's Join (`model.join()`): ranks that have no "
                    f"batches left would not take part in counting labels. {REMEDY}"
                )
            self._checked_ranks = True
        distributed.all_reduce(counts)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        # Checkpoints of losses that did not count labels have no counts.
        saved = state_dict.setdefault(f"{prefix}label_counts", self.label_counts)
        if saved.shape != self.label_counts.shape or saved.dtype != self.label_counts.dtype:
            # Counts of soft targets are not integers.
            self.label_counts = self.label_counts.new_zeros(saved.shape, dtype=saved.dtype)
        super()._load_from_state_dict(state_dict, prefix, *args)

    def extra_repr(self) -> str:
        """Show where the prior comes from, and the options."""
        return f"noisy_prior {'counted' if self.noisy_prior is None else 'given'}, {super().extra_repr()}"


class AlphaLoss(PriorLoss):
    """Base class of the peer losses: adds α, the clip ``eps``, and the check for divergence."""

    def __init__(self, *, alpha: float, eps: float, **options: Any) -> None:
        super().__init__(**options)
        self._alpha_input = torch.zeros((), dtype=torch.float64)  # stays on the CPU
        self.alpha = alpha
        self.eps = check_eps(eps)
        self._watch = DivergenceWatch()

    @property
    def alpha(self) -> float:
        """Weight of the peer term."""
        return self._alpha

    @alpha.setter
    def alpha(self, value: float) -> None:
        self._alpha = float(check_alpha(value))
        if self._alpha_input.is_inference():  # built under torch.inference_mode()
            self._alpha_input = self._alpha_input.clone()
        self._alpha_input.fill_(self._alpha)


def _count_classes(counts: Tensor) -> str:
    """Describe the shape of counted labels: classes, or binary labels."""
    return f"{len(counts)} classes" if counts.ndim == 1 else f"{len(counts)} binary labels"


def in_join() -> bool:
    """Whether a ``torch.distributed.algorithms.Join`` context is open; torch keeps no list of them."""
    module = sys.modules.get("torch.distributed.algorithms.join")
    if module is None:
        return False
    contexts = [thing for thing in gc.get_referrers(module.Join) if isinstance(thing, module.Join)]
    return any(context._enable for context in contexts)  # noqa: SLF001 (there is no public attribute)
