"""Weights of the candidates: those of the average with the smallest Brier score on the noisy labels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import nnls

if TYPE_CHECKING:
    from peerloss._validation import FloatArray, IntArray

#: Penalty on the squared weights, which draws them to equal weights, for 500 rows; ∝ 1/√n.
RIDGE, RIDGE_ROWS = 0.02, 500
#: Candidates with a smaller weight are left out of the average.
MIN_WEIGHT = 0.01
#: Rows whose residuals are held in memory at a time.
_BLOCK_ROWS = 20_000


def weigh(
    probabilities: list[FloatArray], codes: IntArray, weight: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Weight candidates so that the Brier score of their average on the noisy labels is smallest.

    Returns the weights, which sum to one, the Brier scores of the candidates, and their distances to the best
    candidate in standard errors.

    The noisy posterior minimises this score on noisy labels, and every peer classifier follows from the noisy
    posterior. The Brier score is a proper score of probabilities, so it has far less sampling noise than the
    0-1 peer score of decisions. A small penalty draws the weights of candidates that the data cannot
    distinguish to each other. Weights below one in a hundred are set to zero.
    """
    share = weight / weight.sum()
    gram, losses = _residuals(probabilities, codes, share)
    brier = losses @ share
    n_rows = 1.0 / np.square(share).sum()  # the effective number, smaller if weights differ
    weights = simplex_weights(gram, ridge=RIDGE * np.sqrt(RIDGE_ROWS / n_rows))
    weights = np.where(weights < min(MIN_WEIGHT, weights.max()), 0.0, weights)
    difference = losses - losses[brier.argmin()]
    mean = difference @ share
    error = np.sqrt((difference - mean[:, None]) ** 2 @ share / n_rows)
    behind = np.divide(mean, error, out=np.zeros_like(mean), where=error > 0)
    return weights / weights.sum(), brier, behind


def simplex_weights(gram: FloatArray, *, ridge: float) -> FloatArray:
    """Minimise wᵀ(gram + ridge·I)w over non-negative weights w that sum to one.

    ``gram`` has the mean products of the residuals of two candidates, so wᵀ gram w is the Brier score of the
    average. With H = gram + ridge·I, the minimiser of ½uᵀHu − Σu over u ≥ 0, divided by its sum, satisfies
    the optimality conditions of this problem. With H = LLᵀ it is a non-negative least squares problem.
    """
    lower = np.linalg.cholesky(gram + ridge * np.eye(len(gram)))
    u, _ = nnls(lower.T, np.linalg.solve(lower, np.ones(len(gram))))
    return np.asarray(u / u.sum(), dtype=np.float64)


def _residuals(
    probabilities: list[FloatArray], codes: IntArray, share: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the mean products of residuals, (M, M), and the squared residuals of the rows, (M, n)."""
    n_candidates, n_classes = len(probabilities), probabilities[0].shape[1]
    gram, losses = np.zeros((n_candidates, n_candidates)), np.empty((n_candidates, len(codes)))
    onehot = np.eye(n_classes)
    for start in range(0, len(codes), _BLOCK_ROWS):
        rows = slice(start, start + _BLOCK_ROWS)
        residual = np.array([p[rows] for p in probabilities]) - onehot[codes[rows]]
        losses[:, rows] = np.square(residual).sum(axis=2)
        scaled = (residual * np.sqrt(share[rows])[:, None]).reshape(n_candidates, -1)
        gram += scaled @ scaled.T
    return gram, losses
