"""A plain training loop: any model, any loss, random batches, Adam."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from peerloss._deprecation import renamed_parameters
from peerloss._progress import reporter, shows_progress
from peerloss._validation import check_count, check_in_range
from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Callable


@renamed_parameters(steps="max_steps")
@shows_progress("training")
def train(
    model: nn.Module,
    loss: Callable[[Tensor, Tensor], Tensor],
    X: Tensor,
    y: Tensor,
    *,
    max_steps: int = 1000,
    batch_size: int = 64,
    learning_rate: float = 7e-4,
    generator: torch.Generator | None = None,
    verbose: bool = False,  # noqa: ARG001 - read by the decorator
) -> nn.Module:
    """Minimise ``loss(model(X), y)`` with Adam on random batches; return the model in evaluation mode.

    Parameters
    ----------
    model, loss
        Any module, and any loss of logits and labels.
    X, y
        Features (n, d) and (noisy) labels (n,), on the device of the model.
    max_steps, batch_size, learning_rate
        Number of steps, rows per step and learning rate; the defaults are those of the paper's code.
    generator
        Random generator of the batches.
    verbose
        Whether to show the progress on stderr: phase, percentage, elapsed time, time left.
    """
    check_count(max_steps, "max_steps")
    check_count(batch_size, "batch_size")
    check_in_range(learning_rate, "learning_rate", 0.0, float("inf"), low_open=True)
    if len(X) != len(y) or len(X) == 0:
        raise InvalidInputError(
            f"`X` and `y` must be equally long and not empty; got {len(X)} and {len(y)} rows."
        )
    optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate)
    model.train()
    order = torch.randperm(0)
    report = reporter(max_steps)
    for step in range(max_steps):
        if len(order) < min(batch_size, len(X)):
            order = torch.randperm(len(X), generator=generator).to(X.device)
        rows, order = order[:batch_size], order[batch_size:]
        optimizer.zero_grad()
        loss(model(X[rows]), y[rows]).backward()
        optimizer.step()
        report(step + 1)
    return model.eval()
