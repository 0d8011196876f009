"""SparseEncoder: features of a sparse matrix with many columns; and which encoder features need."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from scipy.sparse import csr_array, diags_array, issparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.decomposition import TruncatedSVD
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_is_fitted, validate_data

from peerloss._classifier import is_mixed_table
from peerloss._infinite_features import check_no_infinity
from peerloss.datasets.tables.table_encoder import TableEncoder, Views

#: A sparse matrix with at most this many columns is made dense.
MAX_DENSE_COLUMNS = 256
#: Number of components of a sparse matrix with more columns.
MAX_COMPONENTS = 100


class SparseEncoder(TransformerMixin, BaseEstimator):
    """Prepare a sparse matrix for linear models as it is, and for other models by its leading components.

    Each column is divided by its largest absolute value, and the matrix by one number such that its rows have
    a mean squared length of 1. Nothing is made dense except for 100 components.

    Attributes
    ----------
    scale_
        Factor of each column, shape (d,).
    components_
        The fitted pipeline of ``TruncatedSVD`` and ``StandardScaler``.
    """

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002 - scikit-learn's signature
        """Learn the scale and the components of a sparse matrix (n, d)."""
        check_no_infinity(X)
        matrix = csr_array(validate_data(self, X, accept_sparse="csr", dtype=np.float64))
        largest = np.asarray(abs(matrix).max(axis=0).todense(), dtype=np.float64).ravel()
        scale = np.divide(1.0, largest, out=np.zeros_like(largest), where=largest > 0)
        squares = (matrix @ diags_array(scale)).power(2).sum() / matrix.shape[0]
        self.scale_ = scale / np.sqrt(squares if squares > 0 else 1.0)
        size = max(1, min(MAX_COMPONENTS, matrix.shape[0] - 1, matrix.shape[1] - 1))
        with np.errstate(divide="ignore", invalid="ignore"):  # all rows may be equal
            components = make_pipeline(TruncatedSVD(size, random_state=0), StandardScaler())
            self.components_ = components.fit(self._scaled(matrix))
        return self

    def transform(self, X: Any) -> Any:
        """Return the standardised components, shape (n, at most 100)."""
        return self.views(X).features

    def views(self, X: Any) -> Views:
        """Return the components, and the scaled matrix for linear models."""
        check_is_fitted(self)
        check_no_infinity(X)
        matrix = validate_data(self, X, reset=False, accept_sparse="csr", dtype=np.float64)
        wide = self._scaled(csr_array(matrix))
        return Views(np.asarray(self.components_.transform(wide), dtype=np.float64), None, wide)

    def categorical(self) -> tuple[int, ...]:
        """Return no places: there are no categories."""
        return ()

    def _scaled(self, matrix: csr_array) -> csr_array:
        return csr_array(matrix @ diags_array(self.scale_))


def encoder_for(X: Any) -> TableEncoder | SparseEncoder | None:
    """Return a new encoder for a mixed table or a wide sparse matrix, ``None`` for other features."""
    if is_mixed_table(X):
        return TableEncoder()
    return SparseEncoder() if issparse(X) and X.shape[1] > MAX_DENSE_COLUMNS else None  # type: ignore[attr-defined]


def as_dense(X: Any) -> Any:
    """Return a sparse matrix as an array, and anything else as it is."""
    return X.toarray() if issparse(X) else X  # type: ignore[attr-defined]
