"""Values of a row that are unusual for its label: robust z-scores of numbers, lift of categories, words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy import sparse
from sklearn.feature_extraction.text import CountVectorizer

from peerloss.datasets.tables.column_use import WORD, as_text, use_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from peerloss._validation import IntArray

#: Columns that are examined, and unusual values that are reported for each row.
MAX_COLUMNS, MAX_VALUES = 200, 3
#: Numbers further than this from the median of the class, in robust standard deviations, are unusual.
MIN_Z = 2.5
#: Categories with at most this share within the class, and at most half of their share in the table.
MAX_SHARE, MAX_LIFT = 0.1, 0.5
#: Columns of text with more distinct values than this are not categories.
MAX_CATEGORIES = 100
#: Words of free text that are examined, and how often one must be expected in the class to be missed there.
MAX_WORDS, MIN_EXPECTED = 5000, 3.0
#: The median absolute deviation of a normal distribution times this is its standard deviation.
MAD_TO_STD = 1.4826


@dataclass(frozen=True)
class UnusualValue:
    """A value that is unusual for the given label."""

    column: str
    value: str
    comparison: str
    """How it differs from rows with the given label, in words."""

    def __str__(self) -> str:
        return f"{self.column} = {self.value}: {self.comparison}"


def find_unusual(
    X: Any, codes: IntArray, suspects: IntArray, suggested: IntArray, classes: NDArray[Any]
) -> list[list[UnusualValue]]:
    """Return the most unusual values of each suspect.

    Parameters
    ----------
    X
        Features of all rows, or ``None``.
    codes
        The given labels of all rows, as codes into ``classes``.
    suspects, suggested
        Positions of the suspects, and the codes of their suggested labels.
    classes
        The labels.
    """
    found: list[list[tuple[float, UnusualValue]]] = [[] for _ in suspects]
    if X is None or sparse.issparse(X) or not len(suspects):
        return [[] for _ in suspects]
    table = X if isinstance(X, pd.DataFrame) else pd.DataFrame(np.asarray(X))
    names = [str(name) for name in classes]
    for place in range(min(table.shape[1], MAX_COLUMNS)):
        column = table.iloc[:, place]
        examine = _of_numbers if _is_number(column) else _of_words if _is_text(column) else _of_categories
        for number, score, value in examine(column, codes, suspects, suggested, names):
            found[number].append((score, value))
    return [
        [value for _, value in sorted(values, key=lambda pair: -pair[0])[:MAX_VALUES]] for values in found
    ]


def _is_number(column: pd.Series) -> bool:
    return pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)


def _is_text(column: pd.Series) -> bool:
    return pd.api.types.infer_dtype(column, skipna=True) == "string" and use_of(column).kind == "text"


def _of_numbers(
    column: pd.Series, codes: IntArray, suspects: IntArray, suggested: IntArray, names: list[str]
) -> Iterator[tuple[int, float, UnusualValue]]:
    values = pd.Series(column.to_numpy(dtype=np.float64, na_value=np.nan))
    values = values.where(np.isfinite(values))
    medians = values.groupby(codes).median().reindex(range(len(names)))
    deviations = (values - medians.to_numpy()[codes]).abs()
    spread = MAD_TO_STD * deviations.groupby(codes).median().reindex(range(len(names)))
    spread = spread.where(spread > 0.0, values.groupby(codes).std(ddof=0))
    own = codes[suspects]
    with np.errstate(invalid="ignore", divide="ignore"):
        z = (values.to_numpy()[suspects] - medians.to_numpy()[own]) / spread.to_numpy()[own]
    z = np.where(np.isfinite(z), z, 0.0)
    for number in np.flatnonzero(np.abs(z) >= MIN_Z):
        given, other = (int(code) for code in (own[number], suggested[number]))
        words = f"the median is {medians[given]:.4g} for label {names[given]!r}"
        if np.isfinite(medians[other]):
            words += f" and {medians[other]:.4g} for {names[other]!r}"
        value = UnusualValue(str(column.name), f"{values[suspects[number]]:.6g}", words)
        yield int(number), float(abs(z[number])), value


def _of_categories(
    column: pd.Series, codes: IntArray, suspects: IntArray, suggested: IntArray, names: list[str]
) -> Iterator[tuple[int, float, UnusualValue]]:
    places, values = pd.factorize(column.astype(object).map(str, na_action="ignore"))
    if not 1 < len(values) <= MAX_CATEGORIES:
        return
    known = places >= 0
    counts = np.zeros((len(names), len(values)))
    np.add.at(counts, (codes[known], places[known]), 1.0)
    shares = _Shares(counts, counts.sum(axis=1), names)
    for number in np.flatnonzero(known[suspects]):
        given, place = codes[suspects[number]], places[suspects[number]]
        found = shares.compare(given, suggested[number], place)
        if found is not None:
            yield int(number), found[0], UnusualValue(str(column.name), str(values[place]), found[1])


def _of_words(
    column: pd.Series, codes: IntArray, suspects: IntArray, suggested: IntArray, names: list[str]
) -> Iterator[tuple[int, float, UnusualValue]]:
    """Yield words that are rare in texts with the given label, and more frequent with the suggested one."""
    words = CountVectorizer(binary=True, token_pattern=WORD.pattern, min_df=2, max_features=MAX_WORDS)
    try:
        matrix = sparse.csr_array(words.fit_transform(as_text(column).fillna("")))
    except ValueError:  # no word occurs in two rows
        return
    rows_of_class = sparse.csr_array(
        (np.ones(len(codes)), (codes, np.arange(len(codes)))), (len(names), len(codes))
    )
    shares = _Shares((rows_of_class @ matrix).toarray(), np.bincount(codes, minlength=len(names)), names)
    vocabulary = words.get_feature_names_out()
    for number, row in enumerate(suspects):
        given, other = codes[row], suggested[number]
        for place in matrix.indices[matrix.indptr[row] : matrix.indptr[row + 1]]:
            if shares.expected(given, place) < MIN_EXPECTED or not shares.is_rarer(given, other, place):
                continue
            found = shares.compare(given, other, place)
            if found is not None:
                value = UnusualValue(f"word of {column.name}", str(vocabulary[place]), found[1])
                yield number, found[0], value


@dataclass(frozen=True)
class _Shares:
    """How many rows of each class have each value."""

    counts: NDArray[Any]
    """(K, values)."""
    of_class: NDArray[Any]
    """(K,) rows of the class."""
    names: list[str]

    def expected(self, label: int, place: int) -> float:
        """Return how many rows of a class would have a value if labels did not matter."""
        return float(self.counts[:, place].sum() / self.of_class.sum() * self.of_class[label])

    def is_rarer(self, given: int, other: int, place: int) -> bool:
        """Return whether a value is rarer with one label than with the other, without the row itself."""
        return bool(
            (self.counts[given, place] - 1.0) * self.of_class[other]
            < self.counts[other, place] * self.of_class[given]
        )

    def compare(self, given: int, other: int, place: int) -> tuple[float, str] | None:
        """Return how unusual a value is for a label, and its shares in words; ``None`` if it is usual."""
        total, overall = self.of_class[given], self.counts[:, place].sum() / self.of_class.sum()
        share = (self.counts[given, place] - 1.0) / max(total - 1.0, 1.0)  # without the row itself
        if share > min(MAX_SHARE, MAX_LIFT * overall):
            return None
        elsewhere = self.counts[other, place] / max(self.of_class[other], 1.0)
        words = (
            f"{share:.1%} of the rows with label {self.names[given]!r}, {elsewhere:.1%} with "
            f"{self.names[other]!r}"
        )
        lift = (share * total + 0.5) / (overall * total + 0.5)
        # A normal value that is as rare as exp(-z²/2) has the score z, so that all kinds can be compared.
        return float(np.sqrt(2.0 * max(-np.log(lift), 0.0))), words
