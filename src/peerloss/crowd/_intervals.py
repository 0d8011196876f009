"""Bootstrap intervals over tasks for every worker at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from joblib import Parallel, delayed
from scipy import sparse, stats

if TYPE_CHECKING:
    from peerloss._validation import FloatArray
    from peerloss.peer_prediction._kernel import SharedReports

#: How many random weights are drawn at one time, and how many resampled scores kept (8 bytes each).
DRAWN = 1 << 24
KEPT = 1 << 24


def bootstrap_intervals(
    shared: SharedReports,
    values: FloatArray,
    *,
    confidence: float,
    n_bootstrap: int,
    generator: np.random.Generator,
    n_jobs: int | None = None,
) -> tuple[FloatArray, FloatArray]:
    """Resample tasks and return the interval of each worker's mean of ``values``.

    Each of ``n_bootstrap`` times every task gets a random weight, exponential with mean 1 (the Bayesian
    bootstrap: no task vanishes), the same for all workers on it, and means are weighted. Deviations from
    the mean are widened by ``t/z · √((n + 1)/(n − 1))``, which makes up for a worker's few tasks. The score
    matrix is taken as given. Workers with fewer than three values have no interval (nan): of two, both
    influences on a covariance are the same.
    """
    n = shared.n_tasks
    centre = shared.mean_by_worker(values)
    low, high = np.full((2, len(n)), np.nan)
    order = np.argsort(shared.worker, kind="stable")
    ends = np.concatenate([[0], np.cumsum(n)])
    tails = (1 - confidence) / 2, (1 + confidence) / 2
    per_draw = max(1, DRAWN // shared.counts.shape[0])
    seeds = generator.integers(2**63, size=-(-n_bootstrap // per_draw))
    block_size = max(1, KEPT // n_bootstrap)
    for first in range(0, len(n), block_size):
        last = min(first + block_size, len(n))
        rows = order[ends[first] : ends[last]]
        block = _Block(shared, values[rows] - centre[shared.worker[rows]], rows, first, last)
        parts = Parallel(n_jobs=n_jobs, prefer="threads")(
            delayed(block.deviations)(seed, min(per_draw, n_bootstrap - part * per_draw))
            for part, seed in enumerate(seeds)
        )
        quantiles = np.quantile(np.concatenate(parts, axis=1), tails, axis=1)
        low[first:last], high[first:last] = quantiles
    usable = n > 2
    factor = np.full(len(n), np.nan)
    few = n[usable].astype(np.float64)
    factor[usable] = stats.t.ppf(tails[1], few - 1) / stats.norm.ppf(tails[1])
    factor[usable] *= np.sqrt((few + 1) / (few - 1))
    return centre + factor * low, centre + factor * high


class _Block:
    """Consecutive workers × all tasks, as sparse matrices."""

    def __init__(
        self, shared: SharedReports, deviation: FloatArray, rows: Any, first: int, last: int
    ) -> None:
        self.n_tasks = shared.counts.shape[0]
        place = shared.worker[rows] - first, shared.task[rows]
        shape = last - first, self.n_tasks
        self.deviation = sparse.csr_array((np.nan_to_num(deviation), place), shape=shape)
        self.answered = sparse.csr_array((np.ones(len(rows)), place), shape=shape)

    def deviations(self, seed: int, draws: int) -> FloatArray:
        weights = np.random.default_rng(seed).standard_exponential((self.n_tasks, draws))
        total = self.answered @ weights
        result: FloatArray = (self.deviation @ weights) / np.where(total > 0, total, 1.0)
        return result
