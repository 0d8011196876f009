"""How two sources of labels agree beyond chance: Δ, its sign matrix, and the paper's conditions on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from peerloss._validation import (
    FloatArray,
    IntArray,
    as_float_array,
    as_joint,
    as_labels,
    as_prior,
    check_count,
    check_same_length,
)
from peerloss.exceptions import InvalidInputError
from peerloss.noise import NoiseModel, as_noise_model
from peerloss.theory._optimal_alpha import ROUNDING, binary_noise

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


def joint_table(first: ArrayLike, second: ArrayLike, *, n_classes: int | None = None) -> FloatArray:
    """Count how often two label vectors take each pair of values, as probabilities.

    ``joint[k, l] = #{n : first_n = k, second_n = l} / N``, the empirical joint from which CA (section 2.3
    of the paper) builds Δ.

    Parameters
    ----------
    first, second
        Labels of the same rows from two sources, codes 0..K-1.
    n_classes
        K; without it, one more than the largest code seen.

    Returns
    -------
    Joint frequencies that sum to 1, shape (K, K).

    Raises
    ------
    InvalidInputError
        If the vectors differ in length or hold anything but codes under ``n_classes``.

    Examples
    --------
    >>> joint_table([0, 0, 1, 1], [0, 1, 1, 1]).tolist()
    [[0.25, 0.25], [0.0, 0.5]]
    """
    if n_classes is not None:
        check_count(n_classes, "n_classes", minimum=2)
    a = as_labels(first, "first", n_classes=n_classes)
    b = as_labels(second, "second", n_classes=n_classes)
    check_same_length(first=a, second=b)
    k = n_classes if n_classes is not None else max(2, int(max(a.max(), b.max())) + 1)
    counts = np.bincount(a * k + b, minlength=k * k).reshape(k, k)
    joint: FloatArray = counts / len(a)
    return joint


def joint_of_conditionally_independent(
    clean_prior: ArrayLike, first_noise: NoiseModel | ArrayLike, second_noise: NoiseModel | ArrayLike
) -> FloatArray:
    """Compute the joint of two sources that are independent given the clean label Y.

    ``joint[k, l] = Σ_y π_y T₁[y, k] T₂[y, l]``: the setting of Example 1, Lemma 1 and appendix Lemma 2,
    where the first source is the Bayes classifier f* and the second the noisy label.

    Parameters
    ----------
    clean_prior
        P(Y = 1), or a vector over classes.
    first_noise, second_noise
        How each source errs given Y: a NoiseModel or a transition matrix.

    Returns
    -------
    P(first = k, second = l), shape (K, K).

    Raises
    ------
    InvalidInputError
        If the number of classes differs between the arguments.

    Notes
    -----
    In the details of Example 1 the paper prints P(f* = −1, Ỹ = +1) = 0.264 and P(f* = +1, Ỹ = +1) =
    0.216; the values are 0.204 and 0.276, as the margins 0.5 and 0.48 demand. Its Δ = ±0.036 is right.

    Examples
    --------
    >>> joint = joint_of_conditionally_independent(
    ...     0.6, NoiseModel.binary(e_neg=0.2, e_pos=0.3), NoiseModel.binary(e_neg=0.3, e_pos=0.4)
    ... )
    >>> joint.round(3).tolist()
    [[0.296, 0.204], [0.224, 0.276]]
    """
    first, second = as_noise_model(first_noise, "first_noise"), as_noise_model(second_noise, "second_noise")
    if first.n_classes != second.n_classes:
        raise InvalidInputError(
            f"`first_noise` and `second_noise` must have the same classes; got {first.n_classes} and "
            f"{second.n_classes}. Pad the smaller one with an identity row and column."
        )
    prior = as_prior(clean_prior, "clean_prior", n_classes=first.n_classes)
    joint: FloatArray = first.transition.T @ (prior[:, None] * second.transition)
    return joint


def delta_matrix(joint: ArrayLike) -> FloatArray:
    """Subtract the product of the margins from a joint: the Δ of CA (section 2.3, Example 1).

    ``Δ[k, l] = P(A = k, B = l) − P(A = k)·P(B = l)``; every row and every column sums to 0.

    Parameters
    ----------
    joint
        Joint probabilities of the two sources, rows A, columns B.

    Returns
    -------
    Δ, of the shape of ``joint``.

    Raises
    ------
    InvalidInputError
        If ``joint`` is not a table of probabilities.

    Examples
    --------
    >>> delta_matrix([[0.296, 0.204], [0.224, 0.276]]).round(3).tolist()
    [[0.036, -0.036], [-0.036, 0.036]]
    """
    table = as_joint(joint, "joint")
    delta: FloatArray = table - np.outer(table.sum(axis=1), table.sum(axis=0))
    return delta


def sign_matrix(delta: ArrayLike) -> IntArray:
    """Mark the pairs that occur more often than by chance: the scoring matrix M = Sgn(Δ) of CA.

    ``Sgn(x) = 1`` for x > 0 and 0 otherwise; entries within 1e-12 of 0 are rounding and count as 0. For two
    classes and informative sources it is the identity (Lemma 1).

    Parameters
    ----------
    delta
        The matrix Δ.

    Returns
    -------
    Zeros and ones, of the shape of ``delta``.

    Raises
    ------
    InvalidInputError
        If ``delta`` is not a finite two-dimensional array.

    Examples
    --------
    >>> sign_matrix([[0.036, -0.036], [-0.036, 0.036]]).tolist()
    [[1, 0], [0, 1]]
    """
    return (as_float_array(delta, "delta", ndim=2) > ROUNDING).astype(np.int64)


def is_categorical(joint: ArrayLike) -> bool:
    """Return whether B is categorical with respect to A (section 2.3, appendix Lemma 2).

    The condition ``P(B = l | A = k) < P(B = l)`` for every l ≠ k, that is, Δ is negative off its diagonal;
    then CA is strictly truthful. Appendix Lemma 2: two informative binary sources are categorical. A signal k
    that never occurs has no conditional, and the result is then False.

    Parameters
    ----------
    joint
        Square table of joint probabilities, rows A, columns B.

    Returns
    -------
    Whether the condition holds (differences up to 1e-12 count as equality).

    Raises
    ------
    InvalidInputError
        If ``joint`` is not a square table of probabilities.

    Examples
    --------
    >>> is_categorical([[0.296, 0.204], [0.224, 0.276]])
    True
    """
    delta = delta_matrix(joint)
    if delta.shape[0] != delta.shape[1]:
        raise InvalidInputError(
            f"`joint` must be square, for both sources use the same labels; got shape {delta.shape}. "
            "Build it with `joint_table(first, second, n_classes=K)`."
        )
    return bool((delta[~np.eye(len(delta), dtype=bool)] < -ROUNDING).all())


def is_stochastically_relevant(joint: ArrayLike) -> bool:
    """Return whether every signal of A changes the distribution of B (appendix, Definition 2).

    The paper's binary condition is P(B = s | A = 1) ≠ P(B = s | A = 0) for some s. For K classes it must hold
    for every pair of distinct signals of A. Then the quadratic and logarithmic scores are strictly truthful.
    Signals that never occur are ignored; with fewer than two that do, the result is False.

    Parameters
    ----------
    joint
        Table of joint probabilities, rows A, columns B.

    Returns
    -------
    Whether all conditionals differ (by more than 1e-12 somewhere).

    Raises
    ------
    InvalidInputError
        If ``joint`` is not a table of probabilities.

    Examples
    --------
    >>> is_stochastically_relevant([[0.4, 0.1], [0.1, 0.4]])
    True
    >>> is_stochastically_relevant([[0.25, 0.25], [0.25, 0.25]])
    False
    """
    table = as_joint(joint, "joint")
    rows = table[table.sum(axis=1) > 0.0]
    conditionals = rows / rows.sum(axis=1, keepdims=True)
    distances = np.abs(conditionals[:, None, :] - conditionals[None, :, :]).max(axis=2)
    pairs = distances[np.triu_indices(len(rows), k=1)]
    return bool(pairs.size) and bool((pairs > ROUNDING).all())


def binary_delta(
    clean_prior: ArrayLike, first_noise: NoiseModel | ArrayLike, second_noise: NoiseModel | ArrayLike
) -> FloatArray:
    """Evaluate Δ of two conditionally independent binary sources in closed form (Lemma 1).

    ``Δ = p(1 − p)·(1 − Σe)·(1 − Σe*)·[[1, −1], [−1, 1]]``, so Sgn(Δ) is the identity whenever both sources
    are informative and both classes occur.

    Parameters
    ----------
    clean_prior
        P(Y = 1), or the vector of both probabilities.
    first_noise, second_noise
        How each source errs given Y.

    Returns
    -------
    Δ, shape (2, 2).

    Raises
    ------
    InvalidInputError
        If a noise has more than two classes.

    Examples
    --------
    Example 1 of the paper:

    >>> binary_delta(0.6, NoiseModel.binary(0.2, 0.3), NoiseModel.binary(0.3, 0.4)).round(3).tolist()
    [[0.036, -0.036], [-0.036, 0.036]]
    """
    first, second = binary_noise(first_noise), binary_noise(second_noise)
    negative, positive = as_prior(clean_prior, "clean_prior", n_classes=2)
    scale = negative * positive * (1.0 - first.e_neg - first.e_pos) * (1.0 - second.e_neg - second.e_pos)
    return np.array([[scale, -scale], [-scale, scale]])
