"""Kernel ridge regression on the labels: one matrix of products gives the fits of all folds and penalties.

The kernel is approximated by its values at some rows (Nyström). Ridge regression of the indicators of the
labels on these features needs only the sums of products over the training rows, and those of a fold are the
sums over all rows minus the sums over the rows that it leaves out. So smooth models with several widths and
penalties cost less than one logistic regression per fold, and their held-out scores are exact.

The scores are not probabilities. They are mapped to some by a softmax with a fixed slope; the calibration of
the portfolio finds the right slope.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.special import softmax
from sklearn.kernel_approximation import Nystroem
from sklearn.metrics.pairwise import rbf_kernel

if TYPE_CHECKING:
    from collections.abc import Iterator

    from peerloss._classifier import FitInput
    from peerloss._validation import FloatArray
    from peerloss.estimators.folds import Folds

#: Penalty of the intercept, which only keeps the equations solvable.
INTERCEPT_PENALTY = 1e-6
#: Slope of the softmax. Its logarithms stay nearly linear in the scores, which are mostly between 0 and 1.
SLOPE = 3.0
#: Rows whose features are held in memory at a time.
BLOCK_ROWS = 5000


@dataclass(frozen=True)
class KernelRidgeSettings:
    """Kernel ridge regression as several candidates, one per penalty."""

    gamma: float
    """The kernel is exp(−gamma·|x − x'|²)."""
    penalties: tuple[float, ...]
    """Penalties of the squared coefficients. The features of a row have at most unit norm."""
    n_components: int
    """Number of rows at which the kernel is evaluated."""
    seed: int
    """Seed of the choice of these rows."""


@dataclass(frozen=True, eq=False)
class KernelRidge:
    """Fitted kernel ridge regression with the interface of a classifier."""

    gamma: float
    centres: FloatArray
    """(m, d) rows at which the kernel is evaluated."""
    coefficients: FloatArray
    """(m, K)"""
    intercept: FloatArray
    """(K,)"""

    def predict_proba(self, X: FloatArray) -> FloatArray:
        """Return probabilities, shape (n, K)."""
        proba = np.empty((len(X), len(self.intercept)))
        for rows in _blocks(len(X)):
            kernel = rbf_kernel(X[rows], self.centres, gamma=self.gamma)
            proba[rows] = softmax(SLOPE * (kernel @ self.coefficients + self.intercept), axis=1)
        return proba


def fit_kernel_ridge(
    settings: KernelRidgeSettings, data: FitInput, folds: Folds
) -> tuple[list[KernelRidge], list[list[FloatArray]]]:
    """Fit to the training rows of each fold; return a model and held-out probabilities for each penalty.

    The model has the mean coefficients of the folds. The probabilities have one array per fold, of its test
    rows.
    """
    used = np.flatnonzero(data.weight > 0)
    kernel = Nystroem(
        gamma=settings.gamma,
        n_components=min(settings.n_components, len(used)),
        random_state=settings.seed % 2**31,
    ).fit(data.X[used])
    weight = data.weight * (len(used) / data.weight.sum())
    penalty = np.append(np.ones(len(kernel.components_)), INTERCEPT_PENALTY)
    sums = list(zip(*_sums(kernel, data, weight, folds), strict=True))
    found = np.array([[_solve(*part, c * penalty) for part in sums] for c in settings.penalties])

    def model(coefficients: FloatArray) -> KernelRidge:
        of_kernel = kernel.normalization_.T @ coefficients[:-1]
        return KernelRidge(settings.gamma, kernel.components_, of_kernel, coefficients[-1])

    proba = [
        [model(part).predict_proba(data.X[test]) for part, (_, test) in zip(parts, folds, strict=True)]
        for parts in found
    ]
    return [model(parts.mean(axis=0)) for parts in found], proba


def _sums(
    kernel: Nystroem, data: FitInput, weight: FloatArray, folds: Folds
) -> tuple[FloatArray, FloatArray]:
    """Return Σ w·z·zᵀ, (folds, m, m), and Σ w·z·yᵀ, (folds, m, K), over the training rows of each fold."""
    left_out = np.ones((len(folds), len(weight)), dtype=bool)
    for mask, (train, _) in zip(left_out, folds, strict=True):
        mask[train] = False
    products: Any = 0.0
    moments: Any = 0.0
    for rows in _blocks(len(weight)):
        root = np.sqrt(weight[rows, None])  # zᵀz of one array takes half the time of a product of two
        z = np.column_stack([kernel.transform(data.X[rows]), np.ones(len(root))]) * root
        labels = np.eye(len(data.classes))[data.codes[rows]] * root
        masks = left_out[:, rows]
        products += z.T @ z - np.array([z[mask].T @ z[mask] for mask in masks])
        moments += z.T @ labels - np.array([z[mask].T @ labels[mask] for mask in masks])
    return products, moments


def _solve(products: FloatArray, moments: FloatArray, penalty: FloatArray) -> FloatArray:
    """Return the coefficients, (m + 1, K)."""
    return np.asarray(cho_solve(cho_factor(products + np.diag(penalty)), moments))


def _blocks(n_rows: int) -> Iterator[slice]:
    return (slice(start, start + BLOCK_ROWS) for start in range(0, n_rows, BLOCK_ROWS))
