"""TableClassifier: base of the classifiers that accept mixed tables and sparse matrices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scipy.sparse import issparse
from sklearn.utils.validation import check_is_fitted, validate_data

from peerloss._classifier import FitInput, NoisyLabelClassifier, is_mixed_table
from peerloss.datasets.tables.sparse_encoder import SparseEncoder
from peerloss.datasets.tables.table_encoder import TableEncoder, Views

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from peerloss._validation import FloatArray

#: A sparse matrix with at most this many columns is made dense.
MAX_DENSE_COLUMNS = 256


class TableClassifier(NoisyLabelClassifier):
    """A classifier whose ``X`` may be a mixed table or a sparse matrix, besides an array of numbers.

    A DataFrame with text, categories or missing values is encoded by
    :class:`~peerloss.estimators.TableEncoder`, a sparse matrix with many columns by its components.
    """

    table_: TableEncoder | SparseEncoder | None
    """The fitted encoder; ``None`` if the features were numbers."""

    def _check_fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> FitInput:
        """Check the arguments of ``fit``; encode a mixed table or a sparse matrix for each kind of model."""
        self.table_ = encoder_for(X) if self._checks_features else None
        if self.table_ is None:
            return super()._check_fit(as_dense(X) if self._checks_features else X, y, sample_weight)
        views = self.table_.fit(X).views(X)
        data = super()._check_fit(views.features, y, sample_weight)
        validate_data(self, X, skip_check_array=True)  # the names and number of the columns as given
        return data._replace(trees=views.trees, categorical=self.table_.categorical(), wide=views.wide)

    def _views(self, X: Any) -> Views:
        """Check the argument of ``predict``; return its features for each kind of model."""
        check_is_fitted(self)
        if self.table_ is None:
            return Views(super()._check_predict(as_dense(X)))
        return self.table_.views(X)

    def _check_predict(self, X: Any) -> FloatArray:
        return self._views(X).features

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def encoder_for(X: Any) -> TableEncoder | SparseEncoder | None:
    """Return a new encoder for a mixed table or a wide sparse matrix, ``None`` for other features."""
    if is_mixed_table(X):
        return TableEncoder()
    return SparseEncoder() if issparse(X) and X.shape[1] > MAX_DENSE_COLUMNS else None  # type: ignore[attr-defined]


def as_dense(X: Any) -> Any:
    """Return a sparse matrix as an array, and anything else as it is."""
    return X.toarray() if issparse(X) else X  # type: ignore[attr-defined]
