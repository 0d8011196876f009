"""Peer risk of a finite distribution and what label noise does to it (Lemmas 2 and 3, Theorems 2 and 3)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from peerloss._validation import FloatArray, as_float_array, as_joint, as_prior, check_finite, check_in_range
from peerloss.exceptions import InvalidInputError
from peerloss.noise import NoiseModel, as_noise_model
from peerloss.theory._optimal_alpha import binary_noise, column_rates_of

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


def invariance_factor(noise: NoiseModel | ArrayLike) -> float:
    """Return the factor by which noise shrinks every peer risk (Lemma 2, appendix for K classes).

    ``E_noisy[ℓ_peer] = (1 − Σ_j e_j)·E_clean[ℓ_peer]`` at α = 1, for every loss and every classifier, where
    ``T[i, j] = e_j`` for all i ≠ j. The appendix proves K classes for the 0-1 loss; it holds for any loss
    matrix, because ``T = (1 − Σe)·I + 1·eᵀ`` and the second part cancels between the two terms.

    Parameters
    ----------
    noise
        A NoiseModel or a transition matrix.

    Returns
    -------
    1 − Σe: zero if labels carry no information, negative if they are reversed.

    Raises
    ------
    NotIdentifiableError
        If no e_j exist, as for pair flip with more than two classes: then no factor works.

    Examples
    --------
    >>> invariance_factor(NoiseModel.binary(e_neg=0.1, e_pos=0.3))
    0.6
    """
    model = as_noise_model(noise)
    column_rates_of(model)  # refuses noise without e_j
    return 1.0 - model.sum_of_rates


def peer_risk(losses: ArrayLike, joint: ArrayLike, *, alpha: float = 1.0) -> float:
    """Compute the exact α-weighted peer risk on a finite distribution (equation 5, section 4.4).

    ``R = Σ_{x,k} P(x, k)·L[x, k] − α·Σ_x P(x) Σ_k P(k)·L[x, k]``: the second term pairs an x with the label
    of an independent draw.

    Parameters
    ----------
    losses
        Loss matrix: row x, column k is the loss at point x had the label been k.
    joint
        P(x, label), one row per point, one column per class.
    alpha
        Weight of the peer term; any finite number.

    Returns
    -------
    The risk; negative values are usual.

    Raises
    ------
    InvalidInputError
        If the shapes differ or ``joint`` is not a table of probabilities.

    Examples
    --------
    >>> round(peer_risk([[0.0, 1.0], [1.0, 0.0]], [[0.4, 0.1], [0.1, 0.4]]), 12)
    -0.3
    """
    table = as_joint(joint, "joint")
    matrix = as_float_array(losses, "losses", ndim=2)
    if matrix.shape != table.shape:
        raise InvalidInputError(
            f"`losses` must have the shape of `joint`, one row per point and one column per class; got "
            f"{matrix.shape} and {table.shape}."
        )
    weight = check_finite(alpha, "alpha", advice="Use `optimal_alpha(noise, clean_prior)` or 1.0.")
    chance = np.outer(table.sum(axis=1), table.sum(axis=0))
    return float(((table - weight * chance) * matrix).sum())


def noisy_joint(joint: ArrayLike, noise: NoiseModel | ArrayLike) -> FloatArray:
    """Push class-conditional noise through P(x, label): ``P(x, ỹ = j) = Σ_i P(x, y = i)·T[i, j]``.

    The noise model of section 2.1: given the clean label, the noisy one does not depend on x.

    Parameters
    ----------
    joint
        P(x, clean label), one row per point.
    noise
        A NoiseModel or a transition matrix over the same classes.

    Returns
    -------
    P(x, noisy label), of the shape of ``joint``.

    Raises
    ------
    InvalidInputError
        If the number of classes differs.

    Examples
    --------
    >>> noisy_joint([[0.5, 0.0], [0.0, 0.5]], NoiseModel.binary(0.2, 0.4)).tolist()
    [[0.4, 0.1], [0.2, 0.3]]
    """
    table, model = as_joint(joint, "joint"), as_noise_model(noise)
    if table.shape[1] != model.n_classes:
        raise InvalidInputError(
            f"`joint` must have one column for each of the {model.n_classes} classes of `noise`; got shape "
            f"{table.shape}. Rows are points x, columns labels."
        )
    noisy: FloatArray = table @ model.transition
    return noisy


def suboptimality_bound(clean_prior: ArrayLike) -> float:
    """Bound what minimising the peer 0-1 risk (α = 1) can lose in clean accuracy (Theorems 2 and 3).

    Theorem 3: ``R_D(f̃*_peer) − min_F R_D ≤ |δ_p|``; Theorem 2 is the case δ_p = 0. For K classes (our
    derivation) the bound is ``max π − min π``: the clean peer 0-1 risk is R_D(f) + Σ_k π_k·P(f = k) − 1, and
    the sum lies between the extremes of π. It holds for noise with e_j and Σe < 1, in any hypothesis class.

    Parameters
    ----------
    clean_prior
        P(Y = 1), or a vector over classes.

    Returns
    -------
    The bound, 0 for balanced classes.

    Raises
    ------
    InvalidInputError
        If ``clean_prior`` is not a probability vector.

    Examples
    --------
    >>> suboptimality_bound(0.5)
    0.0
    >>> round(suboptimality_bound([0.5, 0.3, 0.2]), 12)
    0.3
    """
    prior = as_prior(clean_prior, "clean_prior")
    return float(prior.max() - prior.min())


def zero_one_peer_risk(
    error_neg: Any, error_pos: Any, noise: NoiseModel | ArrayLike, clean_prior: ArrayLike
) -> float:
    """Evaluate the noisy peer 0-1 risk from the two clean error rates of a classifier (Lemma 3).

    ``E[1_peer(f(X), Ỹ)] = 2(1 − Σe)·p(1 − p)·(R₋ + R₊ − 1)``, so minimising it minimises the balanced error.
    This is a statement about two classes. With more, the peer 0-1 risk is not a function of balanced error.

    Parameters
    ----------
    error_neg
        R₋ = P(f(X) = 1 | Y = 0).
    error_pos
        R₊ = P(f(X) = 0 | Y = 1).
    noise
        Binary noise: a NoiseModel or a transition matrix.
    clean_prior
        P(Y = 1), or the vector of both probabilities.

    Returns
    -------
    The risk at α = 1, negative for a classifier better than chance.

    Raises
    ------
    InvalidInputError
        If a rate is not a probability or the noise is not binary.

    Examples
    --------
    >>> round(zero_one_peer_risk(0.1, 0.2, NoiseModel.binary(0.1, 0.3), 0.5), 12)
    -0.21
    """
    rate_neg = check_in_range(error_neg, "error_neg", 0.0, 1.0)
    rate_pos = check_in_range(error_pos, "error_pos", 0.0, 1.0)
    model = binary_noise(noise)
    negative, positive = as_prior(clean_prior, "clean_prior", n_classes=2)
    factor = 1.0 - model.e_neg - model.e_pos
    return float(2.0 * factor * negative * positive * (rate_neg + rate_pos - 1.0))
