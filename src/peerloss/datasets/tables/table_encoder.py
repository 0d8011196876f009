"""TableEncoder: turn a table of numbers and text into features."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.utils.validation import check_is_fitted

from peerloss._validation import check_choice, check_magnitude
from peerloss.datasets.tables._columns import column_kinds, make_encoder, require_columns
from peerloss.datasets.tables.column_use import MAX_CATEGORIES, as_table, as_text, use_of
from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    from peerloss._validation import FloatArray

#: Largest number of values of a text column that trees distinguish; scikit-learn's boosting allows 255.
MAX_CODES = 254
#: Free text: size of the vocabulary, and number of features that it is reduced to.
MAX_WORDS, MAX_TEXT_FEATURES = 5000, 50
OTHER = "(other)"


class TableEncoder(TransformerMixin, BaseEstimator):
    """Turn the columns of a DataFrame into standardised numbers; leave out columns that are not useful.

    Missing numbers are replaced by the most frequent value and marked by a column of their own. Text is
    one-hot encoded with missing values as a category, and everything is standardised
    (:func:`peerloss.datasets.make_encoder`). The 30 most frequent values of a text column have one column
    each and the remaining values share one. Free text (several words in each value, and many values) becomes
    the leading components of its TF-IDF matrix. Some columns are left out, with a reason in ``dropped_``:
    empty or constant columns, row numbers, dates, and names that differ in nearly every row.

    Parameters
    ----------
    output
        ``"features"``: numbers, as described. ``"table"``: the columns in use as they are, for
        :class:`~peerloss.PeerClassifier`, which encodes them for each of its models.

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
        check_choice(self.output, "output", ("features", "table"))
        table = as_table(X)
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
            return self
        self._text_models = {name: _text_model(as_text(table[name])) for name in self.free_text_}
        categories = [n for n, kind in used.items() if kind == "text" and n not in self.free_text_]
        self._codes = {name: _common_values(table[name], MAX_CODES) for name in categories}
        self._common = {name: values[:MAX_CATEGORIES] for name, values in self._codes.items()}
        self.encoder_ = make_encoder(mark_missing=True).fit(self._one_hot_table(self._plain(table)))
        return self

    def transform(self, X: pd.DataFrame) -> Any:
        """Return features (n, d) or, if ``output`` is ``"table"``, the columns in use.

        Columns that are not in use are ignored.
        """
        check_is_fitted(self)
        table = as_table(X)
        if self.output == "table":
            return self._used(table)
        return self._dense(self._plain(table))

    def views(self, X: pd.DataFrame) -> tuple[FloatArray, FloatArray]:
        """Return features for linear models and networks, (n, d), and features for trees, (n, columns).

        Trees get one column per category, with integer codes, and NaN for missing values.
        """
        plain = self._plain(as_table(X))
        columns = [_codes(plain[n], self._codes[n]) if n in self._codes else plain[n] for n in plain]
        return self._dense(plain), np.column_stack([np.asarray(c, dtype=np.float64) for c in columns])

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

    def _plain(self, table: pd.DataFrame) -> pd.DataFrame:
        """Return the columns in use, with the components of free text as numbers behind the others."""
        used = self._used(table)
        parts = [used.drop(columns=self.free_text_)]
        for name, model in self._text_models.items():
            found = model.transform(used[name].fillna(""))
            parts.append(
                pd.DataFrame(found, index=used.index, columns=[f"{name} {i}" for i in range(found.shape[1])])
            )
        return pd.concat(parts, axis=1) if len(parts) > 1 else parts[0]

    def _one_hot_table(self, plain: pd.DataFrame) -> pd.DataFrame:
        """Replace the rare values of categories, which share a column."""
        rare = {
            name: plain[name].where(plain[name].isna() | plain[name].isin(common), OTHER)
            for name, common in self._common.items()
            if len(common) == MAX_CATEGORIES
        }
        return plain.assign(**rare)


def _text_model(text: pd.Series) -> Pipeline:
    """Fit the leading components of the TF-IDF matrix of a column; words of one row are left out."""
    words = TfidfVectorizer(max_features=MAX_WORDS, min_df=2, sublinear_tf=True)
    try:
        size = len(words.fit(text.fillna("")).vocabulary_)
    except ValueError:  # no word occurs twice
        words = TfidfVectorizer(max_features=MAX_WORDS, analyzer="char_wb", ngram_range=(2, 3))
        size = len(words.fit(text.fillna("")).vocabulary_)
    components = TruncatedSVD(max(1, min(MAX_TEXT_FEATURES, size - 1)), random_state=0)
    with np.errstate(divide="ignore", invalid="ignore"):  # the words may be the same in every row
        return make_pipeline(words, components).fit(text.fillna(""))


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
