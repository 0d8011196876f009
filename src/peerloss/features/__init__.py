"""Features of images, texts and anything else, for the audit and for every classifier.

Pretrained models are read from folders of safetensors files, or downloaded if they are given by name. Without
a model, images are described by statistics that are computed here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerloss._lazy_names import lazy_names

if TYPE_CHECKING:
    from peerloss.features._feature_file import read_features
    from peerloss.features._image_features import image_features
    from peerloss.features._principal_components import principal_components
    from peerloss.features._text_vectors import text_features

#: Module → public names that are imported from it.
_NAMES = {
    "_feature_file": "read_features",
    "_image_features": "image_features",
    "_principal_components": "principal_components",
    "_text_vectors": "text_features",
}

__all__ = ["image_features", "principal_components", "read_features", "text_features"]

__getattr__, __dir__ = lazy_names(__name__, _NAMES)
