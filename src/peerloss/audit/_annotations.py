"""Several labels per row, from people or rules: the given label, and the evidence for each class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from peerloss.crowd import dawid_skene
from peerloss.exceptions import InvalidInputError
from peerloss.peer_prediction import Reports

if TYPE_CHECKING:
    from peerloss._validation import FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class Annotations:
    """What several annotators said of the rows."""

    given: pd.Series
    """The majority's label of each row, a Categorical over all labels."""
    likelihood: FloatArray
    """P(what was said of the row | clean = k) up to a factor of the row, by Dawid–Skene, (n, K)."""
    posterior: FloatArray
    """P(clean = k | what was said), without features, (n, K)."""


def is_several(y: Any) -> bool:
    """Whether ``y`` holds one column per annotator, or is a long table of reports."""
    return isinstance(y, pd.DataFrame) or np.ndim(y) == 2


def read_annotations(
    y: Any, X: Any = None, pred_proba: Any = None, *, duplicates: str = "error"
) -> Annotations:
    """Aggregate one column per annotator, or a long table with columns task (or item), worker and label.

    Parameters
    ----------
    y
        The labels; missing where an annotator gave none. The rows of a wide table are those of ``X``, in
        their order. The tasks of a long table are looked up by name: see :func:`_rows_of_tasks`.
    X, pred_proba
        Features and probabilities of the rows that are audited, or ``None``.
    duplicates
        What to do where an annotator labelled a row more than once, ``"first"``, ``"last"`` or ``"error"``.
    """
    table = y if isinstance(y, pd.DataFrame) else pd.DataFrame(np.asarray(y))
    if {"worker", "label"} <= set(map(str, table.columns)):
        reports = Reports.from_table(table, duplicates=duplicates)
        rows, name = _rows_of_tasks(reports, X, pred_proba)
        return _aggregate(reports, _places(reports, rows, name), rows)
    rows = X.index if isinstance(X, pd.DataFrame | pd.Series) else table.index
    if len(rows) != len(table):
        raise InvalidInputError(f"`X` and `y` must be equally long; got {len(rows)} and {len(table)} rows.")
    return _aggregate(_from_columns(table), np.arange(len(rows)), rows)


def _rows_of_tasks(reports: Reports, X: Any, pred_proba: Any) -> tuple[pd.Index, str]:
    """Return the names of the rows, among which tasks are looked up, and of the argument they come from.

    They are the index of ``X``, or of ``pred_proba``, if it has one. The rows of an array are named by their
    positions, so tasks must be whole numbers 0..n-1. Without either, the tasks themselves are the rows.
    """
    for name, given in (("X", X), ("pred_proba", pred_proba)):
        if isinstance(given, pd.DataFrame | pd.Series):
            return given.index, name
    for name, given in (("X", X), ("pred_proba", pred_proba)):
        if given is not None:
            tasks = pd.Index(reports.tasks).infer_objects()
            if not pd.api.types.is_numeric_dtype(tasks) or pd.api.types.is_bool_dtype(tasks):
                raise InvalidInputError(
                    f"`y` names its tasks, such as {tasks.tolist()[0]!r}, but the rows of the array "
                    f"`{name}` have no names. Pass `{name}` as a DataFrame whose index holds the tasks, or "
                    "number the tasks by the position of their row, from 0."
                )
            return pd.RangeIndex(np.shape(given)[0]), name
    return pd.Index(reports.tasks), "y"


def _places(reports: Reports, rows: pd.Index, name: str) -> IntArray:
    """Return where each row is among the tasks."""
    if not rows.is_unique:
        raise InvalidInputError(
            f"the index of `{name}` must have no entry twice, or tasks cannot be matched to rows; "
            f"{rows[rows.duplicated()].tolist()[0]!r} repeats. Give each row a name of its own."
        )
    tasks = pd.Index(reports.tasks)
    unknown = tasks[rows.get_indexer(tasks) < 0]
    if len(unknown):
        what = (
            f"Tasks must be positions of rows, 0 to {len(rows) - 1}; or pass `{name}` as a DataFrame whose "
            "index holds the tasks."
            if isinstance(rows, pd.RangeIndex)
            else f"Tasks must be entries of the index of `{name}`: use `{name}.set_index(...)`."
        )
        raise InvalidInputError(
            f"`y` has labels for task {unknown.tolist()[0]!r}, which is not a row of `{name}`. {what}"
        )
    place = np.asarray(tasks.get_indexer(rows), dtype=np.int64)
    answered: IntArray = np.asarray(reports.counts.sum(axis=1)).ravel()
    silent = np.flatnonzero((place < 0) | (answered[place] == 0))
    if silent.size:
        raise InvalidInputError(unlabelled(rows[silent]))
    return place


def _from_columns(table: pd.DataFrame) -> Reports:
    answered = table.notna().to_numpy()
    silent = np.flatnonzero(~answered.any(axis=1))
    if silent.size:
        raise InvalidInputError(unlabelled(table.index[silent]))
    row, column = np.nonzero(answered)  # row by row, so that tasks come in the order of the rows
    said = pd.Series(table.to_numpy(dtype=object)[row, column]).infer_objects()
    names = np.array([str(name) for name in table.columns], dtype=object)
    return Reports.from_table(pd.DataFrame({"task": row, "worker": names[column], "label": said}))


def _aggregate(reports: Reports, place: IntArray, rows: pd.Index) -> Annotations:
    model = dawid_skene(reports)
    votes = np.asarray(reports.counts.argmax(axis=1)).ravel()[place]
    posterior = model.probabilities[place]
    likelihood = posterior / np.maximum(model.class_prior, 1e-12)
    given = pd.Series(
        pd.Categorical.from_codes(votes, categories=pd.Index(reports.labels)), index=rows, name="label"
    )
    return Annotations(given, likelihood / likelihood.max(axis=1, keepdims=True), posterior)


def unlabelled(rows: pd.Index) -> str:
    """Say that rows have no label."""
    return (
        f"`y` must hold a label for each row; {len(rows)} have none, the first is row {rows.tolist()[0]!r}. "
        "Leave rows without a label out: `X[y.notna()]`, `y.dropna()`."
    )
