"""Columns are numbers or text; nothing else reaches a classifier."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Literal

import numpy as np
import pandas as pd

from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

Kind = Literal["number", "text"]

#: What this version of pandas makes of text: its own type, or objects before version 3.
_TEXT = pd.Series(["text"]).dtype


def column_kinds(table: pd.DataFrame) -> dict[str, Kind]:
    """Say of each column of ``table`` whether it holds numbers or text, to read other files alike."""
    return {str(name): "number" if _is_number(table[name]) else "text" for name in table}


def as_kinds(table: pd.DataFrame, kinds: Mapping[str, Kind], *, locate: Callable[[int], str]) -> pd.DataFrame:
    """Turn columns into the kinds asked for; others become whichever they are.

    Parameters
    ----------
    table
        Columns of any type, with row numbers of the file as index.
    kinds
        Column → ``"number"`` or ``"text"``.
    locate
        Row number → words for the place in the file, for the error.
    """
    wanted = column_kinds(table) | dict(kinds)
    columns = {
        str(name): _numbers(table[name], locate) if wanted[str(name)] == "number" else _text(table[name])
        for name in table
    }
    return pd.DataFrame(columns, index=table.index)


def require_columns(present: Iterable[str], wanted: Iterable[str], *, where: str) -> None:
    """Refuse a table (``where``, in messages) that lacks ``wanted`` columns, naming those ``present``."""
    have = [str(name) for name in present]
    missing = [name for name in wanted if name not in have]
    if not missing:
        return
    alike = get_close_matches(missing[0], have, n=1)
    raise InvalidInputError(
        f"{where} has no column {quoted(missing)}; its columns are {quoted(have)}."
        + (f" Did you mean {alike[0]!r}?" if alike else "")
    )


def quoted(names: Iterable[object], *, most: int = 40) -> str:
    """List names for a message, the first ones where there are too many to read."""
    words = [repr(str(name)) for name in names]
    rest = f" and {len(words) - most} more" if len(words) > most else ""
    return ", ".join(words[:most]) + rest


def _is_number(column: pd.Series) -> bool:
    return pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)


def _numbers(column: pd.Series, locate: Callable[[int], str]) -> pd.Series:
    if _is_number(column):
        return column
    numbers = pd.to_numeric(column, errors="coerce")
    wrong = column[numbers.isna() & column.notna()]
    if len(wrong):
        raise InvalidInputError(
            f"{locate(int(wrong.index[0]))}: column {column.name!r} must hold numbers, as in the rows read "
            f"before; got {wrong.iloc[0]!r}. Correct it, leave it empty, or read the column as text."
        )
    return numbers.astype("float64")


def _text(column: pd.Series) -> pd.Series:
    return column.astype(object).where(column.notna(), np.nan).map(str, na_action="ignore").astype(_TEXT)
