"""Save fitted models to folders without pickle, and load them with every file checked."""

from peerloss.persistence.model_folder import load_model, read_manifest, save_model

__all__ = ["load_model", "read_manifest", "save_model"]
