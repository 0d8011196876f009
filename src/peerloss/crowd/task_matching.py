"""Match the tasks of a table of reports with the rows of a data table, by name or by row number."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from peerloss.crowd._read_reports import drop_duplicate_reports, read_reports
from peerloss.datasets import iter_table
from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    from pathlib import Path

#: Integers in their only spelling, except for zeros after the decimal point.
INTEGER = r"(?:0|-?[1-9][0-9]*)(?:\.0+)?"


def read_row_names(path: str | Path, column: str) -> pd.Series:
    """Read the column that names the rows of a table, spelled as :func:`read_matched_reports` expects it."""
    chunks = iter_table(path, kinds={column: "text"})
    return _normalised(pd.concat([chunk[column] for chunk in chunks]))


def read_matched_reports(
    path: str | Path,
    rows: pd.Index,
    *,
    id_column: str | None,
    duplicates: str = "error",
    abstain: str | None = None,
) -> pd.DataFrame:
    """Read the reports on the rows of a data table, in the order of these rows; drop missing labels.

    Parameters
    ----------
    path
        The table of reports, as for :func:`~peerloss.crowd.read_reports`.
    rows
        The index of the data: the names that :func:`read_row_names` returns, or 0, 1, … without names.
    id_column
        The column of the data that holds the names. ``None`` means that tasks are row numbers.
    duplicates, abstain
        As for :func:`~peerloss.crowd.read_reports`.

    Raises
    ------
    InvalidInputError
        If a task is not a row of the data, or a worker labelled a task more than once.
    """
    reports = read_reports(path, duplicates=duplicates, abstain=abstain).dropna(subset="label")
    if id_column is None:
        tasks = _row_numbers(reports["task"], len(rows), path)
    else:
        tasks = _normalised(reports["task"])
    place = rows.get_indexer(pd.Index(tasks))
    if (place < 0).any():
        raise InvalidInputError(
            f"{path}: every task must be an entry of --id {id_column!r}, such as {str(rows[0])!r}; "
            f"{str(tasks[place < 0].iloc[0])!r} is not. Check which column names the tasks."
        )
    reports = reports.assign(task=tasks.astype("category"), place=place)
    # Tasks such as 3 and 3.0 are now the same.
    reports = drop_duplicate_reports(reports, duplicates, columns=("task", "worker"), source=str(path))
    reports = reports.assign(task=reports["task"].astype(tasks.dtype))
    return reports.sort_values("place", kind="stable").drop(columns="place")


def _normalised(column: pd.Series) -> pd.Series:
    """Write integers without decimals, so that 1 and 1.0 match; other text, such as 01, is not changed."""
    text = column.astype(object)
    integer = text.str.fullmatch(INTEGER, na=False)
    return text.mask(integer.astype(bool), text.str.split(".", n=1).str[0])


def _row_numbers(tasks: pd.Series, n_rows: int, path: str | Path) -> pd.Series:
    """Convert tasks to row numbers, counted from 0."""
    names = _normalised(tasks)
    is_number = names.str.fullmatch("0|[1-9][0-9]*", na=False).astype(bool)
    numbers = pd.to_numeric(names.where(is_number), errors="coerce")
    wrong = ~(numbers < n_rows).to_numpy()
    if wrong.any():
        raise InvalidInputError(
            f"{path}: without --id, tasks must be row numbers, counted from 0: 0 to {n_rows - 1}; found "
            f"{str(tasks[wrong].iloc[0])!r}. If tasks are counted from 1, subtract 1. If they are names, "
            "pass the column of the data that holds them with --id."
        )
    return numbers.astype(np.int64)
