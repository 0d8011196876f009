"""Reports on tasks with several answers: label pairs, mean scores over peers, correlated agreement by report.

All sums are sparse products, in memory linear in the number of reports. Every mechanism of this package and
the tables of :mod:`peerloss.crowd` are built on them.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from peerloss._validation import BoolArray, FloatArray, IntArray
    from peerloss.peer_prediction.reports import Reports

#: Largest number of pairs or table cells in memory at once (8 bytes each, in a few arrays).
CHUNK = 1 << 20
#: Score matrices are dense K×K. With more labels than this (800 MB) the labels must be ids or free text.
MAX_LABELS = 10_000
#: N² fits into 64 bits for pair counts whose sum N is below this.
MAX_EXACT_TOTAL = 3_000_000_000


def pair_counts(reports: Reports) -> IntArray:
    """Count ordered pairs of different workers on one task by their labels, shape (K, K).

    Σ_t (c_t c_tᵀ − diag c_t) for the label counts c_t of each task, in exact integers.
    """
    k = len(reports.labels)
    if k > MAX_LABELS:
        raise InvalidInputError(
            f"`reports` must have at most {MAX_LABELS} different labels; got {k}. Group rare labels first."
        )
    table: IntArray = (reports.counts.T @ reports.counts).toarray()
    table[np.diag_indices(k)] -= np.asarray(reports.counts.sum(axis=0))
    if not table.any():
        raise InvalidInputError(
            "`reports` must have a task with labels of two workers; every task has only one. "
            "Peer prediction compares workers: assign some tasks twice."
        )
    return table


class SharedReports:
    """The reports on tasks that at least one other worker answered.

    ``task``, ``worker`` and ``own`` (the label) are the codes of each report, ``n_peers`` the number of other
    workers on its task. ``n_tasks`` counts the shared tasks of each worker.
    """

    def __init__(self, reports: Reports) -> None:
        answers = np.asarray(reports.counts.sum(axis=1))
        keep = answers[reports.task_codes] > 1
        self.counts = reports.counts
        self.task, self.own = reports.task_codes[keep], reports.label_codes[keep]
        self.worker = reports.worker_codes[keep]
        self.n_peers = answers[self.task] - 1
        self.n_workers = len(reports.workers)
        self.n_tasks: IntArray = np.bincount(self.worker, minlength=self.n_workers)

    @cached_property
    def ends(self) -> IntArray:
        """The running total of ``n_tasks``, with a leading zero."""
        return np.concatenate([[0], np.cumsum(self.n_tasks)])

    @cached_property
    def _by_worker(self) -> IntArray:
        return np.argsort(self.worker, kind="stable")

    def of_workers(self, first: int, last: int) -> IntArray:
        """Return the positions of the reports of workers ``first`` to ``last − 1``, sorted by worker."""
        return self._by_worker[self.ends[first] : self.ends[last]]

    def mean_by_worker(self, values: FloatArray) -> FloatArray:
        """Average one value per report over each worker's reports; nan for workers without reports."""
        total = np.bincount(self.worker, weights=values, minlength=self.n_workers)
        mean: FloatArray = np.full(self.n_workers, np.nan)
        return np.divide(total, self.n_tasks, out=mean, where=self.n_tasks > 0)

    def agreement(self, score: FloatArray) -> FloatArray:
        """Return, for each report, the mean of ``score[own, peer's]`` over the other workers on its task."""
        return _sum_over_peers(self, self.own, score) / self.n_peers

    def votes(self) -> IntArray:
        """Return, for each report, how many workers gave its label to its task, itself included."""
        k = self.counts.shape[1]
        rows = np.repeat(np.arange(self.counts.shape[0]), np.diff(self.counts.indptr))
        cells = np.searchsorted(rows * k + self.counts.indices, self.task * k + self.own)
        votes: IntArray = self.counts.data[cells]
        return votes

    def rival_votes(self) -> tuple[IntArray, IntArray, IntArray]:
        """Count, for each report, the votes for its label and for the best other label.

        The votes for its label include the report itself. The third array counts the labels that are tied for
        the best other label.
        """
        n_rows, votes = self.counts.shape[0], self.counts.data
        rows = np.repeat(np.arange(n_rows), np.diff(self.counts.indptr))
        top, n_top = _best(rows, votes, n_rows)
        lower = votes < top[rows]
        second, n_second = _best(rows[lower], votes[lower], n_rows)
        own = self.votes()
        leads = (own == top[self.task]).astype(np.int64)
        alone = (leads == 1) & (n_top[self.task] == 1)
        rival = np.where(alone, second[self.task], top[self.task])
        return own, rival, np.where(alone, n_second[self.task], n_top[self.task] - leads)

    def majority_agreement(self) -> FloatArray:
        """Return, for each report, whether the majority of the *others* on its task gave the same label.

        If labels are tied, this is the probability of drawing the report's label from them.
        """
        own, rival, n_rivals = self.rival_votes()
        leads = (own - 1 > rival).astype(np.float64)
        result: FloatArray = np.where(own - 1 == rival, 1.0 / (1 + n_rivals), leads)
        return result

    def is_constant(self) -> BoolArray:
        """Return which workers always gave the same label."""
        low, high = np.full(self.n_workers, np.iinfo(np.int64).max), np.full(self.n_workers, -1)
        np.minimum.at(low, self.worker, self.own)
        np.maximum.at(high, self.worker, self.own)
        return np.asarray(low == high)


def split_by_cost(ends: IntArray, k: int = 1) -> Iterator[tuple[int, int]]:
    """Split items into runs of cost at most ``CHUNK`` and at most ``CHUNK / k`` items.

    ``ends`` is the running total of the costs, with a leading zero. A larger item is a run of its own.
    """
    first, n_items = 0, len(ends) - 1
    while first < n_items:
        last = int(np.searchsorted(ends, ends[first] + CHUNK, side="right")) - 1
        last = min(max(last, first + 1), first + max(1, CHUNK // k), n_items)
        yield first, last
        first = last


def _best(rows: IntArray, votes: IntArray, n_rows: int) -> tuple[IntArray, IntArray]:
    """Return the largest number of votes in each row, and how many labels have it."""
    best = np.zeros(n_rows, dtype=np.int64)
    np.maximum.at(best, rows, votes)
    return best, np.bincount(rows[votes == best[rows]], minlength=n_rows)


class WorkerBlock:
    """The shared reports of consecutive workers.

    A *cell* is a worker and a label that this worker gave. Cells are sorted by worker, then by label.
    """

    def __init__(self, shared: SharedReports, reports: IntArray, first: int, last: int) -> None:
        k = shared.counts.shape[1]
        self.counts = shared.counts
        self.n_workers = last - first
        self.task, self.own = shared.task[reports], shared.own[reports]
        self.who = shared.worker[reports] - first
        self.weight: FloatArray = 1.0 / shared.n_peers[reports]
        keys, cell, size = np.unique(self.who * k + self.own, return_inverse=True, return_counts=True)
        self.cell: IntArray = cell
        self.cell_size: IntArray = size
        self.cell_worker, self.cell_label = keys // k, keys % k
        self.of_worker = sparse.csr_array(
            (np.ones(len(keys), dtype=np.int64), (self.cell_worker, np.arange(len(keys)))),
            shape=(self.n_workers, len(keys)),
        )

    def peer_labels(self, weight: NDArray[Any]) -> NDArray[Any]:
        """Sum ``weight`` × (label counts of the other workers on the task) over each cell, (cells, K)."""
        shape = len(self.cell_size), self.counts.shape[0]
        table: NDArray[Any] = (
            sparse.csr_array((weight, (self.cell, self.task)), shape=shape) @ self.counts
        ).toarray()
        own = np.bincount(self.cell, weights=weight, minlength=shape[0])
        table[np.arange(shape[0]), self.cell_label] -= own.astype(table.dtype)
        return table


def common_matrix(score: FloatArray) -> Callable[[WorkerBlock], FloatArray]:
    """Score all workers with the same matrix: return a function that gives the row of each cell."""
    return lambda block: score[block.cell_label]


def signs_from_others(pairs: IntArray) -> Callable[[WorkerBlock], FloatArray]:
    """Score each worker with Sgn(Δ), where Δ is estimated from the *other* workers' reports.

    ``pairs`` are the pair counts of all workers. The worker's own pairs are subtracted in integers: Sgn(Δ)
    depends on whether an entry is zero, and rounding could decide that differently after a relabelling. If
    the others have no pair, Sgn(Δ) is the identity.
    """
    table = pairs if int(pairs.sum()) < MAX_EXACT_TOTAL else pairs.astype(np.float64)

    def rows(block: WorkerBlock) -> FloatArray:
        worker, label = block.cell_worker, block.cell_label
        own_pairs = block.peer_labels(np.ones(len(block.cell), dtype=np.int64))
        pairs_by_cell = own_pairs.sum(axis=1)
        total = table.sum() - 2 * (block.of_worker @ pairs_by_cell)
        margin = table.sum(axis=0) - block.of_worker @ own_pairs
        margin[worker, label] -= pairs_by_cell
        remaining = table[label] - own_pairs
        cell_of = np.full(margin.shape, -1)
        cell_of[worker, label] = np.arange(len(label))
        cell, peer_label = np.nonzero(own_pairs)
        mirrored = cell_of[worker[cell], peer_label]  # the pairs in which the worker's label is the peer's
        kept = mirrored >= 0
        remaining[mirrored[kept], label[cell[kept]]] -= own_pairs[cell[kept], peer_label[kept]]
        positive = total[worker][:, None] * remaining > margin[worker, label][:, None] * margin[worker]
        without_pairs = total[worker] == 0
        positive[without_pairs] = label[without_pairs][:, None] == np.arange(len(table))
        signs: FloatArray = positive.astype(np.float64)
        return signs

    return rows


def ca_influence(shared: SharedReports, score_rows: Callable[[WorkerBlock], FloatArray]) -> FloatArray:
    """Return ``n/(n − 1)·(u_t − ū)·(v_t − v̄)`` for each shared report; a worker's mean is its CA score.

    u_t is the row of the worker's score matrix for its own label, v_t the shares of labels among the others
    on the task. Bars are means over the worker's n shared tasks. The value is nan for a worker's only shared
    report and exactly 0 for workers who always gave the same label. ``score_rows`` is :func:`common_matrix`
    of a score matrix, or :func:`signs_from_others`.
    """
    values = np.empty(len(shared.task))
    for reports, block in _blocks(shared):
        rows = score_rows(block)
        n = np.maximum(np.bincount(block.who, minlength=block.n_workers), 1)[:, None]
        u_mean = (block.of_worker @ (rows * block.cell_size[:, None])) / n
        v_mean = (block.of_worker @ block.peer_labels(block.weight)) / n
        own_mean = np.einsum("ij,ij->i", rows, v_mean[block.cell_worker])  # u_t·v̄
        both_means = np.einsum("ij,ij->i", u_mean, v_mean)
        here = _sum_over_peers(block, block.cell, rows) * block.weight - own_mean[block.cell]
        mean = _sum_over_peers(block, block.who, u_mean) * block.weight - both_means[block.who]
        values[reports] = here - mean
    n_all = shared.n_tasks[shared.worker].astype(np.float64)
    values[shared.is_constant()[shared.worker]] = 0.0  # exactly, without rounding errors
    values *= np.divide(n_all, n_all - 1, out=np.full(len(n_all), np.nan), where=n_all > 1)
    return values


def _blocks(shared: SharedReports) -> Iterator[tuple[IntArray, WorkerBlock]]:
    k = shared.counts.shape[1]
    cells = np.bincount(np.unique(shared.worker * k + shared.own) // k, minlength=shared.n_workers)
    cost = np.concatenate([[0], np.cumsum(np.maximum(cells * k, shared.n_tasks))])
    for first, last in split_by_cost(cost, k):
        reports = shared.of_workers(first, last)
        if len(reports):
            yield reports, WorkerBlock(shared, reports, first, last)


def _sum_over_peers(reports: SharedReports | WorkerBlock, row: IntArray, table: FloatArray) -> FloatArray:
    """Sum ``table[row]`` over the labels of the others on each report's task."""
    out = np.empty(len(row))
    lengths = np.diff(reports.counts.indptr)[reports.task]
    for first, last in split_by_cost(np.concatenate([[0], np.cumsum(lengths)])):
        counts = reports.counts[reports.task[first:last]]
        products = counts.data * table[np.repeat(row[first:last], lengths[first:last]), counts.indices]
        out[first:last] = np.add.reduceat(products, counts.indptr[:-1])
    result: FloatArray = out - table[row, reports.own]
    return result
