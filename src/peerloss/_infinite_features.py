"""Infinite numbers among features are an error, for every classifier, audit and command.

They are not missing values: that is what scikit-learn and pandas do, too. The check comes before that of
scikit-learn, whose message does not name the column.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import pandas as pd

from peerloss._validation import short_repr
from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Callable


def check_no_infinity(
    X: Any, *, locate: Callable[[int], object] | None = None, is_part: bool = False
) -> None:
    """Refuse a DataFrame, an array or a sparse matrix in which a number is infinite; NaN is allowed.

    Anything else is left to later checks. ``locate`` returns the name of a row from its position, for the
    message; by default its name in the index of a DataFrame, otherwise the position. If ``X`` is a part of
    the rows (``is_part``), the message does not count them.
    """
    if isinstance(X, pd.DataFrame):
        _check_table(X, locate or X.index.__getitem__, is_part=is_part)
    elif hasattr(X, "tocoo"):
        _check_sparse(X, locate or int)
    elif isinstance(X, np.ndarray | list | tuple):
        try:
            array = np.asarray(X)
        except ValueError:  # rows of different lengths, which are refused later
            return
        if array.ndim != 2:
            return
        if array.dtype.kind == "O":
            _check_table(pd.DataFrame(array), locate or int)
        elif array.dtype.kind == "f":
            _check_dense(array, list(range(array.shape[1])), locate or int)


def _check_table(table: pd.DataFrame, locate: Callable[[int], object], *, is_part: bool = False) -> None:
    table = table.infer_objects()  # columns of type object may hold numbers
    places = [place for place, dtype in enumerate(table.dtypes) if dtype.kind == "f"]
    if not places:
        return
    numbers = table if len(places) == table.shape[1] else table.iloc[:, places]
    if all(isinstance(dtype, np.dtype) for dtype in numbers.dtypes):
        values = numbers.to_numpy()  # without a copy, if all columns have one type
    else:
        values = numbers.to_numpy(dtype=np.float64, na_value=np.nan)
    _check_dense(values, list(numbers.columns), locate, is_part=is_part)


def _check_dense(
    numbers: Any, names: list[Any], locate: Callable[[int], object], *, is_part: bool = False
) -> None:
    infinite = np.isinf(numbers)
    if infinite.any():
        column = int(infinite.any(axis=0).argmax())
        rows = np.flatnonzero(infinite[:, column])
        _refuse(names[column], rows, numbers[rows, column], None if is_part else len(numbers), locate)


def _check_sparse(X: Any, locate: Callable[[int], object]) -> None:
    if X.dtype.kind != "f":
        return
    matrix = X.tocoo(copy=False)
    infinite = np.isinf(matrix.data)
    if infinite.any():
        column = int(matrix.col[infinite].min())
        there = infinite & (matrix.col == column)
        _refuse(column, np.sort(matrix.row[there]), matrix.data[there], matrix.shape[0], locate)


def _refuse(
    column: Any, rows: Any, values: Any, n_rows: int | None, locate: Callable[[int], object]
) -> NoReturn:
    options = " ".join(f"--na-values {value:g}" for value in np.unique(values)[::-1])
    first = locate(int(rows[0]))
    where = f"first in row {first}"
    if n_rows is not None:
        where = f"in {len(rows):,} of {n_rows:,} rows, the first is row {first}"
    raise InvalidInputError(
        f"`X` must not hold infinite numbers; column {short_repr(column)} has infinity {where}. Replace it "
        f"with NaN if the number is not known (in a file: `{options}`), or with a finite number, for example "
        "with `clip`."
    )
