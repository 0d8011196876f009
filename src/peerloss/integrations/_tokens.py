"""Flatten sequences of tokens into the shapes that the losses accept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.nn.functional import pad

from peerloss.exceptions import InvalidInputError

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
