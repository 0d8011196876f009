"""Values of a row that are unusual for its label: robust z-scores of numbers, lift of categories."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy import sparse

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
        examine = _of_numbers if _is_number(column) else _of_categories
        for number, score, value in examine(column, codes, suspects, suggested, names):
            found[number].append((score, value))
    return [
        [value for _, value in sorted(values, key=lambda pair: -pair[0])[:MAX_VALUES]] for values in found
    ]


def _is_number(column: pd.Series) -> bool:
    return pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)


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
    of_class, overall = counts.sum(axis=1), counts.sum(axis=0) / counts.sum()
    for number in np.flatnonzero(known[suspects]):
        given, place = codes[suspects[number]], places[suspects[number]]
        share = (counts[given, place] - 1.0) / max(of_class[given] - 1.0, 1.0)  # without the row itself
        if share > min(MAX_SHARE, MAX_LIFT * overall[place]):
            continue
        other = suggested[number]
        elsewhere = counts[other, place] / max(of_class[other], 1.0)
        words = f"{share:.1%} of the rows with label {names[given]!r}, {elsewhere:.1%} with {names[other]!r}"
        lift = (share * of_class[given] + 0.5) / (overall[place] * of_class[given] + 0.5)
        # A normal value that is as rare as exp(-z²/2) has the score z, so that both kinds can be compared.
        score = float(np.sqrt(2.0 * max(-np.log(lift), 0.0)))
        yield int(number), score, UnusualValue(str(column.name), str(values[place]), words)
