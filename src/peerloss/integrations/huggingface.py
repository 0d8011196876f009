"""Hugging Face Trainer: a loss of this package as ``compute_loss_func``, α moved by a callback.

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
from peerloss.integrations._alpha_callbacks import check_every, check_schedule, go_to, missing_extra
from peerloss.integrations._tokens import flatten_tokens

try:
    from transformers import TrainerCallback
except ImportError as error:
    raise missing_extra(error, "hf") from error

if TYPE_CHECKING:
    from collections.abc import Callable

    from peerloss.losses import AlphaSchedule

#: What the Trainer takes for "no label" when it counts them.
IGNORED = -100
#: Where a checkpoint's ``trainer_state.json`` keeps the loss.
STATE_KEY = "peerloss"


class ComputeLoss:
    """A ``compute_loss_func(outputs, labels, num_items_in_batch=None)`` from any loss with mean reduction.

    The Trainer cuts a batch into micro-batches (gradient accumulation) and over processes, and says how many
    labels there are in all. A micro-batch of n labels gives its mean times n / ``num_items_in_batch``: the
    parts add up to the mean of the whole batch, however unevenly padding is spread. For the plain loss, and
    for peer terms and divergences with a given ``noisy_prior``, that is exact. A counted prior grows with
    each micro-batch and knows only what has been seen: early peer terms differ from those of the whole batch,
    less and less as labels are counted. Losses of a batch as a whole (DMI, class weights, sampled peers) are
    averaged over micro-batches, weighted by their numbers of labels.

    Labels are counted in training steps only; evaluation leaves the loss as it is.

    Parameters
    ----------
    loss
        Called with logits (n, K) and labels (n,). Its ``ignore_index`` must be -100, as the Trainer counts.
    shift
        Whether position t foretells the token at t + 1 (causal language models). Not for classifiers of
        sequences or of tokens.

    Examples
    --------
    >>> from peerloss import PeerLoss
    >>> compute = ComputeLoss(PeerLoss(alpha=0.0))
    >>> whole = compute({"logits": torch.zeros(2, 4)}, torch.tensor([0, 1]))
    >>> torch.equal(compute({"logits": torch.zeros(2, 4)}, torch.tensor([0, 1]), 8), whole / 4)
    True
    """

    def __init__(self, loss: Callable[[Tensor, Tensor], Tensor], *, shift: bool = False) -> None:
        if getattr(loss, "reduction", "mean") != "mean":
            raise InvalidInputError(
                f"`loss` must have reduction='mean'; got {loss.reduction!r}. "  # type: ignore[attr-defined]
                "The Trainer's count of labels is applied to the mean."
            )
        if getattr(loss, "ignore_index", IGNORED) != IGNORED:
            raise InvalidInputError(
                f"`loss` must have ignore_index={IGNORED}; got {loss.ignore_index}. "  # type: ignore[attr-defined]
                f"The Trainer counts every other label: mark padding with {IGNORED} in the labels."
            )
        self.loss = loss
        self.shift = shift

    def __call__(
        self, outputs: Any, labels: Tensor | None, num_items_in_batch: Tensor | int | None = None
    ) -> Tensor:
        """Return the loss of a model's outputs: a mapping with "logits", or a tuple that begins with them."""
        if labels is None:
            raise InvalidInputError(
                "`labels` must come with each batch; the Trainer found none. Name the column 'labels'; if "
                "the model's `forward` does not take it, set remove_unused_columns=False in its arguments."
            )
        logits = outputs["logits"] if hasattr(outputs, "keys") else outputs[0]
        logits, target = flatten_tokens(logits, labels.to(logits.device), shift=self.shift)
        if isinstance(self.loss, nn.Module):
            self.loss.train(torch.is_grad_enabled())  # it is no part of the model whose mode the Trainer sets
            self.loss.to(logits.device)
        mean = self.loss(logits, target)
        if num_items_in_batch is None:
            return mean
        in_all = torch.as_tensor(num_items_in_batch, device=logits.device).clamp(min=1)
        return mean * (target != IGNORED).sum().to(mean.dtype) / in_all


class AlphaCallback(TrainerCallback):
    """Moves α with the optimizer's steps or with epochs, and keeps the loss in the Trainer's checkpoints.

    α follows from the Trainer's own count, so a resumed training goes on as if it had never stopped; so do
    the counted labels, which checkpoints hold in ``trainer_state.json``. In the log α is ``alpha``.

    Parameters
    ----------
    schedule
        Of the loss that ``compute_loss_func`` uses. One knot, ``[(0, 1.0)]``, keeps α and saves the counts.
    every
        ``"step"`` (optimizer steps) or ``"epoch"``: what the knots count.
    """

    def __init__(self, schedule: AlphaSchedule, *, every: str = "step") -> None:
        self.schedule = check_schedule(schedule)
        self.every = check_every(every)

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Take up the loss of a checkpoint and the α of the step."""
        saved = state.stateful_callbacks.get(STATE_KEY)
        counts = getattr(self.schedule.loss, "label_counts", None)
        if saved is not None and counts is not None:
            self.schedule.loss.label_counts = counts.new_tensor(saved["label_counts"])
        self._follow(state)

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Set α for the epoch."""
        self._follow(state)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Set α for the next step."""
        self._follow(state)
        self._keep(state, control)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Let a checkpoint of the epoch hold the loss."""
        self._keep(state, control)

    def on_log(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Add α to the record."""
        if state.log_history:
            state.log_history[-1]["alpha"] = self.schedule.loss.alpha

    def _follow(self, state: Any) -> None:
        epochs = math.floor((state.epoch or 0.0) + 1e-9)  # the Trainer adds up fractions of an epoch
        go_to(self.schedule, state.global_step if self.every == "step" else epochs)

    def _keep(self, state: Any, control: Any) -> None:
        counts = getattr(self.schedule.loss, "label_counts", None)
        if control.should_save and counts is not None:
            state.stateful_callbacks[STATE_KEY] = {"label_counts": counts.tolist()}
