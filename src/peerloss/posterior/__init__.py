"""Estimate the noise and the clean posterior from out-of-fold probabilities and noisy labels.

Classifiers decide by ``decision`` and audits rank by ``label_posterior``; ``calibrator`` turns scores into
probabilities.
"""

from peerloss.posterior._noise_rates import (
    CleanPosterior,
    NoiseEstimate,
    TabulatedPosterior,
    estimate_class_noise,
    fit_clean_posterior,
)
from peerloss.posterior.noise_posterior import NoisePosterior
from peerloss.posterior.report_agreement import RowNoiseCheck, check_row_noise
from peerloss.posterior.row_rates import row_rates_from_annotators, row_rates_from_margins, row_transitions

__all__ = [
    "CleanPosterior",
    "NoiseEstimate",
    "NoisePosterior",
    "RowNoiseCheck",
    "TabulatedPosterior",
    "check_row_noise",
    "estimate_class_noise",
    "fit_clean_posterior",
    "row_rates_from_annotators",
    "row_rates_from_margins",
    "row_transitions",
]
