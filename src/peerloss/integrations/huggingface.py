"""Hugging Face Trainer: a loss of this package as ``compute_loss_func``, and a callback that sets α.

>>> from peerloss import AlphaSchedule, PeerLoss
>>> loss = PeerLoss()
>>> options = {
...     "compute_loss_func": ComputeLoss(loss),
...     "callbacks": [AlphaCallback(AlphaSchedule(loss, [(0, 0.0), (100, 1.0)]))],
... }  # Trainer(model, args, train_dataset=..., **options)
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from peerloss.exceptions import InvalidInputError
from peerloss.integrations import flatten_tokens
from peerloss.integrations._training_loops import check_every, check_schedule, go_to, missing_extra

try:
    from transformers import TrainerCallback
except ImportError as error:
    raise missing_extra(error, "hf") from error

if TYPE_CHECKING:
    from collections.abc import Callable

    from peerloss.losses import AlphaSchedule

#: The label that the Trainer does not count.
IGNORED = -100
#: Key of the state of the loss in a checkpoint's ``trainer_state.json``.
STATE_KEY = "peerloss"


class ComputeLoss:
    """A ``compute_loss_func(outputs, labels, num_items_in_batch=None)`` from any loss with mean reduction.

    The Trainer splits a batch into micro-batches (gradient accumulation) and over processes, and passes the
    total number of labels. A micro-batch of n labels contributes its mean times n / ``num_items_in_batch``,
    so the parts add up to the mean over the full batch, also if padding is distributed unevenly. This is
    exact for the plain loss, and for peer losses and divergences with a given ``noisy_prior``. A counted
    prior includes only the labels so far, so early peer terms differ from those of the full batch. The
    difference shrinks as labels are counted. Losses that are not sums over rows (DMI, class weights, sampled
    peers) are averaged over micro-batches, weighted by their numbers of labels.

    Labels are counted in training steps only; evaluation does not change the loss.

    Parameters
    ----------
    loss
        Called with logits (n, K) and labels (n,). Its ``ignore_index`` must be -100, as in the Trainer.
    shift
        Whether position t predicts the token at t + 1 (causal language models). Not for sequence or token
        classification.

    Examples
    --------
    >>> from peerloss import PeerLoss
    >>> compute = ComputeLoss(PeerLoss(alpha=0.0))
    >>> mean = compute({"logits": torch.zeros(2, 4)}, torch.tensor([0, 1]))
    >>> torch.equal(compute({"logits": torch.zeros(2, 4)}, torch.tensor([0, 1]), 8), mean / 4)
    True
    """

    def __init__(self, loss: Callable[[Tensor, Tensor], Tensor], *, shift: bool = False) -> None:
        if getattr(loss, "reduction", "mean") != "mean":
            raise InvalidInputError(
                f"`loss` must have reduction='mean'; got {loss.reduction!r}. "  # type: ignore[attr-defined]
                "The mean is scaled by the number of labels that the Trainer passes."
            )
        if getattr(loss, "ignore_index", IGNORED) != IGNORED:
            raise InvalidInputError(
                f"`loss` must have ignore_index={IGNORED}; got {loss.ignore_index}. "  # type: ignore[attr-defined]
                f"The Trainer counts every other label, so mark padding with {IGNORED}."
            )
        self.loss = loss
        self.shift = shift

    def __call__(
        self, outputs: Any, labels: Tensor | None, num_items_in_batch: Tensor | int | None = None
    ) -> Tensor:
        """Return the loss of a model's outputs: a mapping with "logits", or a tuple that begins with them."""
        if labels is None:
            raise InvalidInputError(
                "`labels` must be part of each batch; the Trainer passed None. Name the column 'labels'; if "
                "the model's `forward` does not take it, set remove_unused_columns=False in its arguments."
            )
        logits = outputs["logits"] if hasattr(outputs, "keys") else outputs[0]
        logits, target = flatten_tokens(logits, labels.to(logits.device), shift=self.shift)
        if isinstance(self.loss, nn.Module):
            self.loss.train(torch.is_grad_enabled())  # the Trainer sets the mode of the model only
            self.loss.to(logits.device)
        mean = self.loss(logits, target)
        if num_items_in_batch is None:
            return mean
        n_labels = torch.as_tensor(num_items_in_batch, device=logits.device).clamp(min=1)
        return mean * (target != IGNORED).sum().to(mean.dtype) / n_labels


class AlphaCallback(TrainerCallback):
    """Sets α per optimiser step or epoch, and saves the counted labels in the Trainer's checkpoints.

    α follows from the Trainer's own step counter, so resumed training continues exactly. The counted labels
    are stored in ``trainer_state.json`` of each checkpoint. The log shows α as ``alpha``.

    Parameters
    ----------
    schedule
        Schedule of the loss that ``compute_loss_func`` uses. A single knot, ``[(0, 1.0)]``, keeps α constant
        and still saves the counts.
    every
        ``"step"`` (optimiser steps) or ``"epoch"``: the unit of the knots.
    """

    def __init__(self, schedule: AlphaSchedule, *, every: str = "step") -> None:
        self.schedule = check_schedule(schedule)
        self.every = check_every(every)

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Restore the counted labels of a checkpoint and set α."""
        saved = state.stateful_callbacks.get(STATE_KEY)
        counts = getattr(self.schedule.loss, "label_counts", None)
        if saved is not None and counts is not None:
            self.schedule.loss.label_counts = counts.new_tensor(saved["label_counts"])
        self._set_alpha(state)

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Set α for the epoch."""
        self._set_alpha(state)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Set α for the next step."""
        self._set_alpha(state)
        self._save_counts(state, control)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Add the counted labels to a checkpoint at the end of the epoch."""
        self._save_counts(state, control)

    def on_log(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Add α to the log."""
        if state.log_history:
            state.log_history[-1]["alpha"] = self.schedule.loss.alpha

    def _set_alpha(self, state: Any) -> None:
        epochs = math.floor((state.epoch or 0.0) + 1e-9)  # the Trainer adds up fractions of an epoch
        go_to(self.schedule, state.global_step if self.every == "step" else epochs)

    def _save_counts(self, state: Any, control: Any) -> None:
        counts = getattr(self.schedule.loss, "label_counts", None)
        if control.should_save and counts is not None:
            state.stateful_callbacks[STATE_KEY] = {"label_counts": counts.tolist()}
