"""What a training run writes: its checkpoint, ``metrics.csv``, TensorBoard events and the progress bar."""

from __future__ import annotations

import csv
import hashlib
import io
from contextlib import contextmanager
from dataclasses import asdict
from importlib.util import find_spec
from itertools import count
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from peerloss._files import atomic_stream, check_output_file
from peerloss._progress import announce, show_progress
from peerloss.exceptions import InvalidInputError, OutputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from peerloss.training.deep._deep_run import Run
    from peerloss.training.deep._recipe import DeepRecipe

Record = dict[str, float]
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


def resume(path: Path, run: Run) -> None:
    """Continue ``run`` from the checkpoint of a training run with the same settings."""
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
        raise _unreadable(path) from error
    settings = run.settings
    if not _have_same_names(saved, settings) or state.keys() != run.state_dict().keys():
        raise InvalidInputError(
            f"`checkpoint` {path} was written by another version of peerloss, with other settings. Delete it "
            "to start again, or pass a path in another folder."
        )
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
    recipe: DeepRecipe, model: nn.Module, loss: Any, X: Tensor, y: Tensor
) -> dict[str, Any]:
    """Return what must be equal in a checkpoint and a run; call it before the first step changes α.

    ``y`` are class codes, or soft labels, which are NaN in rows without a label.
    """
    layout = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    # The repr of a function holds its address, which changes; the repr of a module holds its settings.
    name = repr(loss) if isinstance(loss, nn.Module) else getattr(loss, "__qualname__", type(loss).__name__)
    return {
        **asdict(recipe),
        "rows": len(X),
        "labelled": int((y >= 0).sum() if y.ndim == 1 else (~y.isnan()).all(dim=1).sum()),
        "model": f"{type(model).__name__} {_digest(repr(layout).encode())}",
        "loss": name,
        "fingerprint of X": _fingerprint(X[:: -(-len(X) // FINGERPRINT_ROWS)]),
        "fingerprint of y": _fingerprint(y),
    }


def _fingerprint(rows: Tensor) -> str:
    return _digest(rows.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())


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
