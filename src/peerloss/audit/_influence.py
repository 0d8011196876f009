"""What each report adds to its worker's correlated agreement."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

from peerloss.peer_prediction._kernel import CHUNK

if TYPE_CHECKING:
    from collections.abc import Iterator

    from peerloss._validation import FloatArray, IntArray
    from peerloss.peer_prediction._kernel import SharedReports


def ca_influence(shared: SharedReports, score: FloatArray) -> FloatArray:
    """Return for each shared report ``n/(n − 1)·(u_t − ū)·(v_t − v̄)``, whose mean is the CA score.

    u_t is the row ``score[own label]``, v_t the shares of labels among the others on the task; bars are means
    over the worker's n shared tasks. nan for a worker's only one.
    """
    values = shared.agreement(score)
    order = np.argsort(shared.worker, kind="stable")
    ends = np.concatenate([[0], np.cumsum(shared.n_tasks)])
    for first, last in worker_blocks(ends, len(score)):
        rows = order[ends[first] : ends[last]]
        task, own, who = shared.task[rows], shared.own[rows], shared.worker[rows] - first
        shape = last - first, len(score)
        n = np.maximum(shared.n_tasks[first:last], 1)[:, None]
        weight = 1.0 / shared.n_peers[rows]
        labels = sparse.csr_array((np.ones(len(rows)), (who, own)), shape=shape)
        seen = sparse.csr_array((weight, (who, task)), shape=(shape[0], shared.counts.shape[0]))
        minus_own = sparse.csr_array((weight, (who, own)), shape=shape)
        u_mean = (labels @ score) / n
        v_mean = (seen @ shared.counts - minus_own).toarray() / n
        values[rows] += np.einsum("ij,ij->i", u_mean, v_mean)[who]
        values[rows] -= (v_mean @ score.T)[who, own]
        values[rows] -= (_row_products(shared, task, who, u_mean) - u_mean[who, own]) * weight
    n_all = shared.n_tasks[shared.worker].astype(np.float64)
    values *= np.divide(n_all, n_all - 1, out=np.full(len(n_all), np.nan), where=n_all > 1)
    return values


def worker_blocks(ends: IntArray, k: int) -> Iterator[tuple[int, int]]:
    """Split workers into runs of some ``CHUNK`` reports and at most ``CHUNK / k`` workers.

    ``ends`` are the running totals of their reports, with a leading zero.
    """
    first, n_workers = 0, len(ends) - 1
    while first < n_workers:
        last = int(np.searchsorted(ends, ends[first] + CHUNK, side="right")) - 1
        last = min(max(last, first + 1), first + max(1, CHUNK // k), n_workers)
        yield first, last
        first = last


def _row_products(shared: SharedReports, task: IntArray, who: IntArray, table: FloatArray) -> FloatArray:
    """Σ_l counts[task, l] table[who, l] for each pair, over the stored counts only."""
    out = np.empty(len(task))
    for begin in range(0, len(task), CHUNK):
        part = slice(begin, begin + CHUNK)
        counts = shared.counts[task[part]]
        lengths = np.diff(counts.indptr)
        products = counts.data * table[np.repeat(who[part], lengths), counts.indices]
        out[part] = np.add.reduceat(products, counts.indptr[:-1])
    return out
