"""TableEncoder: turn a table of numbers and text into features."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from peerloss._validation import check_magnitude
from peerloss.datasets import column_kinds, make_encoder, require_columns
from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    from peerloss._validation import FloatArray

#: Largest number of values of a text column that are one-hot encoded; rarer values share one column.
MAX_CATEGORIES = 30
#: With at most this many rows, distinct values are not evidence of identifiers.
FEW_ROWS = 20
#: A text column with a larger share of distinct values contains names or free text.
DISTINCT_SHARE = 0.9
OTHER = "(other)"
_DATE = re.compile(r"\d{1,4}([-/.])\d{1,2}\1\d{1,4}([ T].*)?")


class TableEncoder(TransformerMixin, BaseEstimator):
    """Turn the columns of a DataFrame into standardised numbers; leave out columns that are not useful.

    Missing numbers are replaced by the most frequent value, text is one-hot encoded with missing values as a
    category, and everything is standardised (:func:`peerloss.datasets.make_encoder`). Some columns are left
    out, with a reason in ``dropped_``: empty or constant columns, row numbers, dates, and text that differs
    in nearly every row. For other text columns, the 30 most frequent values have one column each and the
    remaining values share one.

    Attributes
    ----------
    kinds_
        Column → ``"number"`` or ``"text"``, of the columns in use.
    dropped_
        Column → reason why it is not in use.
    encoder_
        The fitted scikit-learn pipeline.

    Examples
    --------
    >>> table = pd.DataFrame({"size": [1.0, 2.0, None, 4.0], "colour": ["red", None, "red", "blue"]})
    >>> TableEncoder().fit_transform(table).shape
    (4, 4)
    """

    def fit(self, X: pd.DataFrame, y: Any = None) -> Self:  # noqa: ARG002 - scikit-learn's signature
        """Choose the columns and learn their encoding."""
        table = _as_table(X)
        kinds = column_kinds(table)
        dropped = {name: why for name, kind in kinds.items() if (why := _why_useless(table[name], kind))}
        used = {name: kind for name, kind in kinds.items() if name not in dropped}
        if not used:
            reasons_given = "; ".join(f"{name!r} {reason}" for name, reason in dropped.items())
            raise InvalidInputError(
                f"`X` must have at least one useful column; {reasons_given or 'it has no columns'}."
            )
        self.feature_names_in_ = np.array(list(kinds), dtype=object)
        self.n_features_in_ = len(kinds)
        self.kinds_: dict[str, str] = dict(used)
        self.dropped_ = dropped
        self._common = {name: _common_values(table[name]) for name, kind in used.items() if kind == "text"}
        self.encoder_ = make_encoder().fit(self._plain(table))
        return self

    def transform(self, X: pd.DataFrame) -> FloatArray:
        """Return features (n, d); columns that are not in use are ignored."""
        check_is_fitted(self)
        return np.asarray(self.encoder_.transform(self._plain(_as_table(X))), dtype=np.float64)

    def _plain(self, table: pd.DataFrame) -> pd.DataFrame:
        """Return the columns in use, as floats and Python strings."""
        require_columns(table.columns, self.kinds_, where="the table")
        columns = {
            name: _numbers(table[name]) if kind == "number" else self._text(table[name])
            for name, kind in self.kinds_.items()
        }
        return pd.DataFrame(columns, index=table.index)

    def _text(self, column: pd.Series) -> pd.Series:
        text = _as_text(column)
        common = self._common[str(column.name)]
        return text.where(text.isna() | text.isin(common), OTHER) if len(common) == MAX_CATEGORIES else text


def _as_table(X: Any) -> pd.DataFrame:
    if not isinstance(X, pd.DataFrame):
        raise InvalidInputError(f"`X` must be a pandas DataFrame; got {type(X).__name__}.")
    table = X.set_axis([str(name) for name in X.columns], axis=1)
    if not table.columns.is_unique:
        repeated = sorted(set(table.columns[table.columns.duplicated()]))
        raise InvalidInputError(f"`X` must have unique column names; {repeated} are repeated.")
    return table


def _why_useless(column: pd.Series, kind: str) -> str:
    """Return why a column is left out, or an empty string."""
    known = column.dropna()
    if known.empty:
        return "is empty"
    if len(known) == len(column) and bool((known == known.iloc[0]).all()):
        return "has the same value in every row"
    if kind == "number":
        return "numbers the rows" if _counts_rows(known) else ""
    text = _as_text(known)
    distinct = text.unique()
    if pd.api.types.is_datetime64_any_dtype(column) or all(_DATE.fullmatch(v.strip()) for v in distinct):
        return "contains dates; to use them, convert them to numbers such as an age or a month"
    if len(known) > FEW_ROWS and len(distinct) > DISTINCT_SHARE * len(known):
        return "differs in nearly every row, like a name, an identifier or free text"
    return ""


def _counts_rows(known: pd.Series) -> bool:
    """Detect row numbers, in any order and with gaps: distinct integers in a narrow range."""
    values = known.to_numpy(dtype=np.float64)
    if len(values) <= FEW_ROWS or (values != np.round(values)).any():
        return False
    return len(np.unique(values)) == len(values) and bool(np.ptp(values) < 2 * len(values))


def _common_values(column: pd.Series) -> list[str]:
    counts = _as_text(column.dropna()).value_counts()
    # Sorted, so that ties do not depend on the order of the rows.
    return sorted(counts.index, key=lambda value: (-counts[value], value))[:MAX_CATEGORIES]


def _numbers(column: pd.Series) -> pd.Series:
    numbers = pd.to_numeric(column, errors="coerce").astype(np.float64)
    wrong = column[numbers.isna() & column.notna()]
    if len(wrong):
        raise InvalidInputError(
            f"column {column.name!r} must contain numbers, as in training; got {wrong.iloc[0]!r} in row "
            f"{wrong.index[0]}."
        )
    finite = numbers.where(np.isfinite(numbers))
    check_magnitude(finite.to_numpy()[:, None], names=[column.name])
    return finite


def _as_text(column: pd.Series) -> pd.Series:
    return column.astype(object).map(str, na_action="ignore")
