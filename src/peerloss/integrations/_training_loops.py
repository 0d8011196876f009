"""Shared by all frameworks: the shapes of token labels, and α as a function of training progress."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.nn.functional import pad

from peerloss._installing import install_command
from peerloss._validation import check_choice
from peerloss.exceptions import InvalidInputError
from peerloss.losses import AlphaSchedule

if TYPE_CHECKING:
    from torch import Tensor


def flatten_tokens(
    logits: Tensor, target: Tensor, *, shift: bool = False, ignore_index: int = -100
) -> tuple[Tensor, Tensor]:
    """Return logits (B·T, V) and targets (B·T,) of tokens (B, T); one label per row passes unchanged.

    A loss with the same ``ignore_index`` excludes padding from the rows, the peers and the prior.

    Parameters
    ----------
    logits
        (B, T, V), or any shape that ends in the classes.
    target
        (B, T), labels or ``ignore_index``.
    shift
        Whether position t predicts the token at t + 1, as in causal language models. The last position then
        has no target. Logits are never copied.
    ignore_index
        The value of positions without a target.

    Examples
    --------
    >>> import torch
    >>> logits, tokens = torch.zeros(1, 3, 5), torch.tensor([[4, 2, -100]])
    >>> flatten_tokens(logits, tokens, shift=True)[1]
    tensor([   2, -100, -100])
    """
    if logits.ndim < 2 or logits.shape[:-1] != target.shape:
        raise InvalidInputError(
            "`target` must have the shape of `logits` without the last dimension, the classes; got logits "
            f"{tuple(logits.shape)} and target {tuple(target.shape)}. For tokens pass (B, T, V) and (B, T)."
        )
    if shift:
        if target.ndim < 2:
            raise InvalidInputError(
                f"`shift` is for tokens (B, T); the target has shape {tuple(target.shape)}, one label per "
                "row. Omit `shift`."
            )
        target = pad(target[..., 1:], (0, 1), value=ignore_index)
    return logits.flatten(0, -2), target.flatten()


def check_every(every: str) -> str:
    """Return ``every`` if it is a unit in which a schedule can count."""
    return check_choice(every, "every", ("step", "epoch"))


def check_schedule(schedule: AlphaSchedule) -> AlphaSchedule:
    """Return ``schedule`` if it is an AlphaSchedule."""
    if not isinstance(schedule, AlphaSchedule):
        raise InvalidInputError(
            f"`schedule` must be an AlphaSchedule; got {type(schedule).__name__}. "
            "Use AlphaSchedule(loss, [(0, 0.0), (100, 1.0)])."
        )
    return schedule


def go_to(schedule: AlphaSchedule, step: int) -> None:
    """Set α to its value at ``step``, so that resumed training needs no extra state."""
    schedule.load_state_dict({**schedule.state_dict(), "last_step": step})


def missing_extra(error: ImportError, extra: str) -> ImportError:
    """Return ``error`` with the command that installs what is missing."""
    return ImportError(f"{error}. Install what this module needs with: {install_command(extra)}")
