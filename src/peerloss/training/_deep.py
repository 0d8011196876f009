"""One loop for deep networks: any model, any loss of this package, data that live on the device.

Inside an epoch nothing waits for the device: order, crops and flips of the whole epoch are drawn there at its
start, losses are summed there, and figures are read once at the end.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from peerloss._validation import check_count
from peerloss.exceptions import DivergenceError, InvalidInputError
from peerloss.training._checkpoint import check_writable, load_checkpoint, save_checkpoint, unreadable
from peerloss.training._deep_run import DeepResult, Run
from peerloss.training._device import usable_device
from peerloss.training._log import TABLE, EpochLog, progress_bar
from peerloss.training._recipe import DeepRecipe
from peerloss.training._rows import held_out_rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike


def train_deep(
    model: nn.Module,
    loss: Callable[[Tensor, Tensor], Tensor],
    X: Tensor | ArrayLike,
    y: Tensor | ArrayLike,
    *,
    recipe: DeepRecipe | None = None,
    validation: tuple[Any, Any] | None = None,
    device: str | torch.device | None = None,
    checkpoint: str | Path | None = None,
    checkpoint_every: int = 1,
    log_dir: str | Path | None = None,
    progress: bool = False,
) -> DeepResult:
    """Train ``model`` on noisy labels; it ends with the last weights, the others are in the result.

    Parameters
    ----------
    model, loss
        Any module and any loss of logits and labels.
    X, y
        Inputs and noisy labels. uint8 images (n, height, width, channels) are scaled and augmented; anything
        else goes to the model as it is. All of it is kept on the device. A row without a label has -1: the
        loss leaves it out, a sieve teaches it what the model answers.
    recipe
        Everything that decides the outcome; see :class:`DeepRecipe`.
    validation
        Held-out inputs and *noisy* labels: after each epoch the peer score is taken there (of the averaged
        weights, where there are any), and the weights with the best one are kept.
    device
        ``None`` takes a GPU where there is one.
    checkpoint, checkpoint_every
        A file to save to every so many epochs. Where it exists, training goes on from it and ends with
        the same weights as if it had never stopped.
    log_dir
        Folder of ``metrics.csv`` and, where TensorBoard is installed, its events. The table of an earlier
        training there is kept under another name.
    progress
        Whether to show a bar with the time left.

    Raises
    ------
    InvalidInputError
        Before training, if a checkpoint that exists cannot be read or belongs to another training, or if the
        checkpoint or the log cannot be written.
    DivergenceError
        When the loss is not finite, or not bounded below and far down; the message says what to change and
        where the last good checkpoint is.
    """
    check_count(checkpoint_every, "checkpoint_every")
    chosen = usable_device(device)
    run = Run(model, loss, X, y, recipe or DeepRecipe(), chosen)
    if run.recipe.patience is not None and validation is None:
        raise InvalidInputError(
            "`patience` needs `validation`: it counts epochs without a better noisy validation score. Pass "
            "held-out rows, or patience=None."
        )
    held_out = None if validation is None else held_out_rows(validation, model, chosen)
    path = None if checkpoint is None else Path(checkpoint)
    if path is not None and path.exists():
        _resume(run, path)
    if path is not None and not run.finished:
        check_writable(path, "checkpoint")
    if log_dir is not None:
        check_writable(Path(log_dir) / TABLE, "log_dir")
    with ExitStack() as stack:
        log = None if log_dir is None else stack.enter_context(EpochLog(Path(log_dir), done=run.epoch))
        advance = stack.enter_context(progress_bar(run.recipe.epochs, done=run.epoch, show=progress))
        while not run.finished:
            number = run.epoch + 1
            try:
                record = run.train_epoch()
            except DivergenceError as error:
                raise DivergenceError(f"epoch {number}: {error} {_last_good(path)}") from error
            if held_out is not None:
                record |= run.score(*held_out)
            run.history.append(record)
            if log is not None:  # before the checkpoint: an epoch that is saved is told, whenever it stops
                log.write(run.history)
            if path is not None and (run.epoch % checkpoint_every == 0 or run.finished):
                save_checkpoint(path, run.state_dict())
            advance(record)
    return run.result()


def _resume(run: Run, path: Path) -> None:
    state = load_checkpoint(path, settings=run.settings)
    try:
        run.load_state_dict(state)
    except torch.OutOfMemoryError:  # nothing is wrong with the file
        raise
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, RuntimeError) as error:
        raise unreadable(path) from error


def _last_good(path: Path | None) -> str:
    if path is None or not path.exists():
        return "There is no checkpoint to go back to; pass `checkpoint` to keep one."
    return f"The last good checkpoint is {path}."
