"""TableEncoder: turn a table of numbers and text into features."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
import pandas as pd
from scipy.sparse import csr_array, hstack
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from peerloss._infinite_features import check_no_infinity
from peerloss._validation import check_choice, check_magnitude
from peerloss.datasets.tables._columns import column_kinds, free_names, make_encoder, require_columns
from peerloss.datasets.tables.column_use import MAX_CATEGORIES, as_table, as_text, use_of
from peerloss.datasets.tables.text_features import fit_text, transform_text
from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    from peerloss._validation import FloatArray

#: Largest number of values of a text column that trees distinguish; scikit-learn's boosting allows 255.
MAX_CODES = 254
OTHER = "(other)"


class Views(NamedTuple):
    """The features of a table for different kinds of models."""

    features: FloatArray
    """(n, d) numbers for networks and linear models."""
    trees: FloatArray | None = None
    """(n, columns) for trees: codes of categories, NaN for missing values; ``None``: as ``features``."""
    wide: csr_array | None = None
    """(n, D) sparse features for linear models, if there is free text or the input is sparse."""


class TableEncoder(TransformerMixin, BaseEstimator):
    """Turn the columns of a DataFrame into standardised numbers; leave out columns that are not useful.

    Missing numbers are replaced by the most frequent value and marked by a column of their own. Text is
    one-hot encoded with missing values as a category, and everything is standardised
    (:func:`peerloss.datasets.make_encoder`). The 30 most frequent values of a text column have one column
    each and the remaining values share one. Free text (several words in each value, and many values) becomes
    a TF-IDF matrix of words and parts of words, or the leading components of this matrix. Some columns are
    left out, with a reason in ``dropped_``: empty or constant columns, row numbers, dates, and names that
    differ in nearly every row (:func:`~peerloss.estimators.describe_columns` lists the columns).

    Parameters
    ----------
    output
        ``"features"``: an array of numbers, with 50 components for each column of free text. ``"sparse"``: a
        sparse matrix with the TF-IDF matrix instead, which linear models learn better from. ``"table"``: the
        columns in use as they are, for :class:`~peerloss.PeerClassifier`, which encodes them for each of its
        models. Missing values in a column of numbers that had none in training become its median.

    Attributes
    ----------
    kinds_
        Column → ``"number"`` or ``"text"``, of the columns in use.
    dropped_
        Column → reason why it is not in use.
    free_text_
        The text columns that are free text.
    encoder_
        The fitted scikit-learn pipeline.

    Examples
    --------
    >>> table = pd.DataFrame({"size": [1.0, 2.0, None, 4.0], "colour": ["red", None, "red", "blue"]})
    >>> TableEncoder().fit_transform(table).shape
    (4, 5)
    """

    def __init__(self, *, output: str = "features") -> None:
        self.output = output

    def fit(self, X: pd.DataFrame, y: Any = None) -> Self:  # noqa: ARG002 - scikit-learn's signature
        """Choose the columns and learn their encoding."""
        check_choice(self.output, "output", ("features", "sparse", "table"))
        table = as_table(X)
        check_no_infinity(table)  # in all columns, as in an array
        kinds = column_kinds(table)
        uses = {name: use_of(table[name]) for name in kinds}
        dropped = {name: use.why for name, use in uses.items() if not use.used}
        used = {name: kind for name, kind in kinds.items() if uses[name].used}
        if not used:
            reasons_given = "; ".join(f"{name!r} {reason}" for name, reason in dropped.items())
            raise InvalidInputError(
                f"`X` must have at least one useful column; {reasons_given or 'it has no columns'}."
            )
        self.feature_names_in_ = np.array(list(kinds), dtype=object)
        self.n_features_in_ = len(kinds)
        self.kinds_: dict[str, str] = dict(used)
        self.dropped_ = dropped
        self.free_text_ = [name for name in used if uses[name].kind == "text"]
        if self.output == "table":
            # A classifier that was trained without gaps cannot predict rows that have some.
            columns = self._used(table)
            complete = [n for n, kind in used.items() if kind == "number" and columns[n].notna().all()]
            self._medians = {name: float(columns[name].median()) for name in complete}
            return self
        self._text_models = {name: fit_text(as_text(table[name])) for name in self.free_text_}
        categories = [n for n, kind in used.items() if kind == "text" and n not in self.free_text_]
        self._codes = {name: _common_values(table[name], MAX_CODES) for name in categories}
        self._common = {name: values[:MAX_CATEGORIES] for name, values in self._codes.items()}
        plain, _ = self._plain(table)
        self.encoder_ = make_encoder(mark_missing=True).fit(self._one_hot_table(plain))
        return self

    def transform(self, X: pd.DataFrame) -> Any:
        """Return features (n, d), dense or sparse, or, if ``output`` is ``"table"``, the columns in use.

        Columns that are not in use are ignored.
        """
        check_is_fitted(self)
        table = as_table(X)
        if self.output == "table":
            return self._used(table).fillna(self._medians)
        if self.output == "features":
            return self._dense(self._plain(table)[0])
        views = self.views(table)
        return csr_array(views.features) if views.wide is None else views.wide

    def views(self, X: pd.DataFrame) -> Views:
        """Return the features for networks, for trees, and, if there is free text, for linear models.

        Trees get one column per category, with integer codes, and NaN for missing values. Linear models get
        the TF-IDF matrix of free text instead of its components.
        """
        plain, words = self._plain(as_table(X))
        columns = [_codes(plain[n], self._codes[n]) if n in self._codes else plain[n] for n in plain]
        trees = np.column_stack([np.asarray(c, dtype=np.float64) for c in columns])
        features = self._dense(plain)
        if not words:
            return Views(features, trees)
        # The encoder returns numbers, components of text, marks of missing numbers, and categories.
        first = sum(kind == "number" for kind in self.kinds_.values())
        n_components = plain.shape[1] - len(self.kinds_) + len(self.free_text_)
        others = np.delete(features, np.arange(first, first + n_components), axis=1)
        return Views(features, trees, hstack([csr_array(others), *words], format="csr"))

    def categorical(self) -> tuple[int, ...]:
        """Return the places of the categories among the features for trees."""
        names = [name for name in self.kinds_ if name not in self.free_text_]
        return tuple(i for i, name in enumerate(names) if name in self._codes)

    def _dense(self, plain: pd.DataFrame) -> FloatArray:
        return np.asarray(self.encoder_.transform(self._one_hot_table(plain)), dtype=np.float64)

    def _used(self, table: pd.DataFrame) -> pd.DataFrame:
        """Return the columns in use, as floats and Python strings."""
        require_columns(table.columns, self.kinds_, where="the table")
        columns = {
            name: _numbers(table[name]) if kind == "number" else as_text(table[name])
            for name, kind in self.kinds_.items()
        }
        return pd.DataFrame(columns, index=table.index)

    def _plain(self, table: pd.DataFrame) -> tuple[pd.DataFrame, list[csr_array]]:
        """Return the columns in use, with components of free text as numbers at the end, and its matrices."""
        used = self._used(table)
        parts, words, taken = [used.drop(columns=self.free_text_)], [], set(self.kinds_)
        for name, model in self._text_models.items():
            matrix, found = transform_text(model, used[name])
            words.append(matrix)
            names = free_names(name, found.shape[1], taken)
            taken.update(names)
            parts.append(pd.DataFrame(found, index=used.index, columns=names))
        return pd.concat(parts, axis=1) if len(parts) > 1 else parts[0], words

    def _one_hot_table(self, plain: pd.DataFrame) -> pd.DataFrame:
        """Replace the rare values of categories, which share a column."""
        rare = {
            name: plain[name].where(plain[name].isna() | plain[name].isin(common), OTHER)
            for name, common in self._common.items()
            if len(common) == MAX_CATEGORIES
        }
        return plain.assign(**rare)


def _codes(column: pd.Series, values: list[str]) -> FloatArray:
    """Return the place of each entry in ``values``, their number for other entries, NaN for missing ones."""
    place = pd.Index(values).get_indexer(pd.Index(column))
    known = np.where(place < 0, len(values), place).astype(np.float64)
    return np.where(column.isna().to_numpy(), np.nan, known)


def _common_values(column: pd.Series, max_values: int) -> list[str]:
    counts = as_text(column.dropna()).value_counts()
    # Sorted, so that ties do not depend on the order of the rows.
    return sorted(counts.index, key=lambda value: (-counts[value], value))[:max_values]


def _numbers(column: pd.Series) -> pd.Series:
    if isinstance(column.dtype, np.dtype) and column.dtype.kind in "iuf":  # tables of features have hundreds
        values = column.to_numpy(dtype=np.float64)
    else:
        numbers = pd.to_numeric(column, errors="coerce").astype(np.float64)
        wrong = column[numbers.isna() & column.notna()]
        if len(wrong):
            raise InvalidInputError(
                f"column {column.name!r} must contain numbers, as in training; got {wrong.iloc[0]!r} in row "
                f"{wrong.index[0]}."
            )
        values = numbers.to_numpy()
    found = pd.Series(values, index=column.index, name=column.name)
    if np.isinf(values).any():
        check_no_infinity(found.to_frame())
    check_magnitude(values[:, None], names=[column.name])
    return found
