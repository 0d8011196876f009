"""Score matrices ``S[own report, peer's report]`` and their expectations over a known population."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from peerloss._validation import FloatArray, as_joint
from peerloss.exceptions import InvalidInputError
from peerloss.theory import delta_matrix

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


def quadratic_matrix(joint: ArrayLike) -> FloatArray:
    """Return the quadratic score of each pair of reports.

    ``S[k, l] = 2 P(l | k) − Σ_s P(s | k)²`` (paper, appendix "Other peer prediction functions", Example 1),
    where P(l | k) is the probability that the peer reports l given that the worker saw k.

    Parameters
    ----------
    joint
        ``joint[k, l] = P(worker sees k, peer reports l)``, shape (K, L), summing to 1.

    Returns
    -------
    S, shape (K, L); rows of signals with probability zero are zero.

    Examples
    --------
    >>> quadratic_matrix([[0.4, 0.1], [0.1, 0.4]]).round(2).tolist()
    [[0.92, -0.28], [-0.28, 0.92]]
    """
    conditional = _conditional(as_joint(joint, "joint"))
    score: FloatArray = 2.0 * conditional - (conditional**2).sum(axis=1, keepdims=True)
    return score


def logarithmic_matrix(joint: ArrayLike) -> FloatArray:
    """Return the logarithmic score of each pair of reports.

    ``S[k, l] = log P(l | k)`` (paper, appendix "Other peer prediction functions", Example 2).

    Parameters
    ----------
    joint
        ``joint[k, l] = P(worker sees k, peer reports l)``, shape (K, L), summing to 1.

    Returns
    -------
    S, shape (K, L); −∞ for pairs of probability zero.

    Examples
    --------
    >>> logarithmic_matrix([[0.5, 0.0], [0.25, 0.25]]).round(3).tolist()
    [[0.0, -inf], [-0.693, -0.693]]
    """
    conditional = _conditional(as_joint(joint, "joint"))
    return np.log(conditional, out=np.full_like(conditional, -np.inf), where=conditional > 0)


def expected_score(score_matrix: ArrayLike, joint: ArrayLike) -> float:
    """Return ``E[S(r^A, r^B)] = Σ_kl S[k, l] joint[k, l]``, exactly.

    Theorem 1 of the paper compares this expectation, for the Bayes classifier's agent A and the noisy
    labels B, between truthful and other reports of A.

    Parameters
    ----------
    score_matrix
        ``S[own, peer]``; −∞ is allowed and counts only if the pair has positive probability.
    joint
        Joint probabilities of the two *reports*, the same shape.

    Returns
    -------
    The expected score.

    Examples
    --------
    >>> truth = [[0.4, 0.1], [0.1, 0.4]]
    >>> always_0 = [[0.5, 0.5], [0.0, 0.0]]
    >>> S = quadratic_matrix(truth)
    >>> round(expected_score(S, truth), 3), round(expected_score(S, always_0), 3)
    (0.68, 0.32)
    """
    score, table = _paired(score_matrix, joint)
    return float(np.multiply(score, table, out=np.zeros_like(table), where=table > 0).sum())


def expected_ca_score(score_matrix: ArrayLike, joint: ArrayLike) -> float:
    """Return the expected CA score ``Σ_kl M[k, l] (joint[k, l] − P(r^A = k) P(r^B = l))``, exactly.

    The bonus is for one task, the penalty for two independent ones (paper, section "Correlated
    Agreement"). It is zero whenever the two reports are independent, whatever M is.

    Parameters
    ----------
    score_matrix
        ``M[own, peer]``, for example ``peerloss.theory.sign_matrix(delta)``.
    joint
        Joint probabilities of the two *reports*, the same shape.

    Returns
    -------
    The expected score.

    Examples
    --------
    >>> round(expected_ca_score(np.eye(2), [[0.4, 0.1], [0.1, 0.4]]), 3)
    0.3
    """
    score, table = _paired(score_matrix, joint)
    if not np.isfinite(score).all():
        raise InvalidInputError("`score_matrix` must be finite for CA; got an infinite entry. Use Sgn(Δ).")
    return float((score * delta_matrix(table)).sum())


def _conditional(joint: FloatArray) -> FloatArray:
    """Return P(l | k), with a row of zeros for each k of probability zero."""
    totals = joint.sum(axis=1, keepdims=True)
    conditional: FloatArray = np.divide(joint, totals, out=np.zeros_like(joint), where=totals > 0)
    return conditional


def _paired(score_matrix: ArrayLike, joint: ArrayLike) -> tuple[FloatArray, FloatArray]:
    table = as_joint(joint, "joint")
    try:
        score = np.asarray(score_matrix, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"`score_matrix` must be a table of numbers; {error}.") from error
    if score.shape != table.shape or np.isnan(score).any():
        raise InvalidInputError(
            f"`score_matrix` must hold numbers in the shape of `joint`, {table.shape}; got shape "
            f"{score.shape}{' with nan' if np.isnan(score).any() else ''}. Rows are own reports, columns the "
            "peer's."
        )
    return score, table
