"""Pairs of workers who share uncommon answers more often than independent workers would."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from scipy import stats

from peerloss._holm import holm
from peerloss._validation import FloatArray, IntArray, check_in_range
from peerloss.crowd._aggregate import rival_votes
from peerloss.peer_prediction._kernel import CHUNK, SharedReports
from peerloss.peer_prediction._reports import as_reports

if TYPE_CHECKING:
    from collections.abc import Iterator

    from peerloss.peer_prediction import Reports
    from peerloss.peer_prediction._reports import ReportsLike

#: How many expected agreements a worker begins with at the rate of everybody else.
PRIOR_EVENTS = 1.0


def find_copiers(
    reports: Reports | ReportsLike, *, false_positive_rate: float = 0.05, duplicates: str = "error"
) -> pd.DataFrame:
    """Find pairs of workers of whom one seems to copy the other, or both a third.

    Good workers agree because they are right, so only answers that are outvoted count: a's label on a task
    where the others prefer another one, while somebody shares it. If c of the m other workers share it, b is
    among them with probability c/m where b errs as everybody does; how much more or less often b joins
    outvoted answers with this label, against that chance or for each task, is learned from all workers but a;
    the larger expectation counts. The number of shared answers is compared with a negative binomial
    distribution, which allows for the error of that rate; the test must succeed from both sides. Tasks need
    four answers or more.

    Parameters
    ----------
    reports
        :class:`~peerloss.peer_prediction.Reports`, or what ``Reports.from_table`` takes.
    false_positive_rate
        Chance that any pair of independent workers is listed (Holm's correction over all pairs).
    duplicates
        What to do where a worker labelled a task more than once: ``"error"``, or keep the ``"first"`` or the
        ``"last"`` of its labels in the order of the table.

    Returns
    -------
    A frame with one row a pair, the clearest first: ``worker`` and ``other`` in order of first appearance,
    ``n_tasks`` where the first was outvoted but not alone, ``agreements`` there, ``expected`` agreements of
    independent workers, ``p_value`` after correction. Which of the two copied cannot be told.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.integers(4, size=300)
    >>> said = {f"w{i}": np.where(rng.random(300) < 0.6, truth, rng.integers(4, size=300)) for i in range(8)}
    >>> said["copier"] = said["w3"]
    >>> table = [(task, who, label) for who, labels in said.items() for task, label in enumerate(labels)]
    >>> find_copiers(table)[["worker", "other"]].to_dict("list")
    {'worker': ['w3'], 'other': ['copier']}
    """
    rate = check_in_range(false_positive_rate, "false_positive_rate", 0.0, 1.0)
    coded = as_reports(reports, duplicates=duplicates)
    n = len(coded.workers)
    test = _test(_meetings(coded), n, len(coded.labels))
    pair = np.minimum(test.first, test.second) * n + np.maximum(test.first, test.second)
    order = np.lexsort((test.first, pair))
    pairs, begin, sides = np.unique(pair[order], return_index=True, return_counts=True)
    worse = np.maximum.reduceat(test.p_value[order], begin) if len(pairs) else np.empty(0)
    corrected = holm(np.where(sides == 2, worse, 1.0))
    chosen = np.flatnonzero(corrected <= rate)
    chosen = chosen[np.argsort(corrected[chosen], kind="stable")]
    at = order[begin[chosen]]
    return pd.DataFrame(
        {
            "worker": coded.workers[test.first[at]],
            "other": coded.workers[test.second[at]],
            "n_tasks": test.tasks[at].astype(np.int64),
            "agreements": test.agreed[at].astype(np.int64),
            "expected": test.expected[at],
            "p_value": corrected[chosen],
        }
    )


@dataclass(frozen=True, eq=False)
class _Meetings:
    """Outvoted answers of a, added up over tasks that b answered too; one entry for each (a, b, label)."""

    first: IntArray
    second: IntArray
    label: IntArray
    tasks: FloatArray
    agreed: FloatArray
    expected: FloatArray


def _meetings(reports: Reports) -> _Meetings:
    """Go through the tasks; memory grows with the workers who meet, not with all pairs of workers."""
    shared = SharedReports(reports)
    n_workers, k = len(reports.workers), len(reports.labels)
    own, rival, _ = rival_votes(shared)
    chance = (own - 1) / shared.n_peers
    order = np.argsort(shared.task, kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(shared.task, minlength=len(reports.tasks)))])
    outvoted = order[((own > 1) & (rival > own - 1))[order]]
    keys, sums = [np.empty(0, dtype=np.int64)], [np.empty((3, 0))]
    for a, b in _pairs(outvoted, shared.task, starts, order):
        key = (shared.worker[a] * n_workers + shared.worker[b]) * k + shared.own[a]
        found, place = np.unique(key, return_inverse=True)
        same = shared.own[a] == shared.own[b]
        columns = (np.ones(len(key)), same.astype(np.float64), chance[a])
        sums.append(np.stack([_totals(place, column) for column in columns]))
        keys.append(found)
    found, place = np.unique(np.concatenate(keys), return_inverse=True)
    totals = [_totals(place, row) for row in np.concatenate(sums, axis=1)]
    pair = found // k
    return _Meetings(pair // n_workers, pair % n_workers, found % k, *totals)


def _pairs(
    outvoted: IntArray, task: IntArray, starts: IntArray, order: IntArray
) -> Iterator[tuple[IntArray, IntArray]]:
    """Pair each outvoted report with the others on its task, some ``CHUNK`` pairs at a time."""
    size = np.diff(starts)[task[outvoted]]
    ends = np.concatenate([[0], np.cumsum(size)])
    begin = 0
    while begin < len(outvoted):
        stop = max(begin + 1, int(np.searchsorted(ends, ends[begin] + CHUNK, side="right")) - 1)
        widths = size[begin:stop]
        a = np.repeat(outvoted[begin:stop], widths)
        offset = np.arange(len(a)) - np.repeat(ends[begin:stop] - ends[begin], widths)
        b = order[starts[task[a]] + offset]
        other = a != b
        yield a[other], b[other]
        begin = stop


@dataclass(frozen=True, eq=False)
class _Tests:
    """One entry for each ordered pair (first, second) that met."""

    first: IntArray
    second: IntArray
    tasks: FloatArray
    agreed: FloatArray
    expected: FloatArray
    p_value: FloatArray


def _test(met: _Meetings, n_workers: int, k: int) -> _Tests:
    """Compare the agreements of each ordered pair with those of the second worker and everybody else."""
    cell = met.second * k + met.label
    _, place = np.unique(cell, return_inverse=True)
    agreed = _totals(place, met.agreed)[place] - met.agreed + PRIOR_EVENTS
    expected = _totals(place, met.expected)[place] - met.expected + PRIOR_EVENTS
    tasks = _totals(place, met.tasks)[place] - met.tasks
    # Whoever always says the same joins every time, however few others do: the share of tasks matters too.
    share = (agreed - PRIOR_EVENTS) / np.maximum(tasks, 1.0)
    mean = np.maximum(agreed / expected * met.expected, share * met.tasks)
    # Given the rate the count is Poisson; the rate itself has a gamma distribution of shape `agreed`.
    extra = mean**2 / agreed
    pairs, place = np.unique(met.first * n_workers + met.second, return_inverse=True)
    tasks, count, mean, extra = (_totals(place, column) for column in (met.tasks, met.agreed, mean, extra))
    p = np.asarray(stats.nbinom.sf(count - 1, mean**2 / extra, mean / (mean + extra)))
    return _Tests(pairs // n_workers, pairs % n_workers, tasks, count, mean, p)


def _totals(place: IntArray, values: FloatArray) -> FloatArray:
    """Sum the values that share a place."""
    return np.bincount(place, weights=values).astype(np.float64, copy=False)
