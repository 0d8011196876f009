"""Checkpoints: one file, written atomically, read without executing code, and matched to its training."""

from __future__ import annotations

import hashlib
import io
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from peerloss._files import atomic_stream, check_output_file
from peerloss.exceptions import InvalidInputError, OutputError

if TYPE_CHECKING:
    from pathlib import Path

    from peerloss.training.deep._recipe import DeepRecipe

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
