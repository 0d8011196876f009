"""Known labels of some tasks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    from peerloss._validation import IntArray
    from peerloss.peer_prediction import Reports

#: What ``gold`` may be: a Series whose index holds the tasks, or a dictionary.
GoldLike = pd.Series | Mapping[Any, Any]


def gold_codes(gold: GoldLike | None, reports: Reports) -> IntArray | None:
    """Return the position of each task's gold label among the labels, −1 without one.

    Parameters
    ----------
    gold
        The known labels of some tasks, by task. Missing labels are ignored.
    reports
        The reports, which name the tasks and the labels.

    Raises
    ------
    InvalidInputError
        If a task has two gold labels or no report names it, or no worker gave a gold label.
    """
    if gold is None:
        return None
    if not isinstance(gold, pd.Series | Mapping):
        raise InvalidInputError(
            "`gold` must be a Series whose index holds the tasks, or a dictionary of task and label; got "
            f"{type(gold).__name__}. For a frame use `frame.set_index('task')['label']`."
        )
    known = pd.Series(gold, dtype=None if len(gold) else object).dropna()
    if not known.index.is_unique:
        twice = known.index[known.index.duplicated()].tolist()[0]
        raise InvalidInputError(
            f"`gold` must have one label per task; task {twice!r} has several. Drop the others with "
            "`gold[~gold.index.duplicated()]`."
        )
    tasks = pd.Index(reports.tasks)
    place = tasks.get_indexer(known.index)
    if (place < 0).any():
        raise InvalidInputError(
            f"`gold` must name tasks of the reports, such as {tasks.tolist()[0]!r}; "
            f"{known.index[place < 0].tolist()[0]!r} is not one. Check that the names have the same type, or "
            "keep those of the reports: `gold[gold.index.isin(reports['task'])]`."
        )
    label = pd.Index(reports.labels).get_indexer(pd.Index(known))
    if (label < 0).any():
        raise InvalidInputError(
            f"`gold` must hold labels that a worker gave, {reports.labels.tolist()[:10]!r}; "
            f"{known[label < 0].tolist()[0]!r} is not one. Check the spelling, or list all labels with "
            "`Reports.from_table(table, labels=[...])`."
        )
    codes = np.full(len(reports.tasks), -1, dtype=np.int64)
    codes[place] = label
    return codes
