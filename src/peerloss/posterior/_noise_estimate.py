"""The one estimate of class-conditional noise that is reported: by the classifiers and by the audit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from peerloss.noise import NoiseModel
from peerloss.posterior._counted_noise import count_noise
from peerloss.posterior._two_classes import CleanPosterior, fit_clean_posterior, log_odds

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from peerloss._validation import BoolArray, FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class NoiseEstimate:
    """Estimated noise with its uncertainty; created by :func:`estimate_class_noise`."""

    noise: NoiseModel
    low: FloatArray
    high: FloatArray
    """Ends of the 90 % intervals of each entry of T, shape (K, K)."""
    posterior: CleanPosterior | None
    """For two classes: the fitted clean posterior."""


def estimate_class_noise(
    proba: NDArray[Any],
    codes: IntArray,
    *,
    weight: FloatArray | None = None,
    gold: tuple[IntArray, IntArray] | None = None,
    verified: BoolArray | None = None,
) -> NoiseEstimate:
    """Estimate T from out-of-fold probabilities of the noisy labels.

    For two classes the rates follow from where the noisy labels level off over the log-odds
    (:func:`fit_clean_posterior`). For more classes T is counted from confident rows and shrunk towards
    uniform noise. ``PeerClassifier``, ``PeerPlugInClassifier``, ``RobustMLPClassifier(alpha="auto")`` and
    :func:`~peerloss.find_label_issues` report this estimate, so they agree on the same probabilities.
    :func:`peerloss.estimate_noise` has simpler methods, which need no model of the scores.

    Parameters
    ----------
    proba
        *Out-of-fold* probabilities P(noisy = k | x), shape (n, K).
    codes
        Noisy labels 0..K-1, shape (n,).
    weight
        Non-negative weights of the rows; with more than two classes they only exclude rows of weight 0.
    gold, verified
        Known clean labels, for two classes; see :func:`fit_clean_posterior`.

    Returns
    -------
    The :class:`NoiseEstimate`.
    """
    if proba.shape[1] == 2:
        posterior = fit_clean_posterior(codes, log_odds(proba), weight=weight, gold=gold, verified=verified)
        return NoiseEstimate(posterior.noise, *posterior.interval(), posterior)
    if weight is not None and not weight.all():
        proba, codes = proba[weight > 0], codes[weight > 0]
    counted = count_noise(proba, codes)
    return NoiseEstimate(NoiseModel(counted.transition), *counted.interval(), None)
