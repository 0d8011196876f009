"""Dawid and Skene's model of a crowd: every worker has a confusion matrix of its own, fitted by EM."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from peerloss._validation import FloatArray, IntArray, check_count
from peerloss.exceptions import InvalidInputError
from peerloss.peer_prediction._reports import as_reports

if TYPE_CHECKING:
    from collections.abc import Iterator

    from peerloss.peer_prediction import Reports
    from peerloss.peer_prediction._reports import ReportsLike

#: How many reports of the crowd's average worker each worker begins with, for each true label.
PRIOR_REPORTS = 1.0

#: EM ends when the probabilities of a task move by less than this on average.
TOLERANCE = 1e-4

#: Most numbers in the tables tasks × labels and (worker, label) × labels: 4 GB.
MAX_CELLS = 1 << 29

#: How many numbers the arrays of one block of tasks may hold.
BLOCK = 1 << 20


@dataclass(frozen=True, eq=False, repr=False)
class DawidSkene:
    """What EM found; make one with :func:`dawid_skene`.

    Attributes
    ----------
    reports
        The coded reports; tasks, workers and labels below are in their order.
    probabilities
        P(true label | reports) of each task, shape (tasks, K).
    class_prior
        P(true label), shape (K,).
    pooled_confusion
        ``[z, l]``: how the crowd as a whole answers l where z is true, shape (K, K).
    cells
        For each report, its row in ``confusion``.
    confusion
        P(worker says label | true label z) in column z, one row for each (worker, label) that occurs.
    n_iterations
        Rounds of EM.
    converged
        Whether the probabilities had settled by then.
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
        """Estimate each worker's share of right answers: its mean probability over its reports."""
        given = self.probabilities[self.reports.task_codes, self.reports.label_codes]
        n = len(self.reports.workers)
        total = np.bincount(self.reports.worker_codes, weights=given, minlength=n)
        count = np.bincount(self.reports.worker_codes, minlength=n)
        share: FloatArray = np.full(n, np.nan)
        np.divide(total, count, out=share, where=count > 0)
        return share

    def __repr__(self) -> str:
        state = "settled" if self.converged else "not settled"
        return f"DawidSkene({self.reports}, {state} after {self.n_iterations} rounds)"


def dawid_skene(
    reports: Reports | ReportsLike, *, max_iter: int = 100, duplicates: str = "error"
) -> DawidSkene:
    """Estimate true labels and each worker's confusion matrix from the reports alone.

    Workers err independently given the true label z. EM begins with the shares of the votes and alternates

    * P(l | z, worker) = (reports of l on tasks of z + s·P(l | z)) / (reports on tasks of z + s), where
      P(l | z) is the same for the whole crowd together and s = 1, so that a worker with few reports counts
      as an average one;
    * P(z | task) ∝ P(z) · Π P(its reports | z).

    Parameters
    ----------
    reports
        :class:`~peerloss.peer_prediction.Reports`, or what ``Reports.from_table`` takes.
    max_iter
        Most rounds of EM.
    duplicates
        What to do if a worker labelled a task more than once: ``"error"``, or keep the ``"first"`` or the
        ``"last"`` of its labels in the order of the table. ``Reports`` never hold duplicates.

    Returns
    -------
    Probabilities of every task, confusions, and whether they had settled.

    Raises
    ------
    InvalidInputError
        If there are too many tasks × labels, or (worker, label) pairs × labels, to hold.

    References
    ----------
    A. P. Dawid and A. M. Skene, "Maximum likelihood estimation of observer error-rates using the EM
    algorithm", 1979.

    Examples
    --------
    >>> answers = {"ann": "aabbab", "bob": "aabbab", "cy": "babaab"}
    >>> table = [(task, who, label) for who, said in answers.items() for task, label in enumerate(said)]
    >>> found = dawid_skene(table)
    >>> found.probabilities.argmax(axis=1).tolist(), found.accuracy.round(2).tolist()
    ([0, 0, 1, 1, 0, 1], [1.0, 1.0, 0.67])
    """
    coded = as_reports(reports, duplicates=duplicates)
    rounds = check_count(max_iter, "max_iter")
    model = _Model(coded)
    probabilities = model.votes()
    done, moved = 0, np.inf
    while done < rounds and moved >= TOLERANCE:
        model.learn(probabilities)
        moved = model.infer(probabilities)
        done += 1
    return DawidSkene(
        reports=coded,
        probabilities=probabilities,
        class_prior=model.class_prior,
        pooled_confusion=model.pooled,
        cells=model.cells,
        confusion=model.confusion,
        n_iterations=done,
        converged=bool(moved < TOLERANCE),
    )


class _Model:
    """The two steps of EM; both are products of one sparse matrix, tasks × (worker, label)."""

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
        # Where the pairs of each worker begin: they are sorted by worker.
        self.starts = np.flatnonzero(np.diff(self.worker, prepend=-1))
        ones = np.ones(len(cells))
        self.said: sparse.csr_array[Any, tuple[int, int]] = sparse.csr_array(
            (ones, (reports.task_codes, cells)), shape=(n_tasks, len(pairs))
        )
        self.said_transposed = self.said.T.tocsr()
        self.of_label: sparse.csr_array[Any, tuple[int, int]] = sparse.csr_array(
            (np.ones(len(pairs)), (self.label, np.arange(len(pairs)))), shape=(k, len(pairs))
        )
        self.class_prior: FloatArray = np.full(k, 1.0 / k)
        self.pooled: FloatArray = np.eye(k)
        self.confusion: FloatArray = np.empty((len(pairs), k))

    def votes(self) -> FloatArray:
        """Return the share of each label among a task's reports; equal shares for a task without any."""
        shares: FloatArray = self.counts.toarray().astype(np.float64)
        total = shares.sum(axis=1, keepdims=True)
        shares[total[:, 0] == 0] = 1.0 / shares.shape[1]
        shares /= np.maximum(total, 1.0)
        return shares

    def learn(self, probabilities: FloatArray) -> None:
        """Estimate prior and confusions from the probabilities of the tasks."""
        answered = np.diff(self.said.indptr) > 0
        self.class_prior = probabilities[answered].mean(axis=0)
        mass = self.said_transposed @ probabilities
        by_label = self.of_label @ mass
        total = np.maximum(by_label.sum(axis=0), np.finfo(float).tiny)
        self.pooled = (by_label / total).T
        of_worker = np.add.reduceat(mass, self.starts, axis=0)
        mass += PRIOR_REPORTS * self.pooled.T[self.label]
        lengths = np.diff(self.starts, append=len(self.label))
        mass /= np.repeat(of_worker + PRIOR_REPORTS, lengths, axis=0)
        self.confusion = mass

    def infer(self, probabilities: FloatArray) -> float:
        """Write the new probabilities of the tasks in place; return how far they moved on average."""
        tiny = np.finfo(float).tiny
        log_confusion = np.log(np.maximum(self.confusion, tiny))
        log_prior = np.log(np.maximum(self.class_prior, tiny))
        moved = 0.0
        for rows in _blocks(len(probabilities), len(log_prior)):
            new = self.said[rows] @ log_confusion
            new += log_prior
            new -= new.max(axis=1, keepdims=True)
            np.exp(new, out=new)
            new /= new.sum(axis=1, keepdims=True)
            moved += float(np.abs(new - probabilities[rows]).sum())
            probabilities[rows] = new
        return moved / len(probabilities)


def _blocks(n_rows: int, width: int) -> Iterator[slice]:
    step = max(1, BLOCK // width)
    return (slice(first, first + step) for first in range(0, n_rows, step))
