"""What a checkpoint has to share with the training that goes on from it: settings, model, loss and data."""

from __future__ import annotations

import hashlib
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from peerloss.training._recipe import DeepRecipe

#: Rows of X that are looked at. A hash of all would take longer than an epoch on large data.
ROWS_SEEN = 64


def settings_of(recipe: DeepRecipe, model: nn.Module, loss: Any, X: Tensor, y: Tensor) -> dict[str, Any]:
    """Return plain numbers and texts, by name; ``loss`` before the first step, while α is the recipe's."""
    layout = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    # The address of a function would differ each time; a module says what it is.
    name = repr(loss) if isinstance(loss, nn.Module) else getattr(loss, "__qualname__", type(loss).__name__)
    return {
        **asdict(recipe),
        "rows": len(X),
        "labelled": int((y >= 0).sum()),
        "model": f"{type(model).__name__} {_digest(repr(layout).encode())}",
        "loss": name,
        "fingerprint of X": _fingerprint(X[:: -(-len(X) // ROWS_SEEN)]),
        "fingerprint of y": _fingerprint(y),
    }


def _fingerprint(rows: Tensor) -> str:
    return _digest(rows.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:12]
