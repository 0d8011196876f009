"""Tables with text, and sparse matrices, as boosters take them."""

from __future__ import annotations

from numbers import Integral
from typing import TYPE_CHECKING, Any

import pandas as pd

from peerloss._infinite_features import check_no_infinity
from peerloss.boosting.libraries import CategoricalColumns
from peerloss.datasets.tables.sparse_encoder import as_dense, encoder_for
from peerloss.datasets.tables.table_encoder import TableEncoder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from peerloss._validation import FloatArray
    from peerloss.datasets.tables.sparse_encoder import SparseEncoder


def fit_encoder(
    X: Any, categorical_features: Sequence[int | str] | None
) -> TableEncoder | SparseEncoder | None:
    """Fit the encoder of a table with text, or of a wide sparse matrix.

    Numbers, missing values and columns that are declared as categories need none: then ``None`` is returned.
    """
    if not isinstance(X, pd.DataFrame):
        encoder = encoder_for(X)
        return None if encoder is None else encoder.fit(X)
    declared = list(CategoricalColumns.learn(X, categorical_features).categories)
    others = X.drop(columns=X.columns[declared]).infer_objects()
    if all(dtype.kind in "biuf" for dtype in others.dtypes):
        return None
    return TableEncoder().fit(_as_categories(X, list(X.columns), categorical_features))


def checked_dense(X: Any) -> Any:
    """Return features that need no encoder, a sparse matrix as an array; refuse infinite numbers."""
    check_no_infinity(X)
    return as_dense(X)


def encode(
    encoder: TableEncoder | SparseEncoder, X: Any, categorical_features: Sequence[int | str] | None
) -> FloatArray:
    """Return features for trees, shape (n, columns): codes of categories, and NaN for missing values."""
    if isinstance(encoder, TableEncoder):
        X = _as_categories(X, encoder.feature_names_in_.tolist(), categorical_features)
    views = encoder.views(X)
    return views.features if views.trees is None else views.trees


def _as_categories(X: Any, names: list[Any], categorical_features: Sequence[int | str] | None) -> Any:
    """Return a table whose columns in ``categorical_features`` are not taken for numbers."""
    if categorical_features is None or not isinstance(X, pd.DataFrame):
        return X
    chosen = {names[column] if isinstance(column, Integral) else column for column in categorical_features}
    return X.astype({name: "category" for name in chosen if name in X.columns})
