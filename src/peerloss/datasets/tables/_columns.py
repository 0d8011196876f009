"""Columns of a table: numbers or text, how they are encoded, and which one may hold labels."""

from __future__ import annotations

import shlex
from difflib import get_close_matches
from typing import TYPE_CHECKING, Literal

import numpy as np
import pandas as pd

from peerloss._validation import check_exact_labels
from peerloss.datasets.tables._number_text import different_units, parse_number
from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Mapping

    from sklearn.pipeline import Pipeline

Kind = Literal["number", "text"]

#: Type of text columns: a string type, or object before version 3 of pandas.
_TEXT = pd.Series(["text"]).dtype


def column_kinds(table: pd.DataFrame) -> dict[str, Kind]:
    """Return the kind of each column of ``table``, with which other files can be read the same way."""
    return {str(name): "number" if _is_number(table[name]) else "text" for name in table}


def as_kinds(
    table: pd.DataFrame, kinds: Mapping[str, Kind], *, locate: Callable[[int], str], decimal: str = "."
) -> pd.DataFrame:
    """Convert columns to the requested kinds; other columns keep their kind.

    ``locate`` returns the place in the file of a row number in the index, for error messages. ``decimal`` is
    the decimal mark of numbers in text.
    """
    wanted = column_kinds(table) | dict(kinds)
    columns = {
        str(name): _numbers(table[name], locate, decimal)
        if wanted[str(name)] == "number"
        else _text(table[name])
        for name in table
    }
    return pd.DataFrame(columns, index=table.index)


def require_columns(present: Iterable[str], wanted: Iterable[str], *, where: str) -> None:
    """Refuse a table without the ``wanted`` columns.

    The message calls the table ``where`` and lists the columns that are ``present``.
    """
    have = [str(name) for name in present]
    missing = [name for name in wanted if name not in have]
    if not missing:
        return
    similar = get_close_matches(missing[0], have, n=1)
    raise InvalidInputError(
        f"{where} has no column {quoted(missing)}; its columns are {quoted(have)}."
        + (f" Did you mean {similar[0]!r}?" if similar else "")
    )


def quoted(names: Iterable[object], *, max_names: int = 40) -> str:
    """Return a list of quoted names for a message, at most ``max_names`` of them."""
    texts = [repr(str(name)) for name in names]
    rest = f" and {len(texts) - max_names} more" if len(texts) > max_names else ""
    return ", ".join(texts[:max_names]) + rest


def check_unique(names: Iterable[str], where: object, *, advice: str) -> None:
    """Refuse column names that occur more than once."""
    counts = pd.Series(list(names), dtype=object).value_counts()
    repeated = sorted(counts.index[counts > 1])
    if repeated:
        raise InvalidInputError(
            f"{where}: column names must be unique; {quoted(repeated)} occurs more than once. {advice}"
        )


def free_names(name: str, count: int, taken: Container[str]) -> list[str]:
    """Return names for the ``count`` components of a column of text; none of them is ``taken``.

    >>> free_names("review", 2, {"review", "size"}), free_names("review", 2, {"review", "review 1"})
    (['review 0', 'review 1'], ['review_ 0', 'review_ 1'])
    """
    names = [f"{name} {i}" for i in range(count)]
    return free_names(f"{name}_", count, taken) if any(new in taken for new in names) else names


def make_encoder(*, mark_missing: bool = False) -> Pipeline:
    """Return the preprocessing: impute, one-hot encode text columns, standardise all columns.

    ``mark_missing`` adds a column for each number with missing values, which is 1 where it is missing.
    """
    # Reading a table does not need scikit-learn, which takes longer to import than most tables to read.
    from sklearn.compose import ColumnTransformer, make_column_selector  # noqa: PLC0415
    from sklearn.impute import SimpleImputer  # noqa: PLC0415
    from sklearn.pipeline import make_pipeline  # noqa: PLC0415
    from sklearn.preprocessing import OneHotEncoder, StandardScaler  # noqa: PLC0415

    numbers = SimpleImputer(strategy="most_frequent", keep_empty_features=True, add_indicator=mark_missing)
    categories = make_pipeline(
        SimpleImputer(strategy="constant", fill_value="missing"),
        OneHotEncoder(handle_unknown="ignore", sparse_output=False),
    )
    columns = ColumnTransformer(
        [
            ("numbers", numbers, make_column_selector(dtype_include="number")),
            ("categories", categories, make_column_selector(dtype_exclude="number")),
        ]
    )
    return make_pipeline(columns, StandardScaler())


def split_target(
    table: pd.DataFrame, target: str | None, *, where: str = "The table"
) -> tuple[pd.DataFrame, pd.Series]:
    """Return features and labels, after refusing labels that nothing can be learned from.

    Parameters
    ----------
    table
        Features and one column of labels.
    target
        The name of that column.
    where
        The name of the table in messages.

    Raises
    ------
    InvalidInputError
        If the column does not exist (or ``target`` is ``None``), labels are missing, fractional or all the
        same, or there is no other column.
    """
    if target is None:
        raise InvalidInputError(
            f"`target` must name the column of the labels; the columns of {where} are {quoted(table)}."
        )
    require_columns(table.columns, [target], where=where)
    labels = table[target]
    missing = np.flatnonzero(labels.isna())
    if len(missing):
        raise InvalidInputError(
            f"{where}: {len(missing)} of {len(labels)} labels in column {target!r} are missing, the first in "
            f"row {missing[0] + 1} below the header. Remove those rows, or predict them after training."
        )
    check_label_column(labels, where=where)
    values = labels.unique().tolist()
    if len(values) < 2:
        found = f"every row has the label {values[0]!r}" if values else "no row has a label"
        raise InvalidInputError(f"{where}: column {target!r} must hold at least two classes; {found}.")
    if table.shape[1] == 1:
        raise InvalidInputError(f"{where} has no column besides the target {target!r}; add features.")
    return table.drop(columns=target), labels


def check_label_column(labels: pd.Series, *, where: str = "The table") -> None:
    """Refuse a column of labels that holds measurements instead of classes. Missing labels are ignored.

    Parameters
    ----------
    labels
        Numbers or text; the name of the column appears in messages.
    where
        The name of the table in messages.

    Raises
    ------
    InvalidInputError
        If a number is fractional, infinite, or too large to be exact as a float.
    """
    if labels.dtype.kind not in "iuf":
        return
    known = labels.dropna()
    check_exact_labels(known.to_numpy(), f"{where}: column {labels.name!r}")
    fractions = known[known != known.round()]
    if len(fractions):
        raise InvalidInputError(
            f"{where}: column {labels.name!r} must hold classes; it holds measurements such as "
            f"{fractions.iloc[0]:g}. Convert them to classes first, for example above and below a threshold, "
            "or choose another column."
        )


def _is_number(column: pd.Series) -> bool:
    return pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)


def _numbers(column: pd.Series, locate: Callable[[int], str], decimal: str) -> pd.Series:
    if _is_number(column):
        return column
    # With decimal commas the text 2.000 is two thousand, but a number cell stays as it is.
    plain = column if decimal == "." else column.mask(column.map(lambda cell: isinstance(cell, str)))
    numbers = pd.to_numeric(plain, errors="coerce")
    texts = column[numbers.isna() & column.notna()].astype(str)
    if len(texts):  # such as $1,234.00
        parsed = {text: parse_number(text, decimal) for text in texts.unique()}
        wrong = texts[texts.map(lambda text: parsed[text] is None)]
        if len(wrong):
            value, other = wrong.iloc[0], "," if decimal == "." else "."
            remedy = f"use --na-values {shlex.quote(value)} if it means a missing value"
            if parse_number(value, other) is not None:
                remedy = f"use --decimal {other} if that is the decimal mark"
            raise InvalidInputError(
                f"{locate(int(wrong.index[0]))}: column {column.name!r} must hold numbers, as in earlier "
                f"rows; got {value!r}. Correct it, leave it empty, or read the column as text; {remedy}."
            )
        mix = different_units(parsed, decimal, plain=bool(np.isfinite(numbers).any()))
        if mix:
            raise InvalidInputError(
                f"{locate(int(texts.index[0]))}: column {column.name!r} must hold numbers with one unit; it "
                f"mixes {mix}. Convert its values to one unit."
            )
        numbers = numbers.astype("float64").fillna(texts.map(parsed).astype("float64"))
    return numbers.astype("float64")


def _text(column: pd.Series) -> pd.Series:
    return column.astype(object).where(column.notna(), np.nan).map(str, na_action="ignore").astype(_TEXT)
