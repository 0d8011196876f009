"""Checkpoints: one file, written all or not at all, read without running anything from it."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import torch

from peerloss.exceptions import InvalidInputError


def write_whole(path: Path, write: Any, *, mode: str = "wb") -> None:
    """Let ``write(stream)`` fill a file beside ``path`` that then takes its place."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, mode) as stream:
            write(stream)
            stream.flush()
            os.fsync(stream.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def save_checkpoint(path: Path, state: dict[str, Any]) -> None:
    """Write ``state``: tensors, numbers, strings and containers of them."""
    write_whole(path, lambda stream: torch.save(state, stream))


def load_checkpoint(path: Path, *, settings: dict[str, Any]) -> dict[str, Any]:
    """Read a checkpoint of a training with the same ``settings``."""
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
        saved = state["settings"]
    except Exception as error:  # a file from outside can fail in any way
        raise InvalidInputError(
            f"`checkpoint` {path} cannot be read: {error}. Delete it to start anew."
        ) from error
    changed = [name for name in settings if saved.get(name) != settings[name]]
    if changed:
        raise InvalidInputError(
            f"`checkpoint` {path} belongs to a training with {changed[0]} = {saved.get(changed[0])!r}; this "
            f"one has {settings[changed[0]]!r}. Use the same settings or another file."
        )
    return dict(state)
