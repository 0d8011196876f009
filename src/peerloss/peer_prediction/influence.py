"""Correlated agreement report by report, with one score matrix for all workers or one per worker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from peerloss.peer_prediction.shared_reports import CHUNK, worker_blocks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from peerloss._validation import FloatArray, IntArray
    from peerloss.peer_prediction.shared_reports import SharedReports

#: N² fits into 64 bits for pair counts whose sum N is below this.
MAX_EXACT_TOTAL = 3_000_000_000


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
    report and exactly 0 for workers who always gave the same label.

    Parameters
    ----------
    shared
        The reports.
    score_rows
        :func:`common_matrix` of a score matrix, or :func:`signs_from_others`.
    """
    values = np.empty(len(shared.task))
    for reports, block in _blocks(shared):
        rows = score_rows(block)
        n = np.maximum(np.bincount(block.who, minlength=block.n_workers), 1)[:, None]
        u_mean = (block.of_worker @ (rows * block.cell_size[:, None])) / n
        v_mean = (block.of_worker @ block.peer_labels(block.weight)) / n
        own_mean = np.einsum("ij,ij->i", rows, v_mean[block.cell_worker])  # u_t·v̄
        both_means = np.einsum("ij,ij->i", u_mean, v_mean)
        here = _mean_over_peers(block, block.cell, rows) - own_mean[block.cell]
        values[reports] = here - (_mean_over_peers(block, block.who, u_mean) - both_means[block.who])
    n_all = shared.n_tasks[shared.worker].astype(np.float64)
    values[shared.is_constant()[shared.worker]] = 0.0  # exactly, without rounding errors
    values *= np.divide(n_all, n_all - 1, out=np.full(len(n_all), np.nan), where=n_all > 1)
    return values


def _blocks(shared: SharedReports) -> Iterator[tuple[IntArray, WorkerBlock]]:
    k = shared.counts.shape[1]
    cells = np.bincount(np.unique(shared.worker * k + shared.own) // k, minlength=shared.n_workers)
    cost = np.concatenate([[0], np.cumsum(np.maximum(cells * k, shared.n_tasks))])
    for first, last in worker_blocks(cost, k):
        reports = shared.of_workers(first, last)
        if len(reports):
            yield reports, WorkerBlock(shared, reports, first, last)


def _mean_over_peers(block: WorkerBlock, row: IntArray, table: FloatArray) -> FloatArray:
    """Average ``table[row]`` over the labels of the others on each report's task."""
    out = np.empty(len(row))
    for begin in range(0, len(row), CHUNK):
        part = slice(begin, begin + CHUNK)
        counts = block.counts[block.task[part]]
        lengths = np.diff(counts.indptr)
        products = counts.data * table[np.repeat(row[part], lengths), counts.indices]
        out[part] = np.add.reduceat(products, counts.indptr[:-1])
    result: FloatArray = (out - table[row, block.own]) * block.weight
    return result
