"""What a training writes: its checkpoint, ``metrics.csv``, TensorBoard events and the progress bar."""

from __future__ import annotations

import csv
import hashlib
import io
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from importlib.util import find_spec
from itertools import count
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor, nn

from peerloss._files import atomic_stream, check_output_file
from peerloss.exceptions import InvalidInputError, OutputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from peerloss.training.deep._recipe import DeepRecipe

Record = dict[str, float]
#: Name of the table in the folder of the log.
TABLE = "metrics.csv"
#: Number of rows of X in its fingerprint. A hash of all rows would take longer than an epoch on large data.
FINGERPRINT_ROWS = 64


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


def load_checkpoint(path: Path, *, settings: dict[str, Any]) -> dict[str, Any]:
    """Read the checkpoint of a training with the same ``settings``."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InvalidInputError(
            f"`checkpoint` {path} cannot be opened: {error}. Pass a file that can be read and written."
        ) from error
    try:  # from memory: for a truncated file torch reports that it cannot be opened
        state = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
        saved = dict(state["settings"])
    except MemoryError as error:  # the file may be intact
        raise InvalidInputError(
            f"`checkpoint` {path} does not fit into memory: {error}. Free some memory, or pass another path."
        ) from error
    except Exception as error:  # a damaged file can fail in any way
        raise unreadable(path) from error
    changed = [name for name in settings if saved.get(name) != settings[name]]
    if changed:
        raise InvalidInputError(
            f"`checkpoint` {path} belongs to a training with {changed[0]} = {saved.get(changed[0])!r}; this "
            f"one has {settings[changed[0]]!r}. Use the same settings and data, or another file."
        )
    return dict(state)


def unreadable(path: Path) -> InvalidInputError:
    """Return the error for a file that is not an intact checkpoint."""
    return InvalidInputError(
        f"`checkpoint` {path} cannot be read: it is truncated or damaged, or it is not a checkpoint of "
        "train_deep. Delete it to start again, or pass another path."
    )


def training_settings(
    recipe: DeepRecipe, model: nn.Module, loss: Any, X: Tensor, y: Tensor
) -> dict[str, Any]:
    """Return everything that a checkpoint must share with the training, as plain numbers and strings by name.

    Must be called before the first step, while the α of ``loss`` is that of the recipe.
    """
    layout = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    # The repr of a function holds its address, which changes; the repr of a module holds its settings.
    name = repr(loss) if isinstance(loss, nn.Module) else getattr(loss, "__qualname__", type(loss).__name__)
    return {
        **asdict(recipe),
        "rows": len(X),
        "labelled": int((y >= 0).sum()),
        "model": f"{type(model).__name__} {_digest(repr(layout).encode())}",
        "loss": name,
        "fingerprint of X": _fingerprint(X[:: -(-len(X) // FINGERPRINT_ROWS)]),
        "fingerprint of y": _fingerprint(y),
    }


def _fingerprint(rows: Tensor) -> str:
    return _digest(rows.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:12]


class EpochLog:
    """Writes one line per epoch into ``folder``, for a training of which ``done`` epochs are finished."""

    def __init__(self, folder: Path, *, done: int = 0) -> None:
        self._table = folder / TABLE
        if not done:
            _keep_earlier(self._table)
        self._board: Any = None
        if find_spec("tensorboard") is not None:
            from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415 (optional)

            # Epochs after the last checkpoint are repeated, so their old values are removed.
            self._board = SummaryWriter(str(folder), purge_step=done + 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._board is not None:
            self._board.close()

    def write(self, history: list[Record]) -> None:
        """Rewrite the table, so that no line is repeated after a resume; add the last epoch to the board."""
        names = dict.fromkeys(name for record in history for name in record)
        with atomic_stream(self._table, "w") as stream:
            writer = csv.DictWriter(stream, list(names), restval="")
            writer.writeheader()
            writer.writerows(history)
        if self._board is not None:
            for name, value in history[-1].items():
                self._board.add_scalar(name, value, int(history[-1]["epoch"]))
            self._board.flush()


def _keep_earlier(table: Path) -> None:
    """Rename the table of an earlier training to ``metrics-1.csv``, ``metrics-2.csv`` and so on."""
    if table.exists():
        number = next(n for n in count(1) if not table.with_stem(f"{table.stem}-{n}").exists())
        table.rename(table.with_stem(f"{table.stem}-{number}"))


def progress_bar(epochs: int, *, done: int, show: bool) -> AbstractContextManager[Callable[[Record], None]]:
    """Return a context that yields a function to call after each epoch."""
    return _bar(epochs, done) if show else nullcontext(lambda _: None)


@contextmanager
def _bar(epochs: int, done: int) -> Iterator[Callable[[Record], None]]:
    from rich.progress import (  # noqa: PLC0415 (only if a bar is shown)
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn("epochs"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, TextColumn("{task.description}")) as progress:
        task = progress.add_task("", total=epochs, completed=done)

        def advance(record: Record) -> None:
            values = " ".join(f"{name} {value:.4g}" for name, value in record.items() if name != "epoch")
            progress.update(task, advance=1, description=values)

        yield advance
