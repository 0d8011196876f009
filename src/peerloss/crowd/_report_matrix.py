"""Reports as one sparse matrix, tasks × (worker, label), and the step of EM that every crowd model shares."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from peerloss.exceptions import IdentifiabilityWarning, InvalidInputError, warn_caller

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from peerloss._validation import FloatArray, IntArray
    from peerloss.peer_prediction import Reports

#: Largest number of entries in the tables tasks × labels and (worker, label) × labels together (4 GB).
MAX_CELLS = 1 << 29
#: Largest number of entries in the arrays of one block of tasks.
BLOCK = 1 << 20
#: A class is suspicious if its prior exceeds its share of the votes by this factor and by this difference.
PRIOR_FACTOR = 3.0
PRIOR_EXCESS = 0.05


class ReportMatrix:
    """The reports as a matrix tasks × cells; a *cell* is a worker and a label that this worker gave.

    Cells are sorted by worker, then by label. ``cells`` holds the cell of each report, ``worker`` and
    ``label`` those of each cell. ``gold`` holds the known label of each task, −1 if unknown. ``weights``
    count a report less in the probabilities of its task and in its votes.
    """

    def __init__(
        self, reports: Reports, *, gold: IntArray | None = None, weights: FloatArray | None = None
    ) -> None:
        self.n_labels = k = len(reports.labels)
        self.n_workers = len(reports.workers)
        pairs, cells = np.unique(reports.worker_codes * k + reports.label_codes, return_inverse=True)
        self.n_tasks = len(reports.tasks)
        if k * (self.n_tasks + len(pairs)) > MAX_CELLS:
            raise InvalidInputError(
                f"`reports` must have fewer labels for Dawid–Skene: {k} labels of {self.n_tasks} tasks and "
                f"of {len(pairs)} pairs of worker and label do not fit into memory. Group rare labels first."
            )
        self.reports = reports
        self.cells: IntArray = cells
        self.worker, self.label = pairs // k, pairs % k
        # The position of each worker's first cell, since cells are sorted by worker.
        self.starts: IntArray = np.flatnonzero(np.diff(self.worker, prepend=-1))
        self.sizes: IntArray = np.diff(self.starts, append=len(self.label))
        self.known: IntArray = np.flatnonzero(gold >= 0) if gold is not None else np.empty(0, dtype=np.int64)
        self.gold: IntArray = gold[self.known] if gold is not None else self.known
        self.answers = self._matrix(np.ones(len(cells)))
        self.answers_transposed = self.answers.T.tocsr()
        self.weighted = self.answers if weights is None else self._matrix(weights)
        self.votes: Any = reports.counts
        if weights is not None:
            places = reports.task_codes, reports.label_codes
            self.votes = sparse.csr_array((weights, places), shape=(self.n_tasks, k))
        self.answered = np.diff(self.answers.indptr) > 0

    def _matrix(self, values: FloatArray) -> sparse.csr_array[Any, tuple[int, int]]:
        shape = self.n_tasks, len(self.label)
        return sparse.csr_array((values, (self.reports.task_codes, self.cells)), shape=shape)

    def vote_shares(self, *, smoothing: float = 0.0) -> FloatArray:
        """Return the share of each label among the votes for a task; equal shares for a task without votes.

        ``smoothing`` is a number of votes, distributed like those of all tasks, that each task gets in
        addition. The shares of tasks with a gold label are that label.
        """
        shares: FloatArray = self.votes.toarray().astype(np.float64)
        total = shares.sum(axis=1, keepdims=True)
        if smoothing:
            shares += smoothing * (shares.sum(axis=0) / shares.sum())
            shares /= total + smoothing
        else:
            shares[total[:, 0] == 0] = 1.0 / self.n_labels
            # Without votes the total is 0. Otherwise it is at least 1, also with weights.
            shares /= np.maximum(total, 1.0)
        return self.fix_gold(shares)

    def fix_gold(self, probabilities: FloatArray) -> FloatArray:
        """Set the probabilities of tasks with a gold label to that label, in place."""
        probabilities[self.known] = 0.0
        probabilities[self.known, self.gold] = 1.0
        return probabilities

    def label_mass(self, probabilities: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Sum the probabilities of the tasks: for each cell, (cells, K), and for each worker, (n, K).

        Workers without a report are not among the n workers.
        """
        mass: FloatArray = self.answers_transposed @ probabilities
        return mass, np.add.reduceat(mass, self.starts, axis=0)

    def of_cells(self, by_worker: NDArray[Any]) -> NDArray[Any]:
        """Repeat the values of each worker with a report for each of its cells."""
        return np.repeat(by_worker, self.sizes, axis=0)

    def class_prior(self, probabilities: FloatArray) -> FloatArray:
        """Return the mean of the probabilities over the tasks with a report."""
        prior: FloatArray = probabilities[self.answered].mean(axis=0)
        return prior

    def likelihood(self, confusion: FloatArray) -> FloatArray:
        """Return P(reports on the task | true label), shape (tasks, K), divided by its largest entry."""
        log: FloatArray = np.asarray(self.weighted @ np.log(np.maximum(confusion, np.finfo(float).tiny)))
        log -= log.max(axis=1, keepdims=True)
        return np.exp(log, out=log)

    def update_probabilities(
        self, probabilities: FloatArray, confusion: FloatArray, class_prior: FloatArray
    ) -> float:
        """Update the probabilities of the tasks in place; return their mean absolute change per task."""
        tiny = np.finfo(float).tiny
        log_confusion = np.log(np.maximum(confusion, tiny))
        log_prior = np.log(np.maximum(class_prior, tiny))
        change = 0.0
        step = max(1, BLOCK // self.n_labels)
        bounds = np.searchsorted(self.known, np.arange(0, self.n_tasks + step, step))
        for block, first in enumerate(range(0, self.n_tasks, step)):
            rows = slice(first, first + step)
            new = self.weighted[rows] @ log_confusion
            new += log_prior
            new -= new.max(axis=1, keepdims=True)
            np.exp(new, out=new)
            new /= new.sum(axis=1, keepdims=True)
            inside = slice(bounds[block], bounds[block + 1])
            new[self.known[inside] - first] = 0.0
            new[self.known[inside] - first, self.gold[inside]] = 1.0
            change += float(np.abs(new - probabilities[rows]).sum())
            probabilities[rows] = new
        return change / self.n_tasks

    def warn_of_inflated_classes(self, class_prior: FloatArray) -> None:
        """Warn if a class is estimated to be far more frequent than the votes for it."""
        votes = np.asarray(self.reports.counts.sum(axis=0), dtype=np.float64)
        share = votes / votes.sum()
        inflated = np.flatnonzero((class_prior > PRIOR_FACTOR * share) & (class_prior - share > PRIOR_EXCESS))
        if not inflated.size:
            return
        worst = int(inflated[np.argmax(class_prior[inflated] - share[inflated])])
        warn_caller(
            f"Label {self.reports.labels.tolist()[worst]!r} has {share[worst]:.1%} of the votes, but is "
            f"estimated to be the true label of {class_prior[worst]:.1%} of the tasks. Few reports per "
            "worker can make EM drift in this way. Check some of these tasks, pass known labels as `gold`, "
            "or drop the label if it is a typing error.",
            IdentifiabilityWarning,
        )
