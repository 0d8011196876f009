"""Checkpoints: one file, written all or not at all, read without running anything from it."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import torch

from peerloss._files import atomic_files, check_output_file
from peerloss.exceptions import InvalidInputError, OutputError

if TYPE_CHECKING:
    from pathlib import Path


def write_whole(path: Path, write: Any, *, mode: str = "wb") -> None:
    """Let ``write(stream)`` fill a file beside ``path`` that then takes its place."""
    with atomic_files(path) as (unfinished,), unfinished.open(mode) as stream:
        write(stream)


def check_writable(path: Path, name: str) -> None:
    """Refuse a path, given as the argument ``name``, that :func:`write_whole` could not write to later."""
    try:
        check_output_file(path)
    except (InvalidInputError, OutputError) as error:
        raise InvalidInputError(
            f"`{name}` needs {path}, which cannot be written: {error} Nothing has been trained yet."
        ) from error


def save_checkpoint(path: Path, state: dict[str, Any]) -> None:
    """Write ``state``: tensors, numbers, strings and containers of them."""
    write_whole(path, lambda stream: torch.save(state, stream))


def load_checkpoint(path: Path, *, settings: dict[str, Any]) -> dict[str, Any]:
    """Read a checkpoint of a training with the same ``settings``."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InvalidInputError(
            f"`checkpoint` {path} cannot be opened: {error}. Pass a file that can be read and written."
        ) from error
    try:  # from memory: of a file that was cut off, torch says that it cannot be opened
        state = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
        saved = dict(state["settings"])
    except MemoryError as error:  # the file may be in order
        raise InvalidInputError(
            f"`checkpoint` {path} does not fit into the memory: {error}. Free some, or pass another path."
        ) from error
    except Exception as error:  # a file from outside can fail in any way
        raise unreadable(path) from error
    changed = [name for name in settings if saved.get(name) != settings[name]]
    if changed:
        raise InvalidInputError(
            f"`checkpoint` {path} belongs to a training with {changed[0]} = {saved.get(changed[0])!r}; this "
            f"one has {settings[changed[0]]!r}. Use the same settings and data, or another file."
        )
    return dict(state)


def unreadable(path: Path) -> InvalidInputError:
    """Return the error for a file that does not hold a training."""
    return InvalidInputError(
        f"`checkpoint` {path} cannot be read: it is cut off or damaged, or it is not a checkpoint of "
        "train_deep. Delete it to start again, or pass another path."
    )
