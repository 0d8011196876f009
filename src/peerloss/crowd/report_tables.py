"""Read the reports of workers from a table file, and match their tasks with the rows of a data table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from peerloss._validation import check_choice
from peerloss.datasets import iter_table, require_columns
from peerloss.datasets.label_spelling import WORDS
from peerloss.datasets.tables import read_with_notes
from peerloss.exceptions import InvalidInputError
from peerloss.peer_prediction.reports import DUPLICATES, one_per_task_and_worker

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from peerloss.datasets import ReadOptions

#: Names that the column of tasks may have.
TASK_NAMES = ("task", "item")
#: Integers in their only spelling, except for zeros after the decimal point.
INTEGER = r"(?:0|-?[1-9][0-9]*)(?:\.0+)?"


def read_reports(
    path: str | Path,
    *,
    columns: Mapping[str, str] | None = None,
    wide: bool = False,
    duplicates: str = "error",
    abstain: str | None = None,
    options: ReadOptions | None = None,
) -> pd.DataFrame:
    """Read a table of reports; tasks, workers and labels stay text as written, so that 007 is not 7.

    Parameters
    ----------
    path
        CSV, Excel, JSON lines, Parquet or ARFF, as for :func:`peerloss.datasets.read_table`.
    columns
        The columns of the file that hold the ``"task"``, ``"worker"`` and ``"label"``, if they have other
        names, such as ``{"task": "image", "worker": "rater", "label": "answer"}``.
    wide
        Whether the table has one column per worker instead of the columns worker and label. A column called
        task or item (or ``columns["task"]``) names the tasks; without one, rows are numbered from 0.
    duplicates
        If a worker labelled a task more than once, raise an ``"error"``, or keep the ``"first"`` or the
        ``"last"`` of its labels in the order of the file.
    abstain
        A label that means that the worker gave none, such as ``"-1"``.
    options
        What the file itself does not say, as for :func:`peerloss.datasets.read_table`.

    Returns
    -------
    A frame with categorical columns task, worker and label; missing labels are NaN. Words such as ``NA`` and
    ``None`` in a column of text are labels if at least 5 % of the rows and at least 10 rows have them (not if
    ``wide``).

    Raises
    ------
    InvalidInputError
        If the file cannot be read or lacks a column, or, with ``duplicates="error"``, if a worker labelled a
        task more than once.
    """
    check_choice(duplicates, "duplicates", DUPLICATES)
    names = [str(name) for name in next(iter_table(path, chunk_rows=1, options=options))]
    given = _check_roles(columns, ("task",) if wide else ("task", "worker", "label"))
    require_columns(names, given.values(), where=str(path))
    task = given.get("task") or next((name for name in TASK_NAMES if name in names), None)
    if wide:
        workers = [name for name in names if name != task]
        if len(workers) < 2:
            raise InvalidInputError(
                f"{path} must have one column per worker, at least two; its columns are {names}. "
                "For a table with the columns task, worker and label omit --wide."
            )
        table = _collect(_melted(path, task, workers, repeats=duplicates != "error", options=options))
    else:
        worker, label = (given.get(name, name) for name in ("worker", "label"))
        missing = [name for name in (worker, label) if name not in names]
        if task is None or missing:
            lacking = ", ".join((["task (or item)"] if task is None else []) + missing)
            raise InvalidInputError(
                f"{path} must have the columns task (or item), worker and label; {lacking} missing among "
                f"{names}. If they have other names, pass them as `columns` (--task-column, --worker-column, "
                "--label-column); pass --wide for a table with one column per worker."
            )
        wanted = [task, worker, label]
        if len(set(wanted)) < 3:
            raise InvalidInputError(
                f"{path}: tasks, workers and labels must be three different columns; got {wanted}."
            )
        kinds = dict.fromkeys(wanted, "text")
        chunks = iter_table(path, chunk_rows=200_000, kinds=kinds, options=options)  # type: ignore[arg-type]
        table = _collect(chunk[wanted].set_axis(["task", "worker", "label"], axis=1) for chunk in chunks)
        if table["label"].isna().any():
            table["label"] = _with_words(table["label"], path, label, options)
    if abstain in table["label"].cat.categories:
        table["label"] = table["label"].cat.remove_categories([abstain])
    return _drop_duplicates(
        table, duplicates, columns=(task or "row", given.get("worker", "worker")), source=str(path)
    )


def _with_words(labels: pd.Series, path: str | Path, column: str, options: ReadOptions | None) -> pd.Series:
    """Fill in words such as None that are labels because many rows have them."""
    found = read_with_notes(path, labels=[column], options=options).table[column]
    filled = labels.isna() & found.isin(WORDS).to_numpy()
    words = [word for word in found[filled.to_numpy()].unique() if word not in labels.cat.categories]
    return labels.cat.add_categories(words).where(~filled, found.to_numpy(dtype=object))


def _check_roles(columns: Mapping[str, str] | None, roles: tuple[str, ...]) -> dict[str, str]:
    given = dict(columns or {})
    unknown = [role for role in given if role not in roles]
    if unknown:
        listed = ", ".join(map(repr, roles))
        raise InvalidInputError(f"`columns` must name the columns of {listed} only; got {unknown[0]!r}.")
    return given


def read_gold(
    path: str | Path, *, columns: Mapping[str, str] | None = None, options: ReadOptions | None = None
) -> pd.Series:
    """Read the known labels of some tasks from the columns task (or item) and label; both stay text.

    Parameters
    ----------
    path
        CSV, Parquet or ARFF, as for :func:`peerloss.datasets.read_table`.
    columns
        The columns that hold the ``"task"`` and the ``"label"``. A name that the file does not have is
        ignored, so that the names of the reports can be passed.
    options
        As for :func:`~peerloss.crowd.read_reports`.

    Returns
    -------
    The labels, indexed by task. Rows without a label are excluded.

    Raises
    ------
    InvalidInputError
        If the file cannot be read, lacks a column, or holds a row without a task or a second label of a task.
    """
    names = [str(name) for name in next(iter_table(path, chunk_rows=1, options=options))]
    given = {role: name for role, name in (columns or {}).items() if name in names}
    task = given.get("task") or next((name for name in TASK_NAMES if name in names), None)
    label = given.get("label", "label")
    if task is None or label not in names:
        raise InvalidInputError(
            f"{path} must have the columns task (or item) and label; its columns are {names}. Rename them in "
            "the header line, or give them the names of the columns of the reports."
        )
    kinds = {task: "text", label: "text"}
    chunks = iter_table(path, kinds=kinds, options=options)  # type: ignore[arg-type]
    table = pd.concat([chunk[[task, label]] for chunk in chunks]).dropna(subset=label)
    if table[task].isna().any():
        raise InvalidInputError(f"{path} must name the {task} of every label. Drop or fill these rows.")
    twice = table.loc[table[task].duplicated(), task]
    if len(twice):
        raise InvalidInputError(f"{path} must have one label per {task}; {str(twice.iloc[0])!r} has more.")
    return pd.Series(table[label].to_numpy(dtype=object), index=pd.Index(table[task], dtype=object))


def read_row_names(path: str | Path, column: str, *, options: ReadOptions | None = None) -> pd.Series:
    """Read the column that names the rows of a table, spelled as :func:`read_matched_reports` expects it.

    Parameters
    ----------
    path, options
        As for :func:`peerloss.datasets.read_table`.
    column
        The name of the column.
    """
    chunks = iter_table(path, kinds={column: "text"}, options=options)
    return _normalised(pd.concat([chunk[column] for chunk in chunks]))


def read_matched_reports(
    path: str | Path,
    rows: pd.Index,
    *,
    id_column: str | None,
    duplicates: str = "error",
    abstain: str | None = None,
    options: ReadOptions | None = None,
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
    duplicates, abstain, options
        As for :func:`~peerloss.crowd.read_reports`.

    Raises
    ------
    InvalidInputError
        If a task is not a row of the data, or a worker labelled a task more than once.
    """
    reports = read_reports(path, duplicates=duplicates, abstain=abstain, options=options)
    reports = reports.dropna(subset="label")
    given = reports["task"]
    tasks = _row_numbers(given, len(rows), path) if id_column is None else _normalised(given)
    place = rows.get_indexer(pd.Index(tasks))
    if (place < 0).any():
        raise InvalidInputError(
            f"{path}: every task must be an entry of --id {id_column!r}, such as {str(rows[0])!r}; "
            f"{str(tasks[place < 0].iloc[0])!r} is not. Check which column names the tasks."
        )
    reports = reports.assign(task=tasks.astype("category"), place=place)
    # Tasks such as 3 and 3.0 are now the same.
    reports = _drop_duplicates(reports, duplicates, columns=("task", "worker"), source=str(path))
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


def _drop_duplicates(
    table: pd.DataFrame, duplicates: str, *, columns: Sequence[str], source: str
) -> pd.DataFrame:
    """Keep one label per task and worker; rows with a missing value are not changed."""
    complete = table.notna().all(axis=1).to_numpy()
    task, worker = table["task"].cat, table["worker"].cat
    kept = np.ones(len(table), dtype=bool)
    kept[complete] = one_per_task_and_worker(
        duplicates,
        task_codes=np.asarray(task.codes, dtype=np.int64)[complete],
        worker_codes=np.asarray(worker.codes, dtype=np.int64)[complete],
        tasks=task.categories.to_numpy(),
        workers=worker.categories.to_numpy(),
        columns=columns,
        source=source,
    )
    return table if kept.all() else table[kept].reset_index(drop=True)


def _melted(
    path: str | Path, task: str | None, workers: list[str], *, repeats: bool, options: ReadOptions | None
) -> Iterator[pd.DataFrame]:
    """Turn a wide table into rows of task, worker and label, chunk by chunk."""
    kinds = dict.fromkeys([*([task] if task else []), *workers], "text")
    rows = max(1, 1_000_000 // len(workers))
    for chunk in iter_table(path, chunk_rows=rows, kinds=kinds, options=options):  # type: ignore[arg-type]
        names = chunk[task] if task else pd.Series(chunk.index.astype(str), index=chunk.index)
        twice = names[names.duplicated() & names.notna()]  # those in different chunks are found later
        if len(twice) and not repeats:
            raise InvalidInputError(
                f"{path} must have one row per task; {twice.iloc[0]!r} has more. Keep one label of each "
                "worker with duplicates='first' or duplicates='last' (on the command line --duplicates "
                "first)."
            )
        yield pd.DataFrame(
            {
                "task": np.repeat(names.to_numpy(dtype=object), len(workers)),
                "worker": np.tile(np.array(workers, dtype=object), len(chunk)),
                "label": chunk[workers].to_numpy(dtype=object).ravel(),
            }
        )


def _collect(chunks: Iterator[pd.DataFrame]) -> pd.DataFrame:
    """Concatenate chunks of text as categories: four bytes per value, and each text once."""
    columns = {name: _Codes() for name in ("task", "worker", "label")}
    for chunk in chunks:
        for name, codes in columns.items():
            codes.add(chunk[name])
    return pd.DataFrame({name: codes.join() for name, codes in columns.items()})


class _Codes:
    """The values of one column as integer codes, collected chunk by chunk."""

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
