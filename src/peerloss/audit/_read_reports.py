"""Read reports of workers from a table file, long or wide, in little more memory than their codes take."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from peerloss.datasets import iter_table
from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

#: Names that the column of tasks may have.
TASK_NAMES = ("task", "item")


def read_reports(path: str | Path, *, wide: bool = False) -> pd.DataFrame:
    """Read a table of reports; tasks, workers and labels stay text as written, so that 007 is not 7.

    Parameters
    ----------
    path
        CSV, Parquet or ARFF, as for :func:`peerloss.datasets.read_table`.
    wide
        Whether the table has a column for each worker instead of the columns worker and label. A column
        called task or item names the tasks; without one, rows are numbered from 0.

    Returns
    -------
    A frame with categorical columns task, worker and label; NaN where a label is missing.

    Raises
    ------
    InvalidInputError
        If the file cannot be read, or lacks a column.
    """
    names = [str(name) for name in next(iter_table(path, chunk_rows=1))]
    task = next((name for name in TASK_NAMES if name in names), None)
    if wide:
        workers = [name for name in names if name != task]
        if len(workers) < 2:
            raise InvalidInputError(
                f"{path} must have a column for each of two workers or more; its columns are {names}. "
                "For a table with the columns task, worker and label leave out --wide."
            )
        return _collect(_melted(path, task, workers))
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
    return _collect(chunk[wanted].set_axis(["task", "worker", "label"], axis=1) for chunk in chunks)


def _melted(path: str | Path, task: str | None, workers: list[str]) -> Iterator[pd.DataFrame]:
    kinds = dict.fromkeys([*([task] if task else []), *workers], "text")
    rows = max(1, 1_000_000 // len(workers))
    for chunk in iter_table(path, chunk_rows=rows, kinds=kinds):  # type: ignore[arg-type]
        names = chunk[task] if task else pd.Series(chunk.index.astype(str), index=chunk.index)
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
        raise InvalidInputError(f"{path} must have one row a task; {twice.iloc[0]!r} has more.")


def _collect(chunks: Iterator[pd.DataFrame]) -> pd.DataFrame:
    """Join chunks of text as categories: a code of four bytes a value, and each text once."""
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
