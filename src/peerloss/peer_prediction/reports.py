"""Reports of several workers on the same tasks, as integer codes that every mechanism uses."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd

from peerloss._validation import check_choice
from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from scipy import sparse

    from peerloss._validation import BoolArray, IntArray

COLUMNS = ("task", "worker", "label")
#: Which label to keep if a worker labelled a task more than once.
DUPLICATES = ("first", "last", "error")
#: What :meth:`Reports.from_table` accepts.
ReportsLike = pd.DataFrame | Iterable[Sequence[Any]]


@dataclass(frozen=True, eq=False, repr=False)
class Reports:
    """A table of reports as integer codes, made by :meth:`from_table`.

    Memory is linear in the number of reports.

    Attributes
    ----------
    tasks, workers
        Names in order of first appearance.
    labels
        The K labels, sorted: the order of rows and columns in every K×K matrix that a mechanism takes.
    task_codes, worker_codes, label_codes
        Positions in ``tasks``, ``workers`` and ``labels``, one entry per report.
    counts
        The number of workers who gave each label to each task, CSR, shape (tasks, K).
    """

    tasks: NDArray[Any]
    workers: NDArray[Any]
    labels: NDArray[Any]
    task_codes: IntArray
    worker_codes: IntArray
    label_codes: IntArray
    counts: sparse.csr_array[Any, tuple[int, int]]

    @classmethod
    def from_table(
        cls, table: ReportsLike, *, labels: Sequence[Any] | None = None, duplicates: str = "error"
    ) -> Self:
        """Code a long table of reports.

        Parameters
        ----------
        table
            A frame with columns ``task`` (or ``item``), ``worker`` and ``label``, or (task, worker, label)
            triples. A missing label means that the worker did not answer: the row is dropped, but the worker
            is kept.
        labels
            All labels that a worker could have given; by default those that occur.
        duplicates
            If a worker labelled a task more than once, raise an ``"error"``, or keep the ``"first"`` or the
            ``"last"`` of its labels in the order of the table.

        Returns
        -------
        The coded reports.

        Raises
        ------
        InvalidInputError
            If a column or all labels are missing, if all labels are the same, if a task or worker has no
            name, or, with ``duplicates="error"``, if a worker labelled a task twice.

        Examples
        --------
        >>> reports = Reports.from_table([("a", "ann", "cat"), ("a", "bob", "dog"), ("b", "ann", "cat")])
        >>> reports
        Reports(3 reports, 2 tasks, 2 workers, 2 labels)
        >>> reports.counts.toarray().tolist()
        [[1, 1], [1, 0]]
        """
        names, (task_column, worker_column, label_column) = _columns(table)
        worker_codes, workers = _code(worker_column, "worker")
        task_codes, tasks = _code(task_column, "task")
        used = ~pd.isna(label_column)
        if not used.any():
            raise InvalidInputError("`table` must hold at least one report with a label; got none.")
        used[used] = one_per_task_and_worker(
            duplicates,
            task_codes=task_codes[used],
            worker_codes=worker_codes[used],
            tasks=tasks,
            workers=workers,
            columns=names[:2],
            source="`table`",
        )
        label_codes, known = _code_labels(label_column[used], labels)
        task_codes, worker_codes = task_codes[used], worker_codes[used]
        from scipy import sparse  # noqa: PLC0415 - reading and checking a table does not need it

        ones = np.ones(len(label_codes), dtype=np.int64)
        counts = sparse.csr_array((ones, (task_codes, label_codes)), shape=(len(tasks), len(known)))
        counts.sum_duplicates()
        return cls(tasks, workers, known, task_codes, worker_codes, label_codes, counts)

    def __len__(self) -> int:
        return len(self.label_codes)

    def __repr__(self) -> str:
        sizes = f"{len(self.tasks)} tasks, {len(self.workers)} workers, {len(self.labels)} labels"
        return f"Reports({len(self)} reports, {sizes})"


def as_reports(reports: Reports | ReportsLike, *, duplicates: str = "error") -> Reports:
    """Return :class:`Reports` for what a caller passed: :class:`Reports`, a frame or triples."""
    check_choice(duplicates, "duplicates", DUPLICATES)
    return reports if isinstance(reports, Reports) else Reports.from_table(reports, duplicates=duplicates)


def one_per_task_and_worker(
    duplicates: str,
    *,
    task_codes: IntArray,
    worker_codes: IntArray,
    tasks: NDArray[Any],
    workers: NDArray[Any],
    columns: Sequence[str],
    source: str,
) -> BoolArray:
    """Select one report per task and worker, or refuse duplicates with ``duplicates="error"``.

    ``tasks`` and ``workers`` are the names behind the codes; ``columns`` (the names of the two columns) and
    ``source`` appear in the message.
    """
    check_choice(duplicates, "duplicates", DUPLICATES)
    pair = pd.Series(task_codes.astype(np.int64) * len(workers) + worker_codes)
    extra = pair.duplicated(keep="last" if duplicates == "last" else "first").to_numpy()
    if duplicates == "error" and extra.any():
        row = int(np.argmax(extra))
        task, worker = columns
        raise InvalidInputError(
            f"{source} must hold one label per task and worker (columns {task!r} and {worker!r}); "
            f"{task} {tasks[task_codes[row]]}, {worker} {workers[worker_codes[row]]} has more. Rows with a "
            f"repeated report: {int(extra.sum())}. Keep one label of each with duplicates='first' or "
            "duplicates='last' (on the command line --duplicates first)."
        )
    return ~extra


def _columns(table: ReportsLike) -> tuple[tuple[str, str, str], list[NDArray[Any]]]:
    frame = table if isinstance(table, pd.DataFrame) else _frame_of_triples(table)
    first = "item" if "task" not in frame.columns and "item" in frame.columns else "task"
    wanted = (first, "worker", "label")
    missing = [name for name in wanted if name not in frame.columns]
    if missing:
        raise InvalidInputError(
            f"`table` must have the columns task (or item), worker and label; {', '.join(missing)} missing "
            f"among {[str(name) for name in frame.columns]}. Rename with `table.rename(columns=...)`, or "
            "melt a wide table with `table.melt(...)`."
        )
    if frame.empty:
        raise InvalidInputError("`table` must hold at least one report; it is empty.")
    return wanted, [np.asarray(frame[name]) for name in wanted]


def _frame_of_triples(triples: Iterable[Sequence[Any]]) -> pd.DataFrame:
    rows = list(triples) if isinstance(triples, Iterable) else [triples]
    sizes = {
        len(row) if isinstance(row, Sequence | np.ndarray) and not isinstance(row, str) else 1 for row in rows
    }
    if sizes - {3}:
        raise InvalidInputError(
            "`table` must be a DataFrame or (task, worker, label) triples; found a row that is not a triple. "
            "Pass a frame with the columns task, worker, label."
        )
    by_column = zip(*rows, strict=True) if rows else ((), (), ())
    return pd.DataFrame(
        {name: pd.Series(list(values)) for name, values in zip(COLUMNS, by_column, strict=True)}
    )


def _code(values: NDArray[Any], name: str) -> tuple[IntArray, NDArray[Any]]:
    codes, names = pd.factorize(values)
    if (codes < 0).any():
        row = int(np.argmin(codes))
        raise InvalidInputError(
            f"`table` must name the {name} of every report; row {row} has none. Drop or fill these rows."
        )
    return codes.astype(np.int64, copy=False), np.asarray(names)


def _code_labels(values: NDArray[Any], labels: Sequence[Any] | None) -> tuple[IntArray, NDArray[Any]]:
    try:
        codes, found = pd.factorize(values, sort=True)
        names = np.asarray(found) if labels is None else np.asarray(pd.Series(labels).sort_values())
    except TypeError as error:
        raise InvalidInputError(
            f"`table` must have labels that can be sorted: {error}. Use `table['label'].astype(str)`."
        ) from error
    if len(found) < 2:
        raise InvalidInputError(
            f"`table` must hold at least two different labels; every label is {values[0]}. "
            "If all reports agree, there is nothing to score."
        )
    if labels is None:
        return codes.astype(np.int64, copy=False), names
    place = pd.Index(names).get_indexer(pd.Index(found)) if pd.Index(names).is_unique else None
    if place is None or (place < 0).any():
        fault = (
            "a label is listed twice" if place is None else f"{found[int(np.argmin(place))]} is not listed"
        )
        raise InvalidInputError(
            f"`labels` must list each label that occurs exactly once; {fault}: got {list(labels)!r}."
        )
    return np.asarray(place, dtype=np.int64)[codes], names
