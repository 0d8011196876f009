"""One label per task from the labels of several workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from peerloss.crowd._dawid_skene import DawidSkene, dawid_skene

if TYPE_CHECKING:
    from peerloss._validation import FloatArray, IntArray
    from peerloss.peer_prediction import Reports
    from peerloss.peer_prediction.reports import ReportsLike
    from peerloss.peer_prediction.shared_reports import SharedReports


def aggregate_labels(
    reports: Reports | ReportsLike | DawidSkene, *, duplicates: str = "error"
) -> pd.DataFrame:
    """Give every task two labels: that of Dawid and Skene's model and that of the majority.

    Parameters
    ----------
    reports
        :class:`~peerloss.peer_prediction.Reports`, what ``Reports.from_table`` takes, or the result of
        :func:`dawid_skene` if it has been computed (its ``probabilities`` are those of all labels).
    duplicates
        If a worker labelled a task more than once, raise an ``"error"``, or keep the ``"first"`` or the
        ``"last"`` of its labels in the order of the table.

    Returns
    -------
    A frame with one row per task in order of first appearance: ``label`` and its ``probability`` by
    Dawid–Skene, ``majority`` and its ``share`` of the votes (of tied labels the first in sorted order), and
    ``n_workers``. Tasks without an answer are excluded.

    Examples
    --------
    >>> answers = {"ann": "aabbab", "bob": "aabbab", "cy": "babaab"}
    >>> table = [(task, name, label) for name, labels in answers.items() for task, label in enumerate(labels)]
    >>> labels = aggregate_labels(table)
    >>> labels["label"].tolist(), labels["share"].round(2).tolist()
    (['a', 'a', 'b', 'b', 'a', 'b'], [0.67, 1.0, 1.0, 0.67, 1.0, 1.0])
    """
    model = reports if isinstance(reports, DawidSkene) else dawid_skene(reports, duplicates=duplicates)
    coded = model.reports
    votes = coded.counts
    n_workers: IntArray = np.asarray(votes.sum(axis=1))
    majority: IntArray = np.asarray(votes.argmax(axis=1)).ravel()
    most_probable = model.probabilities.argmax(axis=1)
    rows = np.arange(len(coded.tasks))
    top: IntArray = votes.max(axis=1).toarray().ravel()
    table = pd.DataFrame(
        {
            "label": coded.labels[most_probable],
            "probability": model.probabilities[rows, most_probable],
            "majority": coded.labels[majority],
            "share": top / np.maximum(n_workers, 1),
            "n_workers": n_workers,
        },
        index=pd.Index(coded.tasks, name="task"),
    )
    return table[n_workers > 0]


def majority_agreement(shared: SharedReports) -> FloatArray:
    """Return, for each shared report, whether the majority of the *others* on its task gave the same label.

    If labels are tied, this is the probability of drawing the report's label from them.
    """
    own, rival, n_rivals = rival_votes(shared)
    others = own - 1
    result: FloatArray = np.where(others == rival, 1.0 / (1 + n_rivals), (others > rival).astype(np.float64))
    return result


def rival_votes(shared: SharedReports) -> tuple[IntArray, IntArray, IntArray]:
    """Count, for each shared report, the votes for its label and for the best other label.

    The votes for its label include the report itself. The third array counts the labels that are tied for
    the best other label.
    """
    counts = shared.counts
    rows = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
    top, n_top = _best(rows, counts.data, counts.shape[0])
    lower = counts.data < top[rows]
    second, n_second = _best(rows[lower], counts.data[lower], counts.shape[0])
    own = shared.votes()
    leads = (own == top[shared.task]).astype(np.int64)
    alone = (leads == 1) & (n_top[shared.task] == 1)
    rival = np.where(alone, second[shared.task], top[shared.task])
    return own, rival, np.where(alone, n_second[shared.task], n_top[shared.task] - leads)


def _best(rows: IntArray, votes: IntArray, n_rows: int) -> tuple[IntArray, IntArray]:
    """Return the largest number of votes in each row, and how many labels have it."""
    best = np.zeros(n_rows, dtype=np.int64)
    np.maximum.at(best, rows, votes)
    return best, np.bincount(rows[votes == best[rows]], minlength=n_rows)
