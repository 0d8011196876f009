"""Kinds of columns: every column is read as numbers or as text."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Literal

import numpy as np
import pandas as pd

from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

Kind = Literal["number", "text"]

#: Type of text columns: a string type, or object before version 3 of pandas.
_TEXT = pd.Series(["text"]).dtype


def column_kinds(table: pd.DataFrame) -> dict[str, Kind]:
    """Return the kind of each column of ``table``, with which other files can be read the same way."""
    return {str(name): "number" if _is_number(table[name]) else "text" for name in table}


def as_kinds(table: pd.DataFrame, kinds: Mapping[str, Kind], *, locate: Callable[[int], str]) -> pd.DataFrame:
    """Convert columns to the requested kinds; other columns keep their kind.

    Parameters
    ----------
    table
        Columns of any type; the index holds the row numbers of the file.
    kinds
        Column → ``"number"`` or ``"text"``.
    locate
        Row number → place in the file, for error messages.
    """
    wanted = column_kinds(table) | dict(kinds)
    columns = {
        str(name): _numbers(table[name], locate) if wanted[str(name)] == "number" else _text(table[name])
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


def _is_number(column: pd.Series) -> bool:
    return pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)


def _numbers(column: pd.Series, locate: Callable[[int], str]) -> pd.Series:
    if _is_number(column):
        return column
    numbers = pd.to_numeric(column, errors="coerce")
    wrong = column[numbers.isna() & column.notna()]
    if len(wrong):
        raise InvalidInputError(
            f"{locate(int(wrong.index[0]))}: column {column.name!r} must hold numbers, as in earlier rows; "
            f"got {wrong.iloc[0]!r}. Correct it, leave it empty, or read the column as text."
        )
    return numbers.astype("float64")


def _text(column: pd.Series) -> pd.Series:
    return column.astype(object).where(column.notna(), np.nan).map(str, na_action="ignore").astype(_TEXT)
