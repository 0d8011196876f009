"""Estimate the noise rates and the clean posterior from out-of-fold probabilities and noisy labels."""

from peerloss.posterior._two_classes import CleanPosterior, fit_clean_posterior

__all__ = ["CleanPosterior", "fit_clean_posterior"]
