"""Bootstrap intervals of the scores: tasks are resampled, for all workers together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from joblib import Parallel, delayed
from scipy import sparse, stats

if TYPE_CHECKING:
    from peerloss._validation import FloatArray
    from peerloss.peer_prediction.shared_reports import SharedReports

#: Largest number of random weights, and of resampled scores, in memory at once (8 bytes each).
MAX_WEIGHTS = 1 << 24
MAX_SCORES = 1 << 24


def bootstrap_intervals(
    shared: SharedReports,
    values: FloatArray,
    *,
    confidence: float,
    n_bootstrap: int,
    generator: np.random.Generator,
    n_jobs: int | None = None,
) -> tuple[FloatArray, FloatArray]:
    """Resample tasks and return the lower and upper ends of the interval of each worker's mean of ``values``.

    In each of ``n_bootstrap`` rounds every task gets a random weight, exponential with mean 1 (the Bayesian
    bootstrap, in which no task disappears), the same for all workers on it, and weighted means are taken.
    Deviations from the mean are widened by ``t/z · √((n + 1)/(n − 1))``, a correction for small numbers of
    tasks. The score matrix is treated as known. Workers with fewer than three values have no interval (nan):
    two influences on a covariance are always equal.
    """
    n = shared.n_tasks
    centre = shared.mean_by_worker(values)
    low, high = np.full((2, len(n)), np.nan)
    tails = (1 - confidence) / 2, (1 + confidence) / 2
    per_draw = max(1, MAX_WEIGHTS // shared.counts.shape[0])
    seeds = generator.integers(2**63, size=-(-n_bootstrap // per_draw))
    block_size = max(1, MAX_SCORES // n_bootstrap)
    for first in range(0, len(n), block_size):
        last = min(first + block_size, len(n))
        rows = shared.of_workers(first, last)
        cells = shared.worker[rows] - first, shared.task[rows]
        shape = last - first, shared.counts.shape[0]
        deviation = np.nan_to_num(values[rows] - centre[shared.worker[rows]])
        deviations = sparse.csr_array((deviation, cells), shape=shape)
        answered = sparse.csr_array((np.ones(len(rows)), cells), shape=shape)
        parts = Parallel(n_jobs=n_jobs, prefer="threads")(
            delayed(_resample)(deviations, answered, seed, min(per_draw, n_bootstrap - part * per_draw))
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


def _resample(deviations: Any, answered: Any, seed: int, draws: int) -> FloatArray:
    """Return the deviation of each worker's mean in each draw, (workers, draws), from workers × tasks."""
    weights = np.random.default_rng(seed).standard_exponential((answered.shape[1], draws))
    total = answered @ weights
    result: FloatArray = (deviations @ weights) / np.where(total > 0, total, 1.0)
    return result
