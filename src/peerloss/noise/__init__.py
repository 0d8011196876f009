"""Label noise: models of it, ways to add it, estimates of it."""

from peerloss.noise._estimate import estimate_noise
from peerloss.noise._flip import flip_labels
from peerloss.noise._instance import InstanceNoise
from peerloss.noise._model import NoiseModel, as_noise_model
from peerloss.noise._posterior import CleanPosterior, fit_clean_posterior

__all__ = [
    "CleanPosterior",
    "InstanceNoise",
    "NoiseModel",
    "as_noise_model",
    "estimate_noise",
    "fit_clean_posterior",
    "flip_labels",
]
