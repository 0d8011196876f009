"""The sums over pairs of reports behind every mechanism, in memory linear in the reports."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    from peerloss._validation import FloatArray, IntArray
    from peerloss.peer_prediction._reports import Reports

#: How many pairs or table cells are held at one time (8 bytes each, in a few arrays).
CHUNK = 1 << 20

#: Score matrices are dense K×K: above this (800 MB) the labels are surely ids or free text.
MAX_LABELS = 10_000


def pair_counts(reports: Reports) -> IntArray:
    """Count ordered pairs of different workers on one task by their labels, shape (K, K).

    Σ_t (c_t c_tᵀ − diag c_t) for the label counts c_t of each task; integers, hence exact.
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
    """The reports on tasks that at least one other worker answered, grouped for scoring."""

    def __init__(self, reports: Reports) -> None:
        answers = np.asarray(reports.counts.sum(axis=1))
        keep = answers[reports.task_codes] > 1
        self.counts = reports.counts
        self.task, self.own = reports.task_codes[keep], reports.label_codes[keep]
        self.worker = reports.worker_codes[keep]
        self.n_peers = answers[self.task] - 1
        self.n_workers = len(reports.workers)
        self.n_tasks: IntArray = np.bincount(self.worker, minlength=self.n_workers)

    def mean_by_worker(self, values: FloatArray) -> FloatArray:
        """Average a value a report over each worker's reports; nan for workers without any."""
        total = np.bincount(self.worker, weights=values, minlength=self.n_workers)
        mean: FloatArray = np.full(self.n_workers, np.nan)
        return np.divide(total, self.n_tasks, out=mean, where=self.n_tasks > 0)

    def agreement(self, score: FloatArray) -> FloatArray:
        """Return, for each report, the mean of ``score[own, theirs]`` over the other workers on its task."""
        with_own = _cell_sums(self.counts, score)[self._cells()]
        mean: FloatArray = (with_own - score[self.own, self.own]) / self.n_peers
        return mean

    def penalty(self, score: FloatArray) -> FloatArray:
        """Return Σ_kl score[k, l] o_w[k] ref_w[l] for each worker.

        o_w are the frequencies of the worker's own labels, ref_w is the mean over the worker's tasks of
        the distribution of the other workers' labels. Blocks of workers keep the tables small.
        """
        out = np.full(self.n_workers, np.nan)
        k = len(score)
        order = np.argsort(self.worker, kind="stable")
        ends = np.concatenate([[0], np.cumsum(self.n_tasks)])
        block = max(1, CHUNK // k)
        for first in range(0, self.n_workers, block):
            last = min(first + block, self.n_workers)
            rows = order[ends[first] : ends[last]]
            shape = last - first, k
            who, weight = self.worker[rows] - first, 1.0 / self.n_peers[rows]
            n = np.maximum(self.n_tasks[first:last], 1)[:, None]
            own = sparse.csr_array((np.ones(len(rows)), (who, self.own[rows])), shape=shape)
            seen = sparse.csr_array((weight, (who, self.task[rows])), shape=(shape[0], self.counts.shape[0]))
            minus_own = sparse.csr_array((weight, (who, self.own[rows])), shape=shape)
            theirs = (seen @ self.counts - minus_own).toarray() / n
            out[first:last] = ((own @ score) / n * theirs).sum(axis=1)
        return out

    def is_constant(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Tell which workers gave one and the same label throughout."""
        low, high = np.full(self.n_workers, np.iinfo(np.int64).max), np.full(self.n_workers, -1)
        np.minimum.at(low, self.worker, self.own)
        np.maximum.at(high, self.worker, self.own)
        return np.asarray(low == high)

    def _cells(self) -> IntArray:
        """Find the position of each report's (task, own label) among the stored cells of ``counts``."""
        k = self.counts.shape[1]
        rows = np.repeat(np.arange(self.counts.shape[0]), np.diff(self.counts.indptr))
        return np.searchsorted(rows * k + self.counts.indices, self.task * k + self.own)


def _cell_sums(counts: sparse.csr_array[Any, tuple[int, int]], score: FloatArray) -> FloatArray:
    """Σ_l score[k, l] counts[t, l] for each stored cell (t, k) of ``counts``.

    Each cell is met with the cells of its own row only, some ``CHUNK`` pairs at a time: no table of tasks
    by labels is made.
    """
    starts, lengths = counts.indptr[:-1].astype(np.int64), np.diff(counts.indptr).astype(np.int64)
    first, width = np.repeat(starts, lengths), np.repeat(lengths, lengths)
    ends = np.cumsum(width)
    sums = np.empty(counts.nnz)
    begin = 0
    while begin < counts.nnz:
        done = ends[begin] - width[begin]
        stop = max(begin + 1, int(np.searchsorted(ends, done + CHUNK, side="right")))
        widths = width[begin:stop]
        offsets = np.cumsum(widths) - widths
        other = np.arange(widths.sum()) + np.repeat(first[begin:stop] - offsets, widths)
        own = np.repeat(counts.indices[begin:stop], widths)
        sums[begin:stop] = np.add.reduceat(score[own, counts.indices[other]] * counts.data[other], offsets)
        begin = stop
    return sums
