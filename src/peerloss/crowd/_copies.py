"""Find pairs of workers who share outvoted answers more often than independent workers would."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy import sparse, stats

from peerloss._holm import holm
from peerloss._validation import BoolArray, FloatArray, IntArray, check_in_range
from peerloss.peer_prediction.reports import as_reports
from peerloss.peer_prediction.shared_reports import SharedReports, split_by_cost

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from peerloss.peer_prediction import Reports
    from peerloss.peer_prediction.reports import ReportsLike

#: Number of expected agreements by which each worker's rate is shrunk towards the expected rate.
PRIOR_EVENTS = 1.0
#: Workers who agree on a smaller share of their common tasks are not treated as copies of each other.
COPIED_SHARE = 0.8


def find_copiers(
    reports: Reports | ReportsLike, *, false_positive_rate: float = 0.05, duplicates: str = "error"
) -> pd.DataFrame:
    """Find pairs of workers of whom one seems to copy the other, or both seem to copy a third.

    Good workers agree because they are right, so only outvoted answers count: worker a gives a label, at
    least one other worker gives the same label, but the others prefer another one. If c of the m other
    workers share the label, an average worker b is among them with probability c/m. How much more or less
    often b shares outvoted answers with this label, relative to that probability or per task, is estimated
    from all workers except a, and the larger of the two expectations is used. The number of shared answers is
    compared with a negative binomial distribution, which allows for the error of the estimated rate. A pair
    is listed only if the test rejects in both directions. Only tasks with four or more answers contribute.

    Parameters
    ----------
    reports
        :class:`~peerloss.peer_prediction.Reports`, or what ``Reports.from_table`` takes.
    false_positive_rate
        Probability that any pair of independent workers is listed (Holm's correction over all pairs).
    duplicates
        If a worker labelled a task more than once, raise an ``"error"``, or keep the ``"first"`` or the
        ``"last"`` of its labels in the order of the table.

    Returns
    -------
    A frame with one row per pair, the smallest p-value first: ``worker`` and ``other`` in order of first
    appearance; ``n_tasks``, on which the first worker was outvoted but not alone; ``agreements`` on these
    tasks; ``expected`` agreements of independent workers; ``p_value`` after correction. The reports do not
    show which of the two copied.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.integers(4, size=300)
    >>> crowd = {f"w{i}": np.where(rng.random(300) < 0.6, truth, rng.integers(4, size=300)) for i in range(8)}
    >>> crowd["copier"] = crowd["w3"]
    >>> table = [(task, name, label) for name, labels in crowd.items() for task, label in enumerate(labels)]
    >>> find_copiers(table)[["worker", "other"]].to_dict("list")
    {'worker': ['w3'], 'other': ['copier']}
    """
    rate = check_in_range(false_positive_rate, "false_positive_rate", 0.0, 1.0)
    coded = as_reports(reports, duplicates=duplicates)
    n = len(coded.workers)
    outvoted = _outvoted_answers(coded)
    first, second, tasks, agreed, expected, p_value = _test_pairs(outvoted, n, len(coded.labels))
    pair = np.minimum(first, second) * n + np.maximum(first, second)
    order = np.lexsort((first, pair))
    pairs, begin, sides = np.unique(pair[order], return_index=True, return_counts=True)
    larger = np.maximum.reduceat(p_value[order], begin) if len(pairs) else np.empty(0)
    corrected = holm(np.where(sides == 2, larger, 1.0))
    chosen = np.flatnonzero(corrected <= rate)
    chosen = chosen[np.argsort(corrected[chosen], kind="stable")]
    at = order[begin[chosen]]
    return pd.DataFrame(
        {
            "worker": coded.workers[first[at]],
            "other": coded.workers[second[at]],
            "n_tasks": tasks[at].astype(np.int64),
            "agreements": agreed[at].astype(np.int64),
            "expected": expected[at],
            "p_value": corrected[chosen],
        }
    )


def copy_weights(reports: Reports) -> FloatArray | None:
    """Return weights of the reports by which copies of one answer count once; ``None`` without copiers.

    If n workers of a group (:func:`copy_groups`) gave a task the same label, each of these reports has the
    weight 1/n.
    """
    groups = copy_groups(reports)
    return None if groups is None else shares_of_answers(reports, groups.of_worker)


@dataclass(frozen=True, eq=False)
class CopyGroups:
    """Workers whose answers are copies of each other."""

    of_worker: IntArray
    """The group of each worker; most workers are alone in theirs."""
    pairs: IntArray
    """(pairs, 2) the workers of each listed pair, as codes."""


def copy_groups(reports: Reports) -> CopyGroups | None:
    """Group the workers who copy from each other; ``None`` if nobody does.

    Workers whom :func:`find_copiers` lists together, directly or through others, form a group, if they agree
    on most of their common tasks: where copies outvote them, independent workers are listed too.
    """
    pairs = find_copiers(reports)
    names, n = pd.Index(reports.workers), len(reports.workers)
    first, second = names.get_indexer(pairs["worker"]), names.get_indexer(pairs["other"])
    alike = _agreement(reports, first, second) >= COPIED_SHARE
    if not alike.any():
        return None
    edges = first[alike], second[alike]
    graph = sparse.csr_array((np.ones(len(edges[0])), edges), shape=(n, n))
    _, group = sparse.csgraph.connected_components(graph, directed=False)
    return CopyGroups(group.astype(np.int64), np.stack(edges, axis=1))


def shares_of_answers(reports: Reports, group: IntArray, left_out: BoolArray | None = None) -> FloatArray:
    """Divide 1 equally among the reports of a group that gave a task the same label.

    Reports of workers who are ``left_out`` have no share, unless all reports of an answer are theirs.
    """
    answer = (reports.task_codes * (group.max() + 1) + group[reports.worker_codes]) * len(reports.labels)
    _, place, count = np.unique(answer + reports.label_codes, return_inverse=True, return_counts=True)
    if left_out is None:
        return 1.0 / count[place]
    counted = (~left_out[reports.worker_codes]).astype(np.float64)
    total = _totals(place, counted)[place]
    return np.where(total > 0, counted / np.maximum(total, 1.0), 1.0 / count[place])


def _agreement(reports: Reports, first: IntArray, second: IntArray) -> FloatArray:
    """Return the share of the common tasks on which two workers agree, for pairs of workers with one."""
    shape = len(reports.workers), len(reports.tasks)
    places = reports.worker_codes, reports.task_codes
    label = sparse.csr_array((reports.label_codes + 1, places), shape=shape)
    answered = sparse.csr_array((np.ones(len(reports.label_codes), dtype=np.int64), places), shape=shape)
    common: IntArray = (answered[first] * answered[second]).sum(axis=1)
    difference = label[first] * answered[second] - label[second] * answered[first]
    difference.eliminate_zeros()
    return np.asarray(1.0 - np.diff(difference.indptr) / np.maximum(common, 1))


@dataclass(frozen=True, eq=False)
class _OutvotedAnswers:
    """Outvoted answers of worker a, summed over tasks that b answered too; one entry per (a, b, label)."""

    first: IntArray
    second: IntArray
    label: IntArray
    tasks: FloatArray
    agreed: FloatArray
    expected: FloatArray


def _outvoted_answers(reports: Reports) -> _OutvotedAnswers:
    """Sum over the tasks; memory grows with the pairs of workers who share tasks, not with all pairs."""
    shared = SharedReports(reports)
    n_workers, k = len(reports.workers), len(reports.labels)
    own, rival, _ = shared.rival_votes()
    chance = (own - 1) / shared.n_peers
    order = np.argsort(shared.task, kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(shared.task, minlength=len(reports.tasks)))])
    outvoted = order[((own > 1) & (rival > own - 1))[order]]
    keys, sums = [np.empty(0, dtype=np.int64)], [np.empty((3, 0))]
    for a, b in _pair_with_others(outvoted, shared.task, starts, order):
        key = (shared.worker[a] * n_workers + shared.worker[b]) * k + shared.own[a]
        found, place = np.unique(key, return_inverse=True)
        same = shared.own[a] == shared.own[b]
        columns = (np.ones(len(key)), same.astype(np.float64), chance[a])
        sums.append(np.stack([_totals(place, column) for column in columns]))
        keys.append(found)
    found, place = np.unique(np.concatenate(keys), return_inverse=True)
    totals = [_totals(place, row) for row in np.concatenate(sums, axis=1)]
    pair = found // k
    return _OutvotedAnswers(pair // n_workers, pair % n_workers, found % k, *totals)


def _pair_with_others(
    outvoted: IntArray, task: IntArray, starts: IntArray, order: IntArray
) -> Iterator[tuple[IntArray, IntArray]]:
    """Pair each outvoted report with the others on its task, in parts that fit into memory."""
    size = np.diff(starts)[task[outvoted]]
    ends = np.concatenate([[0], np.cumsum(size)])
    for first, last in split_by_cost(ends):
        widths = size[first:last]
        a = np.repeat(outvoted[first:last], widths)
        offset = np.arange(len(a)) - np.repeat(ends[first:last] - ends[first], widths)
        b = order[starts[task[a]] + offset]
        other = a != b
        yield a[other], b[other]


def _test_pairs(answers: _OutvotedAnswers, n_workers: int, k: int) -> tuple[NDArray[Any], ...]:
    """Compare the agreements of each ordered pair with those of the second worker and all others.

    Return, for each ordered pair of workers who share tasks: the two workers, the number of tasks, the
    observed and expected agreements, and the p-value.
    """
    cell = answers.second * k + answers.label
    _, place = np.unique(cell, return_inverse=True)
    agreed = _totals(place, answers.agreed)[place] - answers.agreed + PRIOR_EVENTS
    expected = _totals(place, answers.expected)[place] - answers.expected + PRIOR_EVENTS
    tasks = _totals(place, answers.tasks)[place] - answers.tasks
    # A worker who always gives the same label agrees every time, however few others do, so the rate per task
    # matters too.
    share = (agreed - PRIOR_EVENTS) / np.maximum(tasks, 1.0)
    mean = np.maximum(agreed / expected * answers.expected, share * answers.tasks)
    # Given the rate, the count is Poisson distributed. The rate has a gamma distribution of shape `agreed`.
    extra = mean**2 / agreed
    pairs, place = np.unique(answers.first * n_workers + answers.second, return_inverse=True)
    columns = (answers.tasks, answers.agreed, mean, extra)
    tasks, count, mean, extra = (_totals(place, column) for column in columns)
    p = np.asarray(stats.nbinom.sf(count - 1, mean**2 / extra, mean / (mean + extra)))
    return pairs // n_workers, pairs % n_workers, tasks, count, mean, p


def _totals(place: IntArray, values: FloatArray) -> FloatArray:
    """Sum the values that have the same place."""
    return np.bincount(place, weights=values).astype(np.float64, copy=False)
