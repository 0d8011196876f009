"""Read reports of workers from a table file, long or wide, in little more memory than their codes take."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from peerloss._validation import check_choice
from peerloss.datasets import iter_table
from peerloss.exceptions import InvalidInputError
from peerloss.peer_prediction._reports import DUPLICATES, ReportPairs

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

#: Names that the column of tasks may have.
TASK_NAMES = ("task", "item")

#: Whole numbers that are written in one way only, but for zeros after the point.
WHOLE_NUMBER = r"(?:0|-?[1-9][0-9]*)(?:\.0+)?"


def read_reports(
    path: str | Path, *, wide: bool = False, duplicates: str = "error", abstain: str | None = None
) -> pd.DataFrame:
    """Read a table of reports; tasks, workers and labels stay text as written, so that 007 is not 7.

    Parameters
    ----------
    path
        CSV, Parquet or ARFF, as for :func:`peerloss.datasets.read_table`.
    wide
        Whether the table has a column for each worker instead of the columns worker and label. A column
        called task or item names the tasks; without one, rows are numbered from 0.
    duplicates
        What to do where a worker labelled a task more than once: ``"error"``, or keep the ``"first"`` or the
        ``"last"`` of its labels in the order of the file.
    abstain
        A label that means that the worker gave none, such as ``"-1"``.

    Returns
    -------
    A frame with categorical columns task, worker and label; NaN where a label is missing.

    Raises
    ------
    InvalidInputError
        If the file cannot be read or lacks a column, or, with ``duplicates="error"``, if a worker labelled a
        task more than once.
    """
    check_choice(duplicates, "duplicates", DUPLICATES)
    names = [str(name) for name in next(iter_table(path, chunk_rows=1))]
    task = next((name for name in TASK_NAMES if name in names), None)
    if wide:
        workers = [name for name in names if name != task]
        if len(workers) < 2:
            raise InvalidInputError(
                f"{path} must have a column for each of two workers or more; its columns are {names}. "
                "For a table with the columns task, worker and label leave out --wide."
            )
        table = _collect(_melted(path, task, workers, repeats=duplicates != "error"))
        return keep_one(_without(table, abstain), duplicates, (task or "row", "worker"), path)
    missing = [name for name in ("worker", "label") if name not in names]
    if task is None or missing:
        lacking = ", ".join((["task (or item)"] if task is None else []) + missing)
        raise InvalidInputError(
            f"{path} must have the columns task (or item), worker and label; {lacking} missing, its columns "
            f"are {names}. Rename them in the header line, or pass --wide for a table with a column for each "
            "worker."
        )
    wanted = [task, "worker", "label"]
    kinds = dict.fromkeys(wanted, "text")
    chunks = iter_table(path, chunk_rows=200_000, kinds=kinds)  # type: ignore[arg-type]
    table = _collect(chunk[wanted].set_axis(["task", "worker", "label"], axis=1) for chunk in chunks)
    return keep_one(_without(table, abstain), duplicates, (task, "worker"), path)


def _without(table: pd.DataFrame, label: str | None) -> pd.DataFrame:
    """Make a label missing."""
    if label not in table["label"].cat.categories:
        return table
    return table.assign(label=table["label"].cat.remove_categories([label]))


def read_names(path: str | Path, column: str) -> pd.Series:
    """Read the column of a table that names its rows, as text that :func:`task_names` can match."""
    chunks = iter_table(path, kinds={column: "text"})
    return task_names(pd.concat([chunk[column] for chunk in chunks]))


def task_names(column: pd.Series) -> pd.Series:
    """Write whole numbers alike, so that 1 and 1.0 of two files match; other text, such as 01, stays."""
    text = column.astype(object)
    whole = text.str.fullmatch(WHOLE_NUMBER, na=False)
    return text.mask(whole.astype(bool), text.str.split(".", n=1).str[0])


def row_numbers(tasks: pd.Series, n_rows: int, path: str | Path) -> pd.Series:
    """Read tasks as numbers of rows, counted from 0."""
    names = task_names(tasks)
    whole = names.str.fullmatch("0|[1-9][0-9]*", na=False).astype(bool)
    numbers = pd.to_numeric(names.where(whole), errors="coerce")
    wrong = ~(numbers < n_rows).to_numpy()
    if wrong.any():
        raise InvalidInputError(
            f"{path}: without --id, tasks must be numbers of rows, counted from 0: 0 to {n_rows - 1}; found "
            f"{str(tasks[wrong].iloc[0])!r}. If tasks are counted from 1, subtract 1; if they are names, "
            "tell which column of the data holds them with --id."
        )
    return numbers.astype(np.int64)


def keep_one(table: pd.DataFrame, duplicates: str, columns: Sequence[str], path: str | Path) -> pd.DataFrame:
    """Keep one label for each task and worker; rows with a gap stay as they are."""
    whole = table.notna().all(axis=1).to_numpy()
    task, worker = table["task"].cat, table["worker"].cat
    pairs = ReportPairs(
        np.asarray(task.codes, dtype=np.int64)[whole],
        np.asarray(worker.codes, dtype=np.int64)[whole],
        task.categories.to_numpy(),
        worker.categories.to_numpy(),
        columns,
    )
    kept = np.ones(len(table), dtype=bool)
    kept[whole] = pairs.keep_one(duplicates, where=str(path))
    return table if kept.all() else table[kept].reset_index(drop=True)


def _melted(
    path: str | Path, task: str | None, workers: list[str], *, repeats: bool
) -> Iterator[pd.DataFrame]:
    kinds = dict.fromkeys([*([task] if task else []), *workers], "text")
    rows = max(1, 1_000_000 // len(workers))
    for chunk in iter_table(path, chunk_rows=rows, kinds=kinds):  # type: ignore[arg-type]
        names = chunk[task] if task else pd.Series(chunk.index.astype(str), index=chunk.index)
        if not repeats:
            _refuse_repeats(names, path)
        yield pd.DataFrame(
            {
                "task": np.repeat(names.to_numpy(dtype=object), len(workers)),
                "worker": np.tile(np.array(workers, dtype=object), len(chunk)),
                "label": chunk[workers].to_numpy(dtype=object).ravel(),
            }
        )


def _refuse_repeats(names: pd.Series, path: str | Path) -> None:
    """Refuse two rows of one task; those in different chunks are found as double reports."""
    twice = names[names.duplicated() & names.notna()]
    if len(twice):
        raise InvalidInputError(
            f"{path} must have one row per task; {twice.iloc[0]!r} has more. Keep one label of each worker "
            "with duplicates='first' or duplicates='last' (on the command line --duplicates first)."
        )


def _collect(chunks: Iterator[pd.DataFrame]) -> pd.DataFrame:
    """Join chunks of text as categories: a code of four bytes per value, and each text once."""
    columns = {name: _Codes() for name in ("task", "worker", "label")}
    for chunk in chunks:
        for name, codes in columns.items():
            codes.add(chunk[name])
    return pd.DataFrame({name: codes.join() for name, codes in columns.items()})


class _Codes:
    """The values of one column, chunk by chunk."""

    def __init__(self) -> None:
        self.known: dict[str, int] = {}
        self.parts: list[NDArray[np.int32]] = []

    def add(self, column: pd.Series) -> None:
        codes, names = pd.factorize(column)
        place = np.array(
            [self.known.setdefault(str(name), len(self.known)) for name in names], dtype=np.int32
        )
        filled = np.full(len(codes), -1, dtype=np.int32)
        filled[codes >= 0] = place[codes[codes >= 0]]
        self.parts.append(filled)

    def join(self) -> pd.Categorical:
        return pd.Categorical.from_codes(np.concatenate(self.parts), pd.Index(list(self.known), dtype=object))
