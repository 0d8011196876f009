"""Label noise: models, adding it to labels, estimating it, and private releases of labels."""

from peerloss._deprecation import renamed
from peerloss.noise._instance import InstanceNoise, flip_labels
from peerloss.noise._model import NoiseModel, as_noise_model
from peerloss.noise._private_release import private_label_frequencies, release_labels
from peerloss.noise.estimate import estimate_noise

__all__ = [
    "InstanceNoise",
    "NoiseModel",
    "as_noise_model",
    "estimate_noise",
    "flip_labels",
    "private_label_frequencies",
    "release_labels",
]

__getattr__ = renamed(
    __name__, {name: f"peerloss.posterior.{name}" for name in ("CleanPosterior", "fit_clean_posterior")}
)
