"""Save fitted models to folders without pickle, and load them with every file checked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerloss._lazy_names import lazy_names

if TYPE_CHECKING:
    from peerloss.persistence.manifest import read_manifest
    from peerloss.persistence.model_folder import load_model, save_model

#: Module → public names that are imported from it.
_NAMES = {"manifest": "read_manifest", "model_folder": "load_model save_model"}

__all__ = ["load_model", "read_manifest", "save_model"]

__getattr__, __dir__ = lazy_names(__name__, _NAMES, modules=("manifest", "model_folder"))
