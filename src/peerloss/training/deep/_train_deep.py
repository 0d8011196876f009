"""One loop for deep networks: any model, any loss of this package, data that stay on the device.

Nothing waits for the device inside an epoch. The order, crops and flips of a whole epoch are drawn on the
device at its start, losses are summed there, and the results are read at the end of the epoch.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from peerloss._device import resolve_device
from peerloss._validation import check_count
from peerloss.exceptions import DivergenceError, InvalidInputError
from peerloss.training.deep._deep_run import DeepResult, Run
from peerloss.training.deep._inputs import held_out_rows
from peerloss.training.deep._recipe import DeepRecipe
from peerloss.training.deep._training_output import (
    TABLE,
    check_writable,
    epoch_log,
    epoch_progress,
    resume,
    save_checkpoint,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch
    from numpy.typing import ArrayLike
    from torch import Tensor, nn


def train_deep(
    model: nn.Module,
    loss: Callable[[Tensor, Tensor], Tensor],
    X: Tensor | ArrayLike,
    y: Tensor | ArrayLike,
    *,
    recipe: DeepRecipe | None = None,
    validation: tuple[Any, Any] | None = None,
    device: str | torch.device | None = "auto",
    checkpoint: str | Path | None = None,
    checkpoint_every: int = 1,
    log_dir: str | Path | None = None,
    progress: bool = False,
) -> DeepResult:
    """Train ``model`` on noisy labels.

    Afterwards the model has the last weights. The result holds these and others, such as the averaged ones.

    Parameters
    ----------
    model, loss
        Any module, and any loss of logits and labels.
    X, y
        Inputs and noisy labels, which are kept on the device. uint8 images (n, height, width, channels) are
        scaled and augmented; other inputs are passed to the model unchanged. A label of -1 marks a row
        without a label: the loss ignores it, and a sieve trains it on the predictions of the model. Soft
        labels (n, K) are floats that sum to one in each row, or NaN in a row without a label. The losses of
        this package accept them as targets; a sieve does not.
    recipe
        All settings that affect the result; see :class:`DeepRecipe`.
    validation
        Held-out inputs and *noisy* labels. After each epoch their peer score is computed (with the averaged
        weights, if there are any), and the weights with the best score are kept.
    device
        ``"auto"`` (or ``None``) uses a GPU if there is one. Otherwise ``"cpu"``, ``"cuda"`` or another torch
        device.
    checkpoint, checkpoint_every
        File to save to, and the number of epochs between two saves. If the file exists, training resumes from
        it and ends with the same weights as an uninterrupted run.
    log_dir
        Folder for ``metrics.csv`` and, if TensorBoard is installed, its events. The table of an earlier
        training run in the folder is renamed.
    progress
        Whether to show the progress on stderr: epoch, its results, percentage, elapsed time, time left.

    Raises
    ------
    InvalidInputError
        Before training, if an existing checkpoint cannot be read or belongs to another training run, or if
        the checkpoint or the log cannot be written.
    DivergenceError
        If the loss is not finite, or has no lower bound and is far below zero. The message says what to
        change and names the last good checkpoint.
    """
    check_count(checkpoint_every, "checkpoint_every")
    chosen = resolve_device(device)
    run = Run(model, loss, X, y, recipe or DeepRecipe(), chosen)
    if run.recipe.patience is not None and validation is None:
        raise InvalidInputError(
            "`patience` needs `validation`: it counts epochs without a better noisy validation score. Pass "
            "held-out rows, or patience=None."
        )
    held_out = None if validation is None else held_out_rows(validation, model, chosen)
    path = None if checkpoint is None else Path(checkpoint)
    if path is not None and path.exists():
        resume(path, run)
    if path is not None and not run.finished:
        check_writable(path, "checkpoint")
    folder = None if log_dir is None else Path(log_dir)
    if folder is not None:
        check_writable(folder / TABLE, "log_dir")
    with (
        epoch_log(folder, done=run.epoch) as log,
        epoch_progress(run.recipe.epochs, done=run.epoch, show=progress) as advance,
    ):
        while not run.finished:
            number = run.epoch + 1
            try:
                record = run.train_epoch()
            except DivergenceError as error:
                raise DivergenceError(f"epoch {number}: {error} {_last_good(path)}") from error
            if held_out is not None:
                record |= run.score(*held_out)
            run.history.append(record)
            log(run.history)  # before the checkpoint: every saved epoch is logged, even after a crash here
            if path is not None and (run.epoch % checkpoint_every == 0 or run.finished):
                save_checkpoint(path, run.state_dict())
            advance(record)
    return run.result()


def _last_good(path: Path | None) -> str:
    if path is None or not path.exists():
        return "There is no checkpoint to return to; pass `checkpoint` to keep one."
    return f"The last good checkpoint is {path}."
