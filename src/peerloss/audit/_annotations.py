"""Several labels per row, from people or rules: the majority label, and the evidence for each class."""

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
    """The aggregated reports of several annotators on the rows."""

    given: pd.Series
    """The majority label of each row, a Categorical over all labels."""
    likelihood: FloatArray
    """P(reports on the row | clean = k) up to a factor per row, by Dawid–Skene, (n, K)."""
    posterior: FloatArray
    """P(clean = k | reports on the row), without features, (n, K)."""


def read_annotations(
    labels: Any, X: Any = None, pred_proba: Any = None, *, duplicates: str = "error"
) -> Annotations:
    """Aggregate one column per annotator, or a long table with columns task (or item), worker and label.

    The rows of a wide table are those of ``X``, in the same order. The tasks of a long table are looked up by
    name: see :func:`_rows_of_tasks`.
    """
    table = labels if isinstance(labels, pd.DataFrame) else pd.DataFrame(np.asarray(labels))
    if {"worker", "label"} <= set(map(str, table.columns)):
        reports = Reports.from_table(table, duplicates=duplicates)
        rows, name = _rows_of_tasks(reports, X, pred_proba)
        return _aggregate(reports, _places(reports, rows, name), rows)
    rows = X.index if isinstance(X, pd.DataFrame | pd.Series) else table.index
    if len(rows) != len(table):
        raise InvalidInputError(
            f"`X` and `labels` must be equally long; got {len(rows)} and {len(table)} rows."
        )
    return _aggregate(_from_columns(table), np.arange(len(rows)), rows)


def _rows_of_tasks(reports: Reports, X: Any, pred_proba: Any) -> tuple[pd.Index, str]:
    """Return the names of the rows, among which tasks are looked up, and the argument they come from.

    The rows of an array are identified by position, so tasks must be integers 0..n-1. Without an index or an
    array, the tasks themselves are the rows.
    """
    tasks = pd.Index(reports.tasks)
    arguments = {"X": X, "pred_proba": pred_proba}
    for name, given in arguments.items():
        if isinstance(given, pd.DataFrame | pd.Series):
            return given.index, name
    array = next((name for name, given in arguments.items() if given is not None), None)
    if array is None:
        return tasks, "labels"
    tasks = tasks.infer_objects()
    if not pd.api.types.is_numeric_dtype(tasks) or pd.api.types.is_bool_dtype(tasks):
        raise InvalidInputError(
            f"`labels` names its tasks, such as {tasks.tolist()[0]!r}, but the rows of the array `{array}` "
            f"have no names. Pass `{array}` as a DataFrame whose index holds the tasks, or number the tasks "
            "by the position of their row, from 0."
        )
    return pd.RangeIndex(np.shape(arguments[array])[0]), array


def _places(reports: Reports, rows: pd.Index, name: str) -> IntArray:
    """Return the position of each row among the tasks."""
    if not rows.is_unique:
        raise InvalidInputError(
            f"the index of `{name}` must not repeat an entry, or tasks cannot be matched to rows; "
            f"{rows[rows.duplicated()].tolist()[0]!r} repeats. Give each row a unique name."
        )
    tasks = pd.Index(reports.tasks)
    unknown = tasks[rows.get_indexer(tasks) < 0]
    if len(unknown):
        advice = (
            f"Tasks must be positions of rows, 0 to {len(rows) - 1}; or pass `{name}` as a DataFrame whose "
            "index holds the tasks."
            if isinstance(rows, pd.RangeIndex)
            else f"Tasks must be entries of the index of `{name}`: use `{name}.set_index(...)`."
        )
        raise InvalidInputError(
            f"`labels` has labels for task {unknown.tolist()[0]!r}, which is not a row of `{name}`. {advice}"
        )
    place = np.asarray(tasks.get_indexer(rows), dtype=np.int64)
    answered: IntArray = np.asarray(reports.counts.sum(axis=1)).ravel()
    unanswered = np.flatnonzero((place < 0) | (answered[place] == 0))
    if unanswered.size:
        raise InvalidInputError(unlabelled(rows[unanswered]))
    return place


def _from_columns(table: pd.DataFrame) -> Reports:
    answered = table.notna().to_numpy()
    unanswered = np.flatnonzero(~answered.any(axis=1))
    if unanswered.size:
        raise InvalidInputError(unlabelled(table.index[unanswered]))
    row, column = np.nonzero(answered)  # row by row, so that tasks are in the order of the rows
    given = pd.Series(table.to_numpy(dtype=object)[row, column]).infer_objects()
    names = np.array([str(name) for name in table.columns], dtype=object)
    return Reports.from_table(pd.DataFrame({"task": row, "worker": names[column], "label": given}))


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
    """Return the message for rows without a label."""
    return (
        f"`labels` must hold a label for each row; {len(rows)} have none, the first is row "
        f"{rows.tolist()[0]!r}. Drop rows without a label: `X[labels.notna()]`, `labels.dropna()`."
    )
