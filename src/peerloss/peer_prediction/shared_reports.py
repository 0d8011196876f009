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
#: An entry of Δ̂ counts as zero if it is at most this share of the number of pairs: rounding is far smaller.
ROUNDING = 1e-11


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
    def answered(self) -> sparse.csr_array[Any, tuple[int, int]]:
        """1 for each shared report, tasks × workers."""
        shape = self.counts.shape[0], self.n_workers
        return sparse.csr_array((np.ones(len(self.task)), (self.task, self.worker)), shape=shape)

    @cached_property
    def frequencies(self) -> FloatArray | sparse.csr_array[Any, tuple[int, int]]:
        """The share of each label in each worker's reports, workers × K; sparse if it is large."""
        shape = self.n_workers, self.counts.shape[1]
        share = 1.0 / self.n_tasks[self.worker]
        table = sparse.csr_array((share, (self.worker, self.own)), shape=shape)
        return table if shape[0] * shape[1] > max(CHUNK, len(self.own)) else table.toarray()

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
        self.shared, self.counts = shared, shared.counts
        self.first, self.n_workers = first, last - first
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

    def cross_products(self) -> FloatArray:
        """Return Σ_t (own report) (sum of the others' reports)ᵀ, all centred by worker: a row for each cell.

        Reports are one-hot and centred by the ``frequencies`` of their worker. The rows of labels that the
        worker did not give are zero.
        """
        peers = self._centred_peer_labels()
        own_share: FloatArray = self.cell_size / (self.of_worker @ self.cell_size)[self.cell_worker]
        products: FloatArray = peers - own_share[:, None] * (self.of_worker @ peers)[self.cell_worker]
        return products

    def _centred_peer_labels(self) -> FloatArray:
        """Sum the centred reports of the other workers on the task over each cell, (cells, K)."""
        shared = self.shared
        table: FloatArray = self.peer_labels(np.ones(len(self.cell)))
        table += self.cell_size[:, None] * _dense(shared.frequencies[self.first + self.cell_worker])
        by_task = np.argsort(self.task, kind="stable")
        step = max(1, CHUNK // table.shape[1])
        for begin in range(0, len(by_task), step):
            part = by_task[begin : begin + step]
            tasks, column = np.unique(self.task[part], return_inverse=True)
            # The sum of the frequencies of all workers on the task, the worker itself included.
            expected = shared.answered[tasks] @ shared.frequencies
            cells = np.ones(len(part)), (self.cell[part], column)
            table -= _dense(sparse.csr_array(cells, shape=(len(table), len(tasks))) @ expected)
        return table


def _dense(table: Any) -> FloatArray:
    result: FloatArray = table if isinstance(table, np.ndarray) else table.toarray()
    return result


def common_matrix(score: FloatArray) -> Callable[[WorkerBlock], FloatArray]:
    """Score all workers with the same matrix: return a function that gives the row of each cell."""
    return lambda block: score[block.cell_label]


def signs_from_others(shared: SharedReports) -> Callable[[WorkerBlock], FloatArray]:
    """Score each worker with Sgn(Δ), where Δ is estimated from the *other* workers' reports.

    Δ̂ is proportional to Σ_{a≠b} Σ_t x_at x_btᵀ, summed over the common tasks t of each pair of workers. x_at
    is the one-hot report of worker a minus the label ``frequencies`` of a. So each pair is compared with its
    *own* marginals, and a worker who always gives the same label contributes 0. If reports were pooled before
    the marginals are subtracted, different marginals could make the diagonal of Δ̂ negative although every
    pair of workers is positively correlated (Simpson's paradox).

    The frequencies are those of all shared tasks of a worker, not only of the tasks common with the other
    worker of the pair. If each worker's tasks are a random sample, the expected sum of a pair with c common
    tasks is ``c (1 − 1/n_a − 1/n_b + c/(n_a n_b))`` times its Δ. This factor is never negative: few reports
    reduce the weight of a pair, but do not change its sign.

    The worker's own pairs are subtracted from those of all workers. If no two others who both gave several
    labels share a task, Sgn(Δ) is the identity.
    """
    k = shared.counts.shape[1]
    delta = np.zeros((k, k))
    for _, block in _blocks(shared):
        order = np.argsort(block.cell_label, kind="stable")
        labels, starts = np.unique(block.cell_label[order], return_index=True)
        delta[labels] += np.add.reduceat(block.cross_products()[order], starts, axis=0)
    informed = _has_informative_others(shared)
    tolerance = ROUNDING * float(shared.n_peers.sum())

    def rows(block: WorkerBlock) -> FloatArray:
        worker, label = block.cell_worker, block.cell_label
        own = block.cross_products()
        remaining = delta[label] - own
        cell_of = np.full((block.n_workers, k), -1)
        cell_of[worker, label] = np.arange(len(label))
        cell, peer_label = np.nonzero(cell_of[worker] >= 0)
        mirrored = cell_of[worker[cell], peer_label]  # the pairs in which the worker's label is the peer's
        remaining[cell, peer_label] -= own[mirrored, label[cell]]
        positive = remaining > tolerance
        uninformed = ~informed[block.first + worker]
        positive[uninformed] = label[uninformed][:, None] == np.arange(k)
        signs: FloatArray = positive.astype(np.float64)
        return signs

    return rows


def _has_informative_others(shared: SharedReports) -> BoolArray:
    """Return for which workers two *others*, who both gave several labels, share a task."""
    varied = (~shared.is_constant()[shared.worker]).astype(np.int64)
    n_varied = np.zeros(shared.counts.shape[0], dtype=np.int64)
    np.add.at(n_varied, shared.task, varied)
    pairs = varied * (n_varied[shared.task] - varied)
    own_pairs = np.zeros(shared.n_workers, dtype=np.int64)
    np.add.at(own_pairs, shared.worker, pairs)
    return np.asarray(pairs.sum() > 2 * own_pairs)


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
