"""Features of images, texts and anything else, for the audit and for every classifier.

Pretrained models are read from folders of safetensors files, or downloaded if they are given by name. Without
a model, images are described by statistics that are computed here.
"""

from peerloss.features._feature_file import read_features
from peerloss.features._image_features import image_features
from peerloss.features._principal_components import principal_components
from peerloss.features._text_features import text_features

__all__ = ["image_features", "principal_components", "read_features", "text_features"]
