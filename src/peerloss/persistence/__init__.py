"""Save fitted models to folders without pickle, and load them with every file checked.

``model_folder``
    ``save_model`` and ``load_model``: the files of a folder, its manifest and its hashes.
``_state``
    Converts a model to JSON and arrays, and back.
``_own_types``
    The classes that the JSON may name.
``_skops_parts``, ``_skops_types``
    Other scikit-learn objects, saved by skops; the types that they may have.
``_content_checks``
    Checks indices and shapes of loaded objects before compiled code uses them.
``_tree_arrays``, ``_checked_boosters``
    Decision trees as arrays; LightGBM and XGBoost models, rebuilt from checked values.
"""

from peerloss.persistence.model_folder import load_model, read_manifest, save_model

__all__ = ["load_model", "read_manifest", "save_model"]
