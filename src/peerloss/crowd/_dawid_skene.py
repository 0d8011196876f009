"""Dawid and Skene's model: one confusion matrix per worker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from peerloss._validation import FloatArray, IntArray, check_count
from peerloss.crowd._report_matrix import ReportMatrix
from peerloss.crowd.gold_labels import gold_codes
from peerloss.peer_prediction.reports import as_reports

if TYPE_CHECKING:
    from peerloss.crowd.gold_labels import GoldLike
    from peerloss.peer_prediction import Reports
    from peerloss.peer_prediction.reports import ReportsLike

#: Number of reports of the crowd's average worker that are added to each worker's, per true label.
PRIOR_REPORTS = 1.0
#: EM has converged when the probabilities of a task change by less than this on average.
TOLERANCE = 1e-4


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
    gold
        The position of each task's gold label among the labels, −1 without one; ``None`` without gold labels.
    """

    reports: Reports
    probabilities: FloatArray
    class_prior: FloatArray
    pooled_confusion: FloatArray
    cells: IntArray
    confusion: FloatArray
    n_iterations: int
    converged: bool
    gold: IntArray | None = None

    @property
    def accuracy(self) -> FloatArray:
        """Estimated share of correct answers per worker: the mean probability of its labels."""
        total, count = expected_correct(self.reports, self.probabilities)
        share: FloatArray = np.full(len(count), np.nan)
        return np.divide(total, count, out=share, where=count > 0)

    def __repr__(self) -> str:
        state = "converged" if self.converged else "not converged"
        return f"DawidSkene({self.reports}, {state} after {self.n_iterations} iterations)"


def expected_correct(reports: Reports, probabilities: FloatArray) -> tuple[FloatArray, IntArray]:
    """Return the expected number of correct answers of each worker, and the number of its answers."""
    given = probabilities[reports.task_codes, reports.label_codes]
    n = len(reports.workers)
    total: FloatArray = np.bincount(reports.worker_codes, weights=given, minlength=n).astype(np.float64)
    count: IntArray = np.bincount(reports.worker_codes, minlength=n)
    return total, count


def dawid_skene(
    reports: Reports | ReportsLike,
    *,
    max_iter: int = 100,
    gold: GoldLike | None = None,
    duplicates: str = "error",
) -> DawidSkene:
    """Estimate true labels and each worker's confusion matrix from the reports alone.

    Workers err independently given the true label z. EM starts from the shares of the votes and alternates

    * P(l | z, worker) = (reports of l on tasks of z + s·P(l | z)) / (reports on tasks of z + s), where
      P(l | z) is that of the whole crowd and s = 1, so that a worker with few reports is treated as an
      average worker;
    * P(z | task) ∝ P(z) · Π P(its reports | z).

    For the labels of tasks prefer :class:`LabelAggregator`: with few reports per worker EM drifts away from
    the votes, and its probabilities are overconfident. A warning names a class whose estimated frequency far
    exceeds its share of the votes.

    Parameters
    ----------
    reports
        :class:`~peerloss.peer_prediction.Reports`, or what ``Reports.from_table`` takes.
    max_iter
        The largest number of EM iterations.
    gold
        Known labels of some tasks, a Series whose index holds the tasks or a dictionary. Their probability is
        1, so that they also improve the confusion matrices.
    duplicates
        If a worker labelled a task more than once, raise an ``"error"``, or keep the ``"first"`` or the
        ``"last"`` of its labels in the order of the table. ``Reports`` never hold duplicates.

    Returns
    -------
    The probabilities of every task, the confusion matrices, and whether EM converged.

    Raises
    ------
    InvalidInputError
        If tasks × labels, or (worker, label) pairs × labels, do not fit into memory, or a gold label does not
        match the reports.

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
    known = gold_codes(gold, coded)
    matrix = ReportMatrix(coded, gold=known)
    probabilities = matrix.vote_shares()
    n_iterations, change = 0, np.inf
    while n_iterations < most and change >= TOLERANCE:
        class_prior = matrix.class_prior(probabilities)
        pooled, confusion = shrink_to_crowd(matrix, probabilities)
        change = matrix.update_probabilities(probabilities, confusion, class_prior)
        n_iterations += 1
    matrix.warn_of_inflated_classes(class_prior)
    return DawidSkene(
        reports=coded,
        probabilities=probabilities,
        class_prior=class_prior,
        pooled_confusion=pooled,
        cells=matrix.cells,
        confusion=confusion,
        n_iterations=n_iterations,
        converged=bool(change < TOLERANCE),
        gold=known,
    )


def shrink_to_crowd(matrix: ReportMatrix, probabilities: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the confusion matrix of the crowd, and P(label | true label) of each cell."""
    mass, of_worker = matrix.label_mass(probabilities)
    by_label = np.zeros((matrix.n_labels, matrix.n_labels))
    np.add.at(by_label, matrix.label, mass)
    pooled = (by_label / np.maximum(by_label.sum(axis=0), np.finfo(float).tiny)).T
    mass += PRIOR_REPORTS * pooled.T[matrix.label]
    mass /= matrix.of_cells(of_worker + PRIOR_REPORTS)
    return pooled, mass
