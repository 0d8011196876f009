"""Several labels a row, from people or rules: the given label, and what was said as evidence of a class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from peerloss.audit._dawid_skene import dawid_skene
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
    """Whether ``y`` holds a column an annotator, or is a long table of reports."""
    return isinstance(y, pd.DataFrame) or np.ndim(y) == 2


def read_annotations(y: Any, index: pd.Index | None) -> Annotations:
    """Aggregate a column an annotator, or a long table with columns task (or item), worker and label.

    Parameters
    ----------
    y
        The labels; missing where an annotator said nothing. The tasks of a long table are the entries of
        ``index``.
    index
        Of the rows that are audited; ``None`` takes that of a wide table, or the tasks of a long one.
    """
    table = y if isinstance(y, pd.DataFrame) else pd.DataFrame(np.asarray(y))
    if {"worker", "label"} <= set(map(str, table.columns)):
        reports = Reports.from_table(table)
        rows = pd.Index(reports.tasks) if index is None else index
        return _aggregate(reports, _places(reports, rows), rows)
    rows = table.index if index is None else index
    if len(rows) != len(table):
        raise InvalidInputError(f"`X` and `y` must be equally long; got {len(rows)} and {len(table)} rows.")
    return _aggregate(_from_columns(table), np.arange(len(rows)), rows)


def _places(reports: Reports, rows: pd.Index) -> IntArray:
    """Return where each row is among the tasks."""
    if not rows.is_unique:
        raise InvalidInputError(
            "the index of `X` must have no entry twice, or labels cannot be told apart; "
            f"{rows[rows.duplicated()][0]!r} repeats. Give each row a name of its own."
        )
    tasks = pd.Index(reports.tasks)
    unknown = tasks.difference(rows)
    if len(unknown):
        raise InvalidInputError(
            f"`y` has labels for task {unknown[0]!r}, which is no row of `X`. Tasks must be entries of the "
            "index of `X`: use `X.set_index(...)`."
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
        f"`y` must hold a label for each row; {len(rows)} have none, the first is row {rows[0]!r}. "
        "Leave rows without a label out: `X[y.notna()]`, `y.dropna()`."
    )
