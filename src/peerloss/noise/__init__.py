"""Label noise: models, adding it to labels, estimating it."""

from peerloss._deprecation import renamed
from peerloss.noise._estimate import estimate_noise
from peerloss.noise._flip import flip_labels
from peerloss.noise._instance import InstanceNoise
from peerloss.noise._model import NoiseModel, as_noise_model

__all__ = [
    "InstanceNoise",
    "NoiseModel",
    "as_noise_model",
    "estimate_noise",
    "flip_labels",
]

__getattr__ = renamed(
    __name__, {name: f"peerloss.posterior.{name}" for name in ("CleanPosterior", "fit_clean_posterior")}
)
