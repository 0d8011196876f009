"""One label per task: the majority, or Dawid and Skene's model with one confusion matrix per worker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy import sparse

from peerloss._validation import FloatArray, IntArray, check_count
from peerloss.exceptions import InvalidInputError
from peerloss.peer_prediction.reports import as_reports

if TYPE_CHECKING:
    from peerloss.peer_prediction import Reports
    from peerloss.peer_prediction.reports import ReportsLike

#: Number of reports of the crowd's average worker that are added to each worker's, per true label.
PRIOR_REPORTS = 1.0
#: EM has converged when the probabilities of a task change by less than this on average.
TOLERANCE = 1e-4
#: Largest number of entries in the tables tasks × labels and (worker, label) × labels together (4 GB).
MAX_CELLS = 1 << 29
#: Largest number of entries in the arrays of one block of tasks.
BLOCK = 1 << 20


@dataclass(frozen=True, eq=False, repr=False)
class DawidSkene:
    """The result of :func:`dawid_skene`.

    Attributes
    ----------
    reports
        The reports, which give the order of tasks, workers and labels.
    probabilities
        P(true label | reports) of each task, shape (tasks, K).
    class_prior
        P(true label), shape (K,).
    pooled_confusion
        ``[z, l]``: the share of label l among all reports on tasks with true label z, shape (K, K).
    cells
        For each report, its row in ``confusion``.
    confusion
        P(worker gives label | true label z) in column z, one row per (worker, label) that occurs.
    n_iterations
        The number of EM iterations.
    converged
        Whether EM converged.
    """

    reports: Reports
    probabilities: FloatArray
    class_prior: FloatArray
    pooled_confusion: FloatArray
    cells: IntArray
    confusion: FloatArray
    n_iterations: int
    converged: bool

    @property
    def accuracy(self) -> FloatArray:
        """Estimated share of correct answers per worker: the mean probability of its labels."""
        given = self.probabilities[self.reports.task_codes, self.reports.label_codes]
        n = len(self.reports.workers)
        total = np.bincount(self.reports.worker_codes, weights=given, minlength=n)
        count = np.bincount(self.reports.worker_codes, minlength=n)
        share: FloatArray = np.full(n, np.nan)
        return np.divide(total, count, out=share, where=count > 0)

    def __repr__(self) -> str:
        state = "converged" if self.converged else "not converged"
        return f"DawidSkene({self.reports}, {state} after {self.n_iterations} iterations)"


def dawid_skene(
    reports: Reports | ReportsLike, *, max_iter: int = 100, duplicates: str = "error"
) -> DawidSkene:
    """Estimate true labels and each worker's confusion matrix from the reports alone.

    Workers err independently given the true label z. EM starts from the shares of the votes and alternates

    * P(l | z, worker) = (reports of l on tasks of z + s·P(l | z)) / (reports on tasks of z + s), where
      P(l | z) is that of the whole crowd and s = 1, so that a worker with few reports is treated as an
      average worker;
    * P(z | task) ∝ P(z) · Π P(its reports | z).

    Parameters
    ----------
    reports
        :class:`~peerloss.peer_prediction.Reports`, or what ``Reports.from_table`` takes.
    max_iter
        The largest number of EM iterations.
    duplicates
        If a worker labelled a task more than once, raise an ``"error"``, or keep the ``"first"`` or the
        ``"last"`` of its labels in the order of the table. ``Reports`` never hold duplicates.

    Returns
    -------
    The probabilities of every task, the confusion matrices, and whether EM converged.

    Raises
    ------
    InvalidInputError
        If tasks × labels, or (worker, label) pairs × labels, do not fit into memory.

    References
    ----------
    A. P. Dawid and A. M. Skene, "Maximum likelihood estimation of observer error-rates using the EM
    algorithm", 1979.

    Examples
    --------
    >>> answers = {"ann": "aabbab", "bob": "aabbab", "cy": "babaab"}
    >>> table = [(task, name, label) for name, labels in answers.items() for task, label in enumerate(labels)]
    >>> found = dawid_skene(table)
    >>> found.probabilities.argmax(axis=1).tolist(), found.accuracy.round(2).tolist()
    ([0, 0, 1, 1, 0, 1], [1.0, 1.0, 0.67])
    """
    coded = as_reports(reports, duplicates=duplicates)
    most = check_count(max_iter, "max_iter")
    model = _Model(coded)
    probabilities = model.vote_shares()
    n_iterations, change = 0, np.inf
    while n_iterations < most and change >= TOLERANCE:
        model.update_confusion(probabilities)
        change = model.update_probabilities(probabilities)
        n_iterations += 1
    return DawidSkene(
        reports=coded,
        probabilities=probabilities,
        class_prior=model.class_prior,
        pooled_confusion=model.pooled,
        cells=model.cells,
        confusion=model.confusion,
        n_iterations=n_iterations,
        converged=bool(change < TOLERANCE),
    )


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


class _Model:
    """The two steps of EM; both are products with one sparse matrix, tasks × (worker, label)."""

    def __init__(self, reports: Reports) -> None:
        k = len(reports.labels)
        pairs, cells = np.unique(reports.worker_codes * k + reports.label_codes, return_inverse=True)
        n_tasks = len(reports.tasks)
        if k * (n_tasks + len(pairs)) > MAX_CELLS:
            raise InvalidInputError(
                f"`reports` must have fewer labels for Dawid–Skene: {k} labels of {n_tasks} tasks and of "
                f"{len(pairs)} pairs of worker and label do not fit into memory. Group rare labels first."
            )
        self.counts = reports.counts
        self.cells: IntArray = cells
        self.worker, self.label = pairs // k, pairs % k
        # The position of each worker's first pair, since pairs are sorted by worker.
        self.starts = np.flatnonzero(np.diff(self.worker, prepend=-1))
        self.answers: sparse.csr_array[Any, tuple[int, int]] = sparse.csr_array(
            (np.ones(len(cells)), (reports.task_codes, cells)), shape=(n_tasks, len(pairs))
        )
        self.answers_transposed = self.answers.T.tocsr()
        self.of_label: sparse.csr_array[Any, tuple[int, int]] = sparse.csr_array(
            (np.ones(len(pairs)), (self.label, np.arange(len(pairs)))), shape=(k, len(pairs))
        )
        self.class_prior: FloatArray = np.full(k, 1.0 / k)
        self.pooled: FloatArray = np.eye(k)
        self.confusion: FloatArray = np.empty((len(pairs), k))

    def vote_shares(self) -> FloatArray:
        """Return the share of each label among a task's reports; equal shares for a task without reports."""
        shares: FloatArray = self.counts.toarray().astype(np.float64)
        total = shares.sum(axis=1, keepdims=True)
        shares[total[:, 0] == 0] = 1.0 / shares.shape[1]
        shares /= np.maximum(total, 1.0)
        return shares

    def update_confusion(self, probabilities: FloatArray) -> None:
        """Estimate the class prior and the confusion matrices from the probabilities of the tasks."""
        answered = np.diff(self.answers.indptr) > 0
        self.class_prior = probabilities[answered].mean(axis=0)
        mass = self.answers_transposed @ probabilities
        by_label = self.of_label @ mass
        total = np.maximum(by_label.sum(axis=0), np.finfo(float).tiny)
        self.pooled = (by_label / total).T
        of_worker = np.add.reduceat(mass, self.starts, axis=0)
        mass += PRIOR_REPORTS * self.pooled.T[self.label]
        lengths = np.diff(self.starts, append=len(self.label))
        mass /= np.repeat(of_worker + PRIOR_REPORTS, lengths, axis=0)
        self.confusion = mass

    def update_probabilities(self, probabilities: FloatArray) -> float:
        """Update the probabilities of the tasks in place; return their mean absolute change per task."""
        tiny = np.finfo(float).tiny
        log_confusion = np.log(np.maximum(self.confusion, tiny))
        log_prior = np.log(np.maximum(self.class_prior, tiny))
        change = 0.0
        step = max(1, BLOCK // len(log_prior))
        for first in range(0, len(probabilities), step):
            rows = slice(first, first + step)
            new = self.answers[rows] @ log_confusion
            new += log_prior
            new -= new.max(axis=1, keepdims=True)
            np.exp(new, out=new)
            new /= new.sum(axis=1, keepdims=True)
            change += float(np.abs(new - probabilities[rows]).sum())
            probabilities[rows] = new
        return change / len(probabilities)
