"""What a training run writes: its checkpoint, ``metrics.csv``, TensorBoard events and the progress bar."""

from __future__ import annotations

import copy
import csv
import hashlib
import io
import re
import zipfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from importlib.util import find_spec
from itertools import count
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor, nn

from peerloss._files import atomic_stream, check_output_file
from peerloss._progress import announce, show_progress
from peerloss.exceptions import InvalidInputError, OutputError
from peerloss.training.deep._input_rows import by_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future
    from pathlib import Path

    from peerloss._validation import IntArray
    from peerloss.training.deep._deep_run import Run
    from peerloss.training.deep._input_rows import InputRows, Inputs
    from peerloss.training.deep._recipe import DeepRecipe

Record = dict[str, float]
TABLE = "metrics.csv"
#: Number of rows of X in its fingerprint. A hash of all rows would take longer than an epoch on large data.
FINGERPRINT_ROWS = 64
#: Name of the fingerprint of the validation rows, and its value if there are none.
VALIDATION, NO_VALIDATION = "fingerprint of validation", "none"
#: Addresses of functions in the representation of a module, which differ between processes.
_ADDRESS = re.compile(" at 0x[0-9a-f]+")
#: Settings that checkpoints of earlier versions do not have, with the values that they had without a name.
ADDED_SETTINGS = {"optimizer": "sgd"}


def check_writable(path: Path, name: str) -> None:
    """Refuse, before training, a path given as the argument ``name`` that cannot be written."""
    try:
        check_output_file(path)
    except (InvalidInputError, OutputError) as error:
        raise InvalidInputError(
            f"`{name}` needs {path}, which cannot be written: {error} Nothing has been trained yet."
        ) from error


def save_checkpoint(path: Path, state: dict[str, Any]) -> None:
    """Write ``state``: tensors, numbers, strings and containers of them."""
    with atomic_stream(path) as stream:
        torch.save(state, stream)


class CheckpointWriter:
    """Writes checkpoints in a thread while training continues; at most one write is in progress.

    An error of a write is raised by the next call, or at the end of the block. If the block ends with another
    error, the write in progress is completed first.

    Parameters
    ----------
    path
        File to write to.
    device
        Device of the tensors.
    """

    def __init__(self, path: Path, device: torch.device) -> None:
        self._path = path
        self._pool = ThreadPoolExecutor(max_workers=1)
        self._in_progress: Future[None] | None = None
        # A stream of its own: the copy to the host must not wait for the training steps that follow.
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    def save(self, state: dict[str, Any]) -> None:
        """Copy ``state`` on its device and start to write it, after the previous write has ended."""
        self.wait()
        try:
            state = _copied(state)
        except torch.OutOfMemoryError:  # without a copy, training must wait
            save_checkpoint(self._path, state)  # in the stream of training, after the steps in progress
            return
        if self._stream is not None:
            self._stream.wait_stream(torch.cuda.current_stream(self._stream.device))
        self._in_progress = self._pool.submit(self._write, state)

    def wait(self) -> None:
        """Wait for the write in progress and raise its error."""
        write, self._in_progress = self._in_progress, None
        if write is not None:
            write.result()

    def _write(self, state: dict[str, Any]) -> None:
        with nullcontext() if self._stream is None else torch.cuda.stream(self._stream):
            save_checkpoint(self._path, state)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._pool.shutdown()
        if kind is None:
            self.wait()


def _copied(value: Any) -> Any:
    """Return a copy of containers and tensors, which training changes."""
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, dict):
        copied = copy.copy(value)  # with the metadata that a module adds to its state
        copied.update((name, _copied(entry)) for name, entry in value.items())
        return copied
    if isinstance(value, list | tuple):
        return type(value)(_copied(entry) for entry in value)
    return value


def read_checkpoint(path: Path) -> bytes | None:
    """Return the content of a checkpoint, ``None`` if there is none."""
    if not path.exists():
        return None
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidInputError(
            f"`checkpoint` {path} cannot be opened: {error}. Pass a file that can be read and written."
        ) from error


def resume(path: Path, content: bytes, run: Run) -> None:
    """Continue ``run`` from the content of a checkpoint of a training run with the same settings."""
    try:  # from memory: for a truncated file torch reports that it cannot be opened
        _check_sums(content)
        state = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
        saved = {**ADDED_SETTINGS, **state["settings"]}
    except MemoryError as error:  # the file may be intact
        raise InvalidInputError(
            f"`checkpoint` {path} does not fit into memory: {error}. Free some memory, or pass another path."
        ) from error
    except Exception as error:  # a damaged file can fail in any way
        raise _unreadable(path) from error
    settings = run.settings
    if not _have_same_names(saved, settings) or state.keys() != run.state_dict().keys():
        raise InvalidInputError(
            f"`checkpoint` {path} was written by another version of peerloss, with other settings. Delete it "
            "to start again, or pass a path in another folder."
        )
    if NO_VALIDATION in (saved[VALIDATION], settings[VALIDATION]):  # it may be added or left out
        saved[VALIDATION] = settings[VALIDATION]
    changed = [name for name in settings if saved.get(name) != settings[name]]
    if changed:
        raise InvalidInputError(
            f"`checkpoint` {path} belongs to a training run with {changed[0]} = {saved.get(changed[0])!r}; "
            f"this one has {settings[changed[0]]!r}. Use the same settings and data, or another file."
        )
    try:
        run.load_state_dict(state)
    except torch.OutOfMemoryError:  # the file is intact
        raise
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, RuntimeError) as error:
        raise _unreadable(path) from error


def _check_sums(content: bytes) -> None:
    """Compare the content with the checksums in it, which torch ignores."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        damaged = archive.testzip()
    if damaged is not None:
        raise ValueError(damaged)


def _have_same_names(saved: dict[str, Any], settings: dict[str, Any]) -> bool:
    """Whether the settings have the same names, also those inside a setting such as the sieve."""
    return saved.keys() == settings.keys() and all(
        _have_same_names(value, settings[name])
        for name, value in saved.items()
        if isinstance(value, dict) and isinstance(settings[name], dict)
    )


def _unreadable(path: Path) -> InvalidInputError:
    return InvalidInputError(
        f"`checkpoint` {path} cannot be read: it is truncated or damaged, or it is not a checkpoint of "
        "train_deep. Delete it to start again, or pass another path."
    )


def training_settings(
    recipe: DeepRecipe,
    model: nn.Module,
    loss: Any,
    X: InputRows,
    y: Tensor,
    validation: tuple[InputRows, IntArray] | None = None,
) -> dict[str, Any]:
    """Return what must be equal in a checkpoint and a run; call it before the first step changes α.

    ``y`` are class codes, or soft labels, which are NaN in rows without a label.
    """
    layout = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    # The repr of a function holds its address, which changes; the repr of a module holds its settings.
    name = repr(loss) if isinstance(loss, nn.Module) else getattr(loss, "__qualname__", type(loss).__name__)
    held_out = NO_VALIDATION
    if validation is not None:
        held_out = _digest((_fingerprint(_some_rows(validation[0])) + validation[1].tobytes().hex()).encode())
    return {
        **asdict(recipe),
        "rows": len(X),
        "labelled": int((y >= 0).sum() if y.ndim == 1 else (~y.isnan()).all(dim=1).sum()),
        "model": f"{type(model).__name__} {_digest((repr(layout) + _ADDRESS.sub('', repr(model))).encode())}",
        "loss": name,
        "fingerprint of X": _fingerprint(_some_rows(X)),
        "fingerprint of y": _fingerprint(y),
        "fingerprint of loss": _loss_fingerprint(loss),
        VALIDATION: held_out,
    }


def _loss_fingerprint(loss: Any) -> str:
    """Return a digest of the settings of a loss that is a module, without those that training changes."""
    if not isinstance(loss, nn.Module):
        return "none"
    tensors = {name: part for name, part in loss.named_buffers() if not name.endswith("label_counts")}
    numbers = {name: value for name, value in vars(loss).items() if isinstance(value, int | float | str)}
    public = {name: value for name, value in numbers.items() if name != "training" and name[0] != "_"}
    return _digest(f"{_fingerprint(tensors)} {public}".encode())


def _some_rows(X: InputRows) -> Inputs:
    rows = torch.arange(0, len(X), -(-len(X) // FINGERPRINT_ROWS), device=X.device)
    return next(X.batches(rows, len(rows)))


def _fingerprint(tensors: Inputs) -> str:
    content = (
        name.encode() + tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()
        for name, tensor in by_name(tensors).items()
    )
    return _digest(b"".join(content))


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:12]


@contextmanager
def epoch_log(folder: Path | None, *, done: int) -> Iterator[Callable[[list[Record]], None]]:
    """Yield a function that logs a history after each epoch; ``done`` epochs are logged already."""
    if folder is None:
        yield lambda _: None
        return
    table, board = folder / TABLE, None
    if not done:
        _keep_earlier(table)
    if find_spec("tensorboard") is not None:
        from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415 (optional)

        # Epochs after the last checkpoint are repeated, so their old values are removed.
        board = SummaryWriter(str(folder), purge_step=done + 1)

    def write(history: list[Record]) -> None:
        names = dict.fromkeys(name for record in history for name in record)
        with atomic_stream(table, "w") as stream:  # all of it, so that no line is repeated after a resume
            writer = csv.DictWriter(stream, list(names), restval="")
            writer.writeheader()
            writer.writerows(history)
        if board is not None:
            for name, value in history[-1].items():
                board.add_scalar(name, value, int(history[-1]["epoch"]))
            board.flush()

    try:
        yield write
    finally:
        if board is not None:
            board.close()


def _keep_earlier(table: Path) -> None:
    """Rename the table of an earlier training run to ``metrics-1.csv``, ``metrics-2.csv`` and so on."""
    if table.exists():
        number = next(n for n in count(1) if not table.with_stem(f"{table.stem}-{n}").exists())
        table.rename(table.with_stem(f"{table.stem}-{number}"))


@contextmanager
def epoch_progress(epochs: int, *, done: int, show: bool) -> Iterator[Callable[[Record], None]]:
    """Yield a function to call after each epoch; it reports the progress, which ``show`` prints on stderr."""
    with show_progress("training", show=show):

        def advance(record: Record) -> None:
            epoch = done + next(number)
            values = " ".join(f"{name} {value:.4g}" for name, value in record.items() if name != "epoch")
            announce(f"epoch {epoch} of {epochs}, {values}", epoch / epochs)

        number = count(1)
        announce(f"epoch {done} of {epochs}", done / epochs)
        yield advance
