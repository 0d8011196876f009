"""Which reports are paid if some workers copy: every answer once, and copiers not for what they copied."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from peerloss.crowd._copies import copy_groups, shares_of_answers

if TYPE_CHECKING:
    from peerloss._validation import BoolArray, FloatArray, IntArray
    from peerloss.crowd._copies import CopyGroups
    from peerloss.peer_prediction import Reports

#: Fewer answers of a worker's own do not show whether it looks at the tasks.
MIN_OWN_ANSWERS = 10
#: A worker is the copier of a pair if its own answers agree less than half as well with outsiders as those of
#: the other worker, by this many standard errors (one-sided level .01).
DECISIVE = 2.33


def paid_shares(reports: Reports) -> FloatArray:
    """Return the share of each report that is paid: 1, unless others of its group gave the same answer.

    If it is known who copied (:func:`find_imitators`), the source is paid in full and the copier nothing. If
    not, the answer is paid once and divided equally. Different answers are always paid.
    """
    groups = copy_groups(reports)
    if groups is None:
        return np.ones(len(reports))
    return shares_of_answers(reports, groups.of_worker, find_imitators(reports, groups))


def find_imitators(reports: Reports, groups: CopyGroups) -> BoolArray:
    """Return which workers copied, as far as their own answers show it.

    A worker's own answers are those that nobody else in its group gave. A worker who copies because it does
    not look at the tasks gives bad answers of its own: they agree with workers outside the group no better
    than by chance. An honest worker's own answers agree better. Of each pair, the worker whose own answers
    agree less than half as well is the copier, if the difference is significant. Workers with few answers of
    their own, for example because all are the same, cannot be judged.
    """
    found: BoolArray = np.zeros(len(reports.workers), dtype=bool)
    for group in np.unique(groups.of_worker[groups.pairs[:, 0]]):
        members = groups.of_worker == group
        count, mean, error = _own_answers(reports, members)
        for pair in groups.pairs[members[groups.pairs[:, 0]]]:
            for worker, other in (pair, pair[::-1]):
                if min(count[worker], count[other]) < MIN_OWN_ANSWERS:
                    continue
                gap = mean[other] / 2.0 - mean[worker]
                # If one is right where they differ, the other is wrong, so the errors add up.
                found[worker] |= bool(gap > DECISIVE * (error[worker] + error[other] / 2.0))
    return found


def _own_answers(reports: Reports, members: BoolArray) -> tuple[IntArray, FloatArray, FloatArray]:
    """Return, for each worker, the number of own answers, their mean agreement with outsiders and its error.

    The agreement is the share of outsiders on the task who gave the same label, minus the mean share of that
    label over all tasks: 0 in expectation for a worker who does not look at the tasks.
    """
    k, n_tasks, n_workers = len(reports.labels), len(reports.tasks), len(members)
    inside = members[reports.worker_codes]
    answers, place = np.unique(reports.task_codes * k + reports.label_codes, return_inverse=True)
    votes = np.bincount(place[~inside], minlength=len(answers))
    same = np.bincount(place[inside], minlength=len(answers))
    outsiders = np.bincount(reports.task_codes[~inside], minlength=n_tasks)
    share = votes / np.maximum(outsiders[answers // k], 1)
    usual = np.bincount(answers % k, weights=share, minlength=k) / max(int((outsiders > 0).sum()), 1)
    own = inside & (same[place] == 1) & (outsiders[reports.task_codes] > 0)
    value = (share - usual[answers % k])[place[own]]
    worker = reports.worker_codes[own]
    count = np.bincount(worker, minlength=n_workers)
    usable = np.maximum(count, 1)
    mean = np.bincount(worker, weights=value, minlength=n_workers) / usable
    square = np.bincount(worker, weights=(value - mean[worker]) ** 2, minlength=n_workers)
    return count, mean, np.sqrt(square / usable / np.maximum(count - 1, 1))
