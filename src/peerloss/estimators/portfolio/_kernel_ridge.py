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
    from collections.abc import Callable, Iterator

    from peerloss._classifier import FitInput
    from peerloss._validation import FloatArray
    from peerloss.estimators.folds import Folds

#: Penalty of the intercept, which only keeps the equations solvable.
INTERCEPT_PENALTY = 1e-6
#: Slope of the softmax. Its logarithms stay nearly linear in the scores, which are mostly between 0 and 1.
SLOPE = 3.0
#: Rows whose features are held in memory at a time.
BLOCK_ROWS = 5000
#: The features of at most this many rows are stored; others are computed twice.
MAX_STORED_ROWS = 20_000


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
        scores = np.empty((len(X), len(self.intercept)))
        for rows in _blocks(len(X)):
            kernel = rbf_kernel(X[rows], self.centres, gamma=self.gamma)
            scores[rows] = kernel @ self.coefficients + self.intercept
        return _as_probabilities(scores)


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
    features = _features_of_rows(kernel, data.X)
    sums = list(zip(*_sums(features, data, weight, folds), strict=True))
    found = np.array([[_solve(*part, c * penalty) for part in sums] for c in settings.penalties])
    models = [
        KernelRidge(settings.gamma, kernel.components_, kernel.normalization_.T @ mean[:-1], mean[-1])
        for mean in found.mean(axis=1)
    ]
    scores = [np.empty((len(models), len(test), len(data.classes))) for _, test in folds]
    for fold, (_, test) in enumerate(folds):
        for rows in _blocks(len(test)):
            scores[fold][:, rows] = features(test[rows]) @ found[:, fold]
    return models, [[_as_probabilities(part[i]) for part in scores] for i in range(len(models))]


def _sums(
    features: Callable[[Any], FloatArray], data: FitInput, weight: FloatArray, folds: Folds
) -> tuple[FloatArray, FloatArray]:
    """Return Σ w·z·zᵀ, (folds, m, m), and Σ w·z·yᵀ, (folds, m, K), over the training rows of each fold."""
    left_out = np.ones((len(folds), len(weight)), dtype=bool)
    for mask, (train, _) in zip(left_out, folds, strict=True):
        mask[train] = False
    products: Any = 0.0
    moments: Any = 0.0
    for rows in _blocks(len(weight)):
        root = np.sqrt(weight[rows, None])  # zᵀz of one array takes half the time of a product of two
        z, labels = features(rows) * root, np.eye(len(data.classes))[data.codes[rows]] * root
        masks = left_out[:, rows]
        products += z.T @ z - np.array([z[mask].T @ z[mask] for mask in masks])
        moments += z.T @ labels - np.array([z[mask].T @ labels[mask] for mask in masks])
    return products, moments


def _solve(products: FloatArray, moments: FloatArray, penalty: FloatArray) -> FloatArray:
    """Return the coefficients, (m + 1, K)."""
    return np.asarray(cho_solve(cho_factor(products + np.diag(penalty)), moments))


def _blocks(n_rows: int) -> Iterator[slice]:
    return (slice(start, start + BLOCK_ROWS) for start in range(0, n_rows, BLOCK_ROWS))


def _features_of_rows(kernel: Nystroem, X: FloatArray) -> Callable[[Any], FloatArray]:
    """Return a function that returns the features of rows; those of a small table are computed once."""

    def compute(rows: Any) -> FloatArray:
        """Return the approximate features of the kernel and a column of ones."""
        return np.column_stack([kernel.transform(X[rows]), np.ones(len(X[rows]))])

    if len(X) > MAX_STORED_ROWS:
        return compute
    every: FloatArray = compute(slice(None))
    return every.__getitem__


def _as_probabilities(scores: FloatArray) -> FloatArray:
    return np.asarray(softmax(SLOPE * scores, axis=1))
