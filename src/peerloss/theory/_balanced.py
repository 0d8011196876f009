"""Balanced accuracy under class-conditional noise: which decision is best, and what it needs to know."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from peerloss._validation import FloatArray, IntArray, as_float_array, as_prior
from peerloss.exceptions import InvalidInputError
from peerloss.noise import NoiseModel, as_noise_model

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


def balanced_posterior(clean_posterior: ArrayLike, clean_prior: ArrayLike) -> FloatArray:
    """Return the clean posterior that equally frequent classes would have, ``η_k(x)/π_k`` normalised.

    Balanced accuracy is ``(1/K)·Σ_k P(f = k | Y = k) = (1/K)·Σ_x P(x)·η_{f(x)}(x)/π_{f(x)}``, so the decision
    that maximises it is the argmax of this posterior.

    Parameters
    ----------
    clean_posterior
        η, P(Y = k | x), one row per example and one column per class.
    clean_prior
        π, P(Y = 1) or a vector over classes. A class of prior 0 gets probability 0.

    Returns
    -------
    numpy.ndarray of shape (n, K)
        Probabilities. A row without mass on the classes that occur is uniform over them.

    Raises
    ------
    InvalidInputError
        If shapes disagree or a posterior is negative.

    Examples
    --------
    >>> balanced_posterior([[0.8, 0.15, 0.05]], [0.8, 0.15, 0.05]).round(3).tolist()
    [[0.333, 0.333, 0.333]]
    """
    prior = as_prior(clean_prior, "clean_prior")
    posterior = _one_column_per_class(clean_posterior, "clean_posterior", prior)
    if (posterior < 0.0).any():
        raise InvalidInputError(
            f"`clean_posterior` must not be negative; got {posterior.min():g}. Clip it at 0."
        )
    occurs = prior > 0.0
    ratio = np.divide(posterior, prior, out=np.zeros_like(posterior), where=occurs)
    ratio[ratio.sum(axis=1) == 0.0] = occurs
    shares: FloatArray = ratio / ratio.sum(axis=1, keepdims=True)
    return shares


def balanced_decision(
    noisy_posterior: ArrayLike, noise: NoiseModel | ArrayLike, noisy_prior: ArrayLike
) -> IntArray:
    """Predict the label that is best for balanced accuracy on *clean* labels, from the noisy posterior.

    ``argmax_k η_k(x)/π_k`` with ``η = η̃ T⁻¹`` and ``π = π̃ T⁻¹`` (row vectors); ties go to the smaller
    label. Where T[i, j] = e_j it is ``argmax_k (η̃_k − e_k)/(π̃_k − e_k)``.

    Parameters
    ----------
    noisy_posterior
        P(Ỹ = k | x), one row per example and one column per class.
    noise
        A NoiseModel or a transition matrix, invertible. For two classes with Σe < 1 every noise that leaves
        both clean priors π̃ T⁻¹ positive gives the same decision.
    noisy_prior
        P(Ỹ = 1), or a vector over classes.

    Returns
    -------
    numpy.ndarray of int, shape (n,)
        Predicted labels. A class whose clean prior π̃ T⁻¹ is zero or negative is never predicted: according
        to T, all its labels are mistakes.

    Raises
    ------
    NotIdentifiableError
        If T cannot be inverted.
    InvalidInputError
        If shapes disagree.

    Notes
    -----
    Two classes need no rates: η₁/π₁ > η₀/π₀ means η₁ > π₁, and with Σe < 1 that means η̃₁ > π̃₁, the decision
    of peer loss at α = 1 (:func:`peer_decision`). Menon et al. (2015) prove this threshold for balanced
    error.

    Three or more classes do need the noise: no rule that sees only η̃ and π̃ is right everywhere. Take two
    points x₁ and x₂ with P(x₁) = 0.2, η̃(x₁) = (.5, .31, .19) and η̃(x₂) = (.875, .11, .015). Then π̃ is
    (.8, .15, .05). If the labels are clean, the ratios η/π at x₁ are (.625, 2.07, 3.8) and class 2 is best.
    If e = (0, .1, 0), they are (.5/.8, .21/.05, .19/.05) = (.625, 4.2, 3.8) and class 1 is best. Both worlds
    have the same η̃ and π̃. In particular α = 1, argmax(η̃ − π̃), is not the rule for balanced accuracy.

    References
    ----------
    Menon, van Rooyen, Ong, Williamson (2015), Learning from corrupted binary labels via class-probability
    estimation, ICML.

    Examples
    --------
    >>> import numpy as np
    >>> noisy_posterior, noisy_prior = [[0.5, 0.31, 0.19]], [0.8, 0.15, 0.05]
    >>> balanced_decision(noisy_posterior, np.eye(3), noisy_prior).tolist()
    [2]
    >>> e = np.array([0.0, 0.1, 0.0])
    >>> balanced_decision(noisy_posterior, (1 - e.sum()) * np.eye(3) + e, noisy_prior).tolist()
    [1]
    """
    model = as_noise_model(noise)
    clean_prior = model.clean_prior(as_prior(noisy_prior, "noisy_prior", n_classes=model.n_classes))
    noisy = _one_column_per_class(noisy_posterior, "noisy_posterior", clean_prior)
    clean = np.clip(noisy @ model.inverse(), 0.0, None)
    return np.asarray(balanced_posterior(clean, clean_prior).argmax(axis=1), dtype=np.int64)


def _one_column_per_class(table: ArrayLike, name: str, prior: FloatArray) -> FloatArray:
    values = as_float_array(table, name, ndim=2)
    if values.shape[1] != prior.size:
        raise InvalidInputError(
            f"`{name}` must have one column for each of the {prior.size} classes; got shape {values.shape}. "
            "For two classes stack (1 − η, η)."
        )
    return values
