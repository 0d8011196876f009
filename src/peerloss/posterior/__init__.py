"""Estimate the noise and the clean posterior from out-of-fold probabilities and noisy labels.

``estimate_class_noise`` is the one estimate of T that classifiers and audit report. Its parts:

- two classes: ``_two_classes`` (rates and posterior from a score), ``_label_curves`` (the fit),
  ``_rate_priors`` (the measured priors);
- more classes: ``_counted_noise`` (T from confident rows), ``many_classes`` (clean posterior through T);
- ``decision``: noisy probabilities to decisions, α and an estimate of accuracy, for the classifiers;
- ``label_posterior``: P(label wrong) of every row for the audit, with ``_ranking`` and ``_ranking_curve``;
- ``calibrator``: scores to probabilities; ``misfit``: whether the noise model explains the labels.
"""

from peerloss.posterior._noise_estimate import NoiseEstimate, estimate_class_noise
from peerloss.posterior._two_classes import CleanPosterior, fit_clean_posterior

__all__ = ["CleanPosterior", "NoiseEstimate", "estimate_class_noise", "fit_clean_posterior"]
