"""Estimate the noise and the clean posterior from out-of-fold probabilities and noisy labels.

``_noise_estimate`` has the one estimate of T that classifiers and audit report. Two classes:
``_label_curves`` (the fit and the measured priors), ``_two_classes``, and ``_ranking`` for the audit. More
classes: ``many_classes``. Built on these: ``decision`` (for the classifiers), ``label_posterior`` (P(label
wrong) of every row, for the audit) and ``misfit`` (whether the noise explains the labels). ``calibrator``
turns scores into probabilities.
"""

from peerloss.posterior._noise_estimate import NoiseEstimate, estimate_class_noise
from peerloss.posterior._two_classes import CleanPosterior, fit_clean_posterior

__all__ = ["CleanPosterior", "NoiseEstimate", "estimate_class_noise", "fit_clean_posterior"]
