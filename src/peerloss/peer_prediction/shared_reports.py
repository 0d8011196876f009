"""Reports on tasks with several answers: counts of label pairs and mean scores over peers.

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
    from collections.abc import Iterator

    from peerloss._validation import BoolArray, FloatArray, IntArray
    from peerloss.peer_prediction.reports import Reports

#: Largest number of pairs or table cells in memory at once (8 bytes each, in a few arrays).
CHUNK = 1 << 20

#: Score matrices are dense K×K. With more labels than this (800 MB) the labels must be ids or free text.
MAX_LABELS = 10_000


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
        with_own = _cell_sums(self.counts, score)[self._cells()]
        mean: FloatArray = (with_own - score[self.own, self.own]) / self.n_peers
        return mean

    def penalty(self, score: FloatArray) -> FloatArray:
        """Return, for each worker, the mean score of its labels against its peers' labels on unrelated tasks.

        This is Σ_kl score[k, l] o_w[k] ref_w[l], where o_w are the frequencies of the worker's own labels and
        ref_w is the mean over the worker's tasks of the distribution of the other workers' labels.
        """
        out = np.full(self.n_workers, np.nan)
        k = len(score)
        block = max(1, CHUNK // k)
        for first in range(0, self.n_workers, block):
            last = min(first + block, self.n_workers)
            rows = self.of_workers(first, last)
            shape = last - first, k
            who, weight = self.worker[rows] - first, 1.0 / self.n_peers[rows]
            n = np.maximum(self.n_tasks[first:last], 1)[:, None]
            own = sparse.csr_array((np.ones(len(rows)), (who, self.own[rows])), shape=shape)
            seen = sparse.csr_array((weight, (who, self.task[rows])), shape=(shape[0], self.counts.shape[0]))
            minus_own = sparse.csr_array((weight, (who, self.own[rows])), shape=shape)
            theirs = (seen @ self.counts - minus_own).toarray() / n
            out[first:last] = ((own @ score) / n * theirs).sum(axis=1)
        return out

    def votes(self) -> IntArray:
        """Return, for each report, how many workers gave its label to its task, itself included."""
        votes: IntArray = self.counts.data[self._cells()]
        return votes

    def is_constant(self) -> BoolArray:
        """Return which workers always gave the same label."""
        low, high = np.full(self.n_workers, np.iinfo(np.int64).max), np.full(self.n_workers, -1)
        np.minimum.at(low, self.worker, self.own)
        np.maximum.at(high, self.worker, self.own)
        return np.asarray(low == high)

    def _cells(self) -> IntArray:
        """Find the position of each report's (task, own label) among the stored cells of ``counts``."""
        k = self.counts.shape[1]
        rows = np.repeat(np.arange(self.counts.shape[0]), np.diff(self.counts.indptr))
        return np.searchsorted(rows * k + self.counts.indices, self.task * k + self.own)


def worker_blocks(ends: IntArray, k: int) -> Iterator[tuple[int, int]]:
    """Split workers into runs of cost at most ``CHUNK`` and at most ``CHUNK / k`` workers.

    ``ends`` is the running total of the workers' costs, such as their numbers of reports, with a leading
    zero.
    """
    first, n_workers = 0, len(ends) - 1
    while first < n_workers:
        last = int(np.searchsorted(ends, ends[first] + CHUNK, side="right")) - 1
        last = min(max(last, first + 1), first + max(1, CHUNK // k), n_workers)
        yield first, last
        first = last


def _cell_sums(counts: sparse.csr_array[Any, tuple[int, int]], score: FloatArray) -> FloatArray:
    """Return Σ_l score[k, l] counts[t, l] for each stored cell (t, k) of ``counts``.

    Each cell is paired with the cells of its own row only, about ``CHUNK`` pairs at a time, so that no dense
    table of tasks by labels is needed.
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
