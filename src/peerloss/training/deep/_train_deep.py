"""One loop for deep networks: any model, any loss of this package, data that stay on the device if they fit.

Nothing waits for the device inside an epoch. The order, crops and flips of a whole epoch are drawn on the
device at its start, losses are summed there, and the results are read at the end of the epoch.
"""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from peerloss._device import resolve_device
from peerloss._validation import check_count, short_repr
from peerloss.exceptions import DivergenceError, InvalidInputError
from peerloss.training.deep._deep_run import DeepResult, Run
from peerloss.training.deep._inputs import held_out_rows
from peerloss.training.deep._recipe import DeepRecipe
from peerloss.training.deep._training_output import (
    TABLE,
    CheckpointWriter,
    check_writable,
    epoch_log,
    epoch_progress,
    read_checkpoint,
    resume,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import torch
    from numpy.typing import ArrayLike
    from torch import Tensor, nn
    from torch.utils.data import Dataset


def train_deep(
    model: nn.Module,
    loss: Callable[[Tensor, Tensor], Tensor],
    X: Tensor | ArrayLike | Mapping[str, Any] | Dataset[Any],
    y: Tensor | ArrayLike,
    *,
    recipe: DeepRecipe | None = None,
    validation: tuple[Any, Any] | None = None,
    device: str | torch.device | None = "auto",
    data_on_device: bool | str = "auto",
    checkpoint: str | Path | None = None,
    checkpoint_every: int = 1,
    log_dir: str | Path | None = None,
    progress: bool = False,
) -> DeepResult:
    """Train ``model`` on noisy labels.

    Afterwards the model has the last weights. The result holds these and others, such as the averaged ones.

    If ``torch.distributed`` is initialised, as under ``torchrun``, all processes train one model. Each is
    called with the same arguments and computes its share of every batch. The result is that of one process,
    up to rounding, unless a model has batch norm or dropout or is an ``Ensemble``, peers are sampled, or the
    loss is not a mean or sum over the labels of a batch (``DMILoss``, and ``cores_loss`` with its sieve).

    Parameters
    ----------
    model, loss
        Any module, and any loss of logits and labels. The module returns logits, or an object or mapping with
        ``logits``. A loss that was used before keeps the labels that it has counted; call its
        ``reset_prior()`` if the data are others.
    X
        Inputs: an array, which may be memory-mapped, a tensor, or a map-style
        :class:`~torch.utils.data.Dataset` that returns one input per index, always the same one. uint8 images
        (n, height, width, channels) are scaled and augmented; other inputs are passed to the model unchanged.
        A mapping of names to arrays with one entry per row, such as ``input_ids`` and ``attention_mask``, is
        passed as keywords.
    y
        Noisy labels. A label of -1 marks a row without a label: the loss ignores it, and a sieve trains it on
        the predictions of the model. A sieve does the same with labels that are the ``ignore_index`` of the
        loss. Soft labels (n, K) are floats that sum to one in each row, or NaN in a
        row without a label. The losses of this package accept them as targets; a sieve does not.
    recipe
        All settings that affect the result; see :class:`DeepRecipe`.
    validation
        Held-out inputs and *noisy* labels. After each epoch their peer score is computed (with the averaged
        weights, if there are any), and the weights with the best score are kept.
    device
        ``"auto"`` (or ``None``) uses a GPU if there is one. Otherwise ``"cpu"``, ``"cuda"`` or another torch
        device.
    data_on_device
        Whether all inputs are kept on the device, which is fastest. Otherwise a thread reads the next batches
        while the device computes, and only a few batches are on the device. ``"auto"`` keeps inputs on a GPU
        if they need at most a third of its free memory, and on the CPU if they need at most a third of the
        memory of the machine or container. The results do not depend on it.
    checkpoint, checkpoint_every
        File to save to, and the number of epochs between two saves. Training continues while a copy of its
        state is written. If the file exists, training resumes from it and ends with the same weights as an
        uninterrupted run.
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
    recipe = DeepRecipe() if recipe is None else recipe
    if not isinstance(recipe, DeepRecipe):
        raise InvalidInputError(
            f"`recipe` must be a DeepRecipe, such as DeepRecipe(epochs=10); got {short_repr(recipe)}."
        )
    chosen = resolve_device(device)
    held_out = None if validation is None else held_out_rows(validation, model, chosen, data_on_device)
    run = Run(model, loss, X, y, recipe, chosen, data_on_device=data_on_device, validation=held_out)
    if run.recipe.patience is not None and validation is None:
        raise InvalidInputError(
            "`patience` needs `validation`: it counts epochs without a better noisy validation score. Pass "
            "held-out rows, or patience=None."
        )
    path, folder = _as_path(checkpoint, "checkpoint"), _as_path(log_dir, "log_dir")
    _prepare_files(run, path, folder)
    is_first = run.ranks.number == 0
    with (
        nullcontext() if path is None else CheckpointWriter(path, chosen) as writer,
        epoch_log(folder if is_first else None, done=run.epoch) as log,
        epoch_progress(run.recipe.epochs, done=run.epoch, show=progress and is_first) as advance,
    ):
        while not run.finished:
            number = run.epoch + 1
            try:
                record = run.train_epoch()
            except DivergenceError as error:
                raise DivergenceError(f"epoch {number}: {error} {_last_good(path, writer)}") from error
            if held_out is not None:
                record |= run.score(*held_out)
            run.history.append(record)
            # Before the checkpoint: every saved epoch is logged, even after a crash here.
            run.ranks.on_first(partial(log, run.history))
            if writer is not None and (run.epoch % checkpoint_every == 0 or run.finished):
                run.ranks.on_first(partial(writer.save, run.state_dict()))
            advance(record)
        if writer is not None:
            run.ranks.on_first(writer.wait)  # an error of the last write ends all processes
    return run.result()


def _as_path(value: Any, name: str) -> Path | None:
    if value is None or isinstance(value, str | PathLike):
        return None if value is None else Path(value)
    raise InvalidInputError(f"`{name}` must be a path, such as 'run.pt'; got {short_repr(value)}.")


def _prepare_files(run: Run, path: Path | None, folder: Path | None) -> None:
    """Resume from an existing checkpoint, and refuse files that cannot be written before training."""
    if path is not None:
        content = run.ranks.on_first(partial(read_checkpoint, path))
        if content is not None:
            resume(path, content, run)
        if not run.finished:
            run.ranks.on_first(partial(check_writable, path, "checkpoint"))
    if folder is not None:
        run.ranks.on_first(partial(check_writable, folder / TABLE, "log_dir"))


def _last_good(path: Path | None, writer: CheckpointWriter | None) -> str:
    failed = ""
    if writer is not None:
        try:
            writer.wait()  # the file may not exist yet
        except Exception as error:  # noqa: BLE001 (the divergence is reported, and this with it)
            failed = f"The checkpoint of the epoch before could not be written: {error} "
    if path is None or not path.exists():
        advice = "make it writable" if failed else "pass `checkpoint` to keep one"
        return f"{failed}There is no checkpoint to return to; {advice}."
    return f"{failed}The last good checkpoint is {path}."
