"""Which columns of a table can be learned from, how they are used, and why others are left out."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from peerloss.datasets.tables._columns import column_kinds
from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    from peerloss.datasets.tables._columns import Kind

#: Largest number of values of a text column that are one-hot encoded; rarer values share one column.
MAX_CATEGORIES = 30
#: A text column with more words than this per value, on average, and many values is free text.
WORDS_OF_FREE_TEXT = 3.0
#: With at most this many rows, distinct values are not evidence of identifiers.
FEW_ROWS = 20
#: A text column with a larger share of distinct values contains names or free text.
DISTINCT_SHARE = 0.9
_DATE = re.compile(r"\d{1,4}([-/.])\d{1,2}\1\d{1,4}([ T].*)?")
#: A word, or one character of a script without spaces between words (Chinese, Japanese, Korean, Thai).
WORD = re.compile(r"[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[^\W_]+")


class ColumnUse(NamedTuple):
    """What a column contains, whether it is used, and how or why not."""

    kind: str
    """``number``, ``category``, ``text``, or, if it is not used, ``date``, ``identifier``, ``constant`` or
    ``empty``."""
    used: bool
    why: str
    """How the column is used, or why it is not."""


def describe_columns(table: pd.DataFrame) -> pd.DataFrame:
    """Return which columns of a table the classifiers use, how, and why others are left out.

    Every classifier of this library that is given a DataFrame with text or missing values uses its columns
    in this way (:class:`~peerloss.estimators.TableEncoder`).

    Parameters
    ----------
    table
        The features, without the labels.

    Returns
    -------
    pandas.DataFrame
        One row per column: ``column``, ``kind`` (number, category, text, date, identifier, constant or
        empty), ``used``, and ``why``: how the column is used, or why it is not.

    Examples
    --------
    >>> table = pd.DataFrame({"size": [1.0, 2.0, None], "colour": ["red", "red", "blue"], "unit": "cm"})
    >>> print(describe_columns(table).to_string(index=False))
    column     kind  used                                         why
      size   number  True                as it is; 1 value is missing
    colour category  True 2 values, one column each for linear models
      unit constant False             has the same value in every row
    """
    found = {name: use_of(column) for name, column in as_table(table).items()}
    rows = [(name, *use) for name, use in found.items()]
    return pd.DataFrame(rows, columns=["column", *ColumnUse._fields])


def as_table(X: Any) -> pd.DataFrame:
    """Return a DataFrame with text as column names, each of them once."""
    if not isinstance(X, pd.DataFrame):
        raise InvalidInputError(f"`X` must be a pandas DataFrame; got {type(X).__name__}.")
    table = X.infer_objects().set_axis([str(name) for name in X.columns], axis=1).apply(_without_decimals)
    if not table.columns.is_unique:
        repeated = sorted(set(table.columns[table.columns.duplicated()]))
        raise InvalidInputError(f"`X` must have unique column names; {repeated} are repeated.")
    return table


def _without_decimals(column: pd.Series) -> pd.Series:
    """Return decimal numbers, which databases return as objects, as floats."""
    is_decimal = column.dtype == object and pd.api.types.infer_dtype(column, skipna=True) == "decimal"
    return column.astype(np.float64) if is_decimal else column


def use_of(column: pd.Series) -> ColumnUse:
    """Return how one column is used."""
    known = column.dropna()
    if known.empty:
        return ColumnUse("empty", False, "is empty")
    if len(known) == len(column) and bool((known == known.iloc[0]).all()):
        return ColumnUse("constant", False, "has the same value in every row")
    gaps = _gaps(len(column) - len(known))
    if _kind(column) == "number":
        if _counts_rows(known):
            return ColumnUse("identifier", False, "numbers the rows")
        return ColumnUse("number", True, f"as it is{gaps}")
    return _use_of_text(column, as_text(known), gaps)


def _use_of_text(column: pd.Series, text: pd.Series, gaps: str) -> ColumnUse:
    distinct = text.unique()
    if pd.api.types.is_datetime64_any_dtype(column) or all(_DATE.fullmatch(v.strip()) for v in distinct):
        why = "contains dates; to use them, convert them to numbers such as an age or a month"
        return ColumnUse("date", False, why)
    if len(distinct) > MAX_CATEGORIES and _words_per_value(text) >= WORDS_OF_FREE_TEXT:
        return ColumnUse("text", True, f"by its words (TF-IDF){gaps}")
    if len(text) > FEW_ROWS and len(distinct) > DISTINCT_SHARE * len(text):
        why = "differs in nearly every row, like a name or an identifier"
        return ColumnUse("identifier", False, why)
    values = f"{len(distinct):,} value{'s' * (len(distinct) != 1)}"
    how = "one column each for linear models"
    if len(distinct) > MAX_CATEGORIES:
        how = f"one column for each of the {MAX_CATEGORIES} most frequent for linear models"
    return ColumnUse("category", True, f"{values}, {how}{gaps}")


def as_text(column: pd.Series) -> pd.Series:
    """Return a column as Python strings; missing values stay missing."""
    text = column.astype(object)
    # Most columns of text hold nothing else, and this check is ten times faster than the conversion.
    is_text = pd.api.types.infer_dtype(text, skipna=True) == "string"
    return text if is_text else text.map(str, na_action="ignore")


def _kind(column: pd.Series) -> Kind:
    return column_kinds(column.to_frame("column"))["column"]


def _gaps(missing: int) -> str:
    return f"; {missing:,} value{'s are' if missing > 1 else ' is'} missing" if missing else ""


def _counts_rows(known: pd.Series) -> bool:
    """Detect row numbers, in any order and with gaps: distinct integers in a narrow range."""
    values = known.to_numpy(dtype=np.float64)
    if len(values) <= FEW_ROWS or (values != np.round(values)).any():
        return False
    return len(np.unique(values)) == len(values) and bool(np.ptp(values) < 2 * len(values))


def _words_per_value(text: pd.Series) -> float:
    return float(np.mean([len(WORD.findall(value)) for value in text]))
