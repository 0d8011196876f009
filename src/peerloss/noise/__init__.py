"""Label noise: models, adding it to labels, estimating it."""

from peerloss._deprecation import renamed
from peerloss.noise._instance import InstanceNoise, flip_labels
from peerloss.noise._model import NoiseModel, as_noise_model
from peerloss.noise.estimate import estimate_noise

__all__ = ["InstanceNoise", "NoiseModel", "as_noise_model", "estimate_noise", "flip_labels"]

__getattr__ = renamed(
    __name__, {name: f"peerloss.posterior.{name}" for name in ("CleanPosterior", "fit_clean_posterior")}
)
