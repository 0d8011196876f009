"""The weight α* at which peer risk orders classifiers as clean accuracy does (Theorem 4, Proposition 1)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from peerloss._validation import FloatArray, IntArray, as_float_array, as_prior, check_finite
from peerloss.exceptions import InvalidInputError, NotIdentifiableError
from peerloss.noise import NoiseModel, as_noise_model

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

#: Differences up to this are rounding: sums of a few products of numbers under 1.
ROUNDING = 1e-12
#: How closely an α must satisfy an equation of the paper to count as satisfying it.
EQUATION_TOLERANCE = 1e-9
_ALPHA_ADVICE = "Use `optimal_alpha(noise, clean_prior)` or a number such as 1.0."


def optimal_alpha(noise: NoiseModel | ArrayLike, clean_prior: ArrayLike) -> float:
    """Find the α* at which the peer 0-1 risk has the minimiser of the clean 0-1 risk (Theorem 4).

    Binary: ``α* = (e_neg − e_pos)/δ_p̃``, equal to the paper's 1 − (1 − Σe)·δ_p/δ_p̃ but needing only the
    *difference* of the rates. K classes (our derivation): the α for which e_k − α·π̃_k is constant in k.
    p = ½ gives 1; equal rates give 0; it exceeds 1 if noise reverses the majority; negative values are
    allowed.

    Parameters
    ----------
    noise
        A NoiseModel or a transition matrix, with Σe < 1.
    clean_prior
        P(Y = 1), or a vector over classes.

    Returns
    -------
    α*; 1.0 if every α is optimal (equal rates and a balanced noisy prior).

    Raises
    ------
    NotIdentifiableError
        If no α has the property (δ_p̃ = 0 with unequal rates; most K-class noise) or Σe ≥ 1.

    Examples
    --------
    >>> round(optimal_alpha(NoiseModel.binary(e_neg=0.1, e_pos=0.3), 0.3), 4)
    0.4545
    >>> round(optimal_alpha(NoiseModel.binary(e_neg=0.1, e_pos=0.3), 0.9), 4)
    -0.7143
    """
    model = as_noise_model(noise)
    clean = as_prior(clean_prior, "clean_prior", n_classes=model.n_classes)
    alpha = optimal_alpha_from_noisy_prior(model, clean @ model.transition)
    return 1.0 if np.ptp(clean) <= ROUNDING else alpha  # balanced classes: 1 without rounding


def optimal_alpha_from_noisy_prior(noise: NoiseModel | ArrayLike, noisy_prior: ArrayLike) -> float:
    """Find α* of Theorem 4 from the observed frequencies of the noisy labels.

    Solves ``e_k − α·π̃_k = constant``; for two classes this is ``α* = (e_neg − e_pos)/δ_p̃``.

    Parameters
    ----------
    noise
        A NoiseModel or a transition matrix, with Σe < 1.
    noisy_prior
        P(Ỹ = 1), or a vector over classes: the frequencies of the noisy labels.

    Returns
    -------
    α*; 1.0 if every α is optimal.

    Raises
    ------
    NotIdentifiableError
        If no α has the property or Σe ≥ 1.

    Examples
    --------
    >>> round(optimal_alpha_from_noisy_prior(NoiseModel.binary(0.1, 0.3), 0.28), 4)
    0.4545
    """
    model = as_noise_model(noise)
    informative_factor(model)
    rates = column_rates_of(model)
    prior = as_prior(noisy_prior, "noisy_prior", n_classes=model.n_classes)
    rates, prior = rates - rates.mean(), prior - prior.mean()
    if np.abs(prior).max() <= ROUNDING:
        if np.abs(rates).max() <= ROUNDING:
            return 1.0
        raise NotIdentifiableError(_balanced_noisy_message(model))
    # The equation is checked, in the units of the rates: α itself is unstable if π̃ is nearly balanced.
    alpha = float(rates @ prior / (prior @ prior)) + 0.0
    if np.abs(rates - alpha * prior).max() > EQUATION_TOLERANCE:
        raise NotIdentifiableError(
            "`noise` and the noisy prior admit no α*: e_k − α·π̃_k must be the same for every class, and for "
            f"{model.n_classes} classes that holds only for balanced clean classes, equal e_k, or by luck "
            f"(closest α {alpha:g}). Correct with T instead (backward or forward correction), or use "
            "`balanced_decision` if balanced accuracy is the aim."
        )
    return alpha


def optimal_alpha_as_printed(noise: NoiseModel | ArrayLike, clean_prior: ArrayLike) -> float:
    """Evaluate α* in the form printed in Theorem 4, for comparison.

    ``α* = 1 − (1 − Σe)·δ_p/δ_p̃``. It equals :func:`optimal_alpha`, since δ_p̃ = (1 − Σe)·δ_p + e_neg − e_pos.

    Parameters
    ----------
    noise
        Binary noise with Σe < 1.
    clean_prior
        P(Y = 1), or the vector of both probabilities.

    Returns
    -------
    α*.

    Raises
    ------
    NotIdentifiableError
        If δ_p̃ = 0 and the rates differ, or Σe ≥ 1.
    InvalidInputError
        If the noise is not binary.

    Examples
    --------
    >>> round(optimal_alpha_as_printed(NoiseModel.binary(e_neg=0.1, e_pos=0.3), 0.3), 4)
    0.4545
    """
    model = binary_noise(noise)
    factor = informative_factor(model)
    clean = as_prior(clean_prior, "clean_prior", n_classes=2)
    noisy = model.noisy_prior(clean)
    delta_noisy = float(noisy[1] - noisy[0])
    if abs(delta_noisy) <= 2 * ROUNDING:
        if abs(model.e_neg - model.e_pos) <= 2 * ROUNDING:
            return 1.0
        raise NotIdentifiableError(_balanced_noisy_message(model))
    return float(1.0 - factor * (clean[1] - clean[0]) / delta_noisy)


def peer_threshold(alpha: Any, noisy_prior: ArrayLike) -> float:
    """Return the noisy posterior above which the α-peer classifier predicts 1 (plug-in form, K = 2).

    ``(1 + α·δ_p̃)/2``: the population minimiser of the α-peer 0-1 risk predicts 1 iff P(Ỹ = 1 | x) exceeds
    it. At α = 1 it is the noisy prior, the threshold for balanced accuracy (Menon et al., 2015). At α* it is
    (1 + e_neg − e_pos)/2, the Bayes threshold for accuracy (Natarajan et al., 2013). If it lies
    outside [0, 1], one class is always predicted.

    Parameters
    ----------
    alpha
        Weight of the peer term.
    noisy_prior
        P(Ỹ = 1), or the vector of both probabilities.

    Returns
    -------
    The threshold.

    Raises
    ------
    InvalidInputError
        If ``noisy_prior`` does not have two classes or ``alpha`` is not finite.

    Examples
    --------
    >>> peer_threshold(1.0, 0.25)
    0.25

    References
    ----------
    Menon, van Rooyen, Ong, Williamson (2015), Learning from corrupted binary labels via class-probability
    estimation, ICML.

    Natarajan, Dhillon, Ravikumar, Tewari (2013), Learning with noisy labels, NeurIPS.
    """
    weight = check_finite(alpha, "alpha", advice=_ALPHA_ADVICE)
    negative, positive = as_prior(noisy_prior, "noisy_prior", n_classes=2)
    return float((1.0 + weight * (positive - negative)) / 2.0)


def peer_decision(noisy_posterior: ArrayLike, alpha: Any, noisy_prior: ArrayLike) -> IntArray:
    """Predict as the population minimiser of the α-peer 0-1 risk does (plug-in form, any K).

    ``argmax_k (η̃_k(x) − α·π̃_k)``; ties go to the smaller label. At α = 1 and for two classes this is best
    for balanced accuracy, for more it is not (:func:`balanced_decision`).

    Parameters
    ----------
    noisy_posterior
        P(Ỹ = k | x), one row per example and one column per class.
    alpha
        Weight of the peer term.
    noisy_prior
        P(Ỹ = 1), or a vector over classes.

    Returns
    -------
    Predicted labels, shape (n,).

    Raises
    ------
    InvalidInputError
        If shapes disagree or ``alpha`` is not finite.

    Examples
    --------
    >>> peer_decision([[0.7, 0.3], [0.8, 0.2]], 1.0, 0.25).tolist()
    [1, 0]
    """
    weight = check_finite(alpha, "alpha", advice=_ALPHA_ADVICE)
    posterior = as_float_array(noisy_posterior, "noisy_posterior", ndim=2)
    prior = as_prior(noisy_prior, "noisy_prior")
    if posterior.shape[1] != prior.size:
        raise InvalidInputError(
            f"`noisy_posterior` must have one column for each of the {prior.size} classes of `noisy_prior`; "
            f"got shape {posterior.shape}. For two classes stack (1 − η̃, η̃)."
        )
    advantage: FloatArray = posterior - weight * prior
    return np.asarray(advantage.argmax(axis=1), dtype=np.int64)


def clean_risk_difference(peer_risk_difference: Any, noise: NoiseModel | ArrayLike) -> float:
    """Turn a difference of noisy α*-peer 0-1 risks into one of clean 0-1 risks (Proposition 1).

    ``R_D(f) − R_D(g) = (R_{α*-peer}(f) − R_{α*-peer}(g)) / (1 − Σe)``, exactly, for any two classifiers.

    Parameters
    ----------
    peer_risk_difference
        R(f) − R(g) measured on noisy labels at α = α*.
    noise
        A NoiseModel or a transition matrix, with Σe < 1.

    Returns
    -------
    The difference of clean error rates.

    Raises
    ------
    NotIdentifiableError
        If no e_j exist or Σe ≥ 1.

    Examples
    --------
    >>> round(clean_risk_difference(0.03, NoiseModel.binary(0.1, 0.3)), 12)
    0.05
    """
    difference = check_finite(peer_risk_difference, "peer_risk_difference")
    return difference / informative_factor(noise)


def _balanced_noisy_message(model: NoiseModel) -> str:
    return (
        f"`noise` has no α*: the noisy labels are balanced (δ_p̃ = 0) while the rates differ: {model!r}. "
        "The paper's remark before Theorem 4: downsample one class by its noisy labels, which makes δ_p̃ ≠ 0, "
        "and ask again."
    )


def column_rates_of(noise: NoiseModel) -> FloatArray:
    """Return the e_j with ``T[i, j] = e_j`` for all i ≠ j, or raise an error if there are none."""
    rates = noise.column_rates
    if rates is None:
        raise NotIdentifiableError(
            "`noise` must satisfy T[i, j] = e_j for every i ≠ j (every binary and every uniform noise does); "
            f"got {noise!r}, for which no e_j exist (as for pair flip with more than two classes). "
            "Peer loss is not invariant under it: use backward or forward correction with T instead."
        )
    return rates


def informative_factor(noise: NoiseModel | ArrayLike) -> float:
    """Return 1 − Σe, refusing noise for which it does not exist or is not positive."""
    model = as_noise_model(noise)
    factor = 1.0 - float(column_rates_of(model).sum())
    if factor <= ROUNDING:
        raise NotIdentifiableError(
            f"`noise` must be informative, Σe < 1; got {model!r} with Σe = {1.0 - factor:g}. "
            "At Σe = 1 the labels carry no information; above it they are reversed: swap the label codes."
        )
    return factor


def binary_noise(noise: NoiseModel | ArrayLike) -> NoiseModel:
    """Return ``noise`` as a model of two classes."""
    model = as_noise_model(noise)
    if model.n_classes != 2:
        raise InvalidInputError(
            f"`noise` must have two classes for this statement; got {model.n_classes}. "
            "Merge classes, or look at one class against the rest."
        )
    return model


def is_same(first: float, second: float) -> bool:
    """Return whether two numbers are equal up to ``EQUATION_TOLERANCE``."""
    return math.isclose(first, second, rel_tol=0.0, abs_tol=EQUATION_TOLERANCE)
