"""Decide which labels a column of a table holds, for every command and loader."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from peerloss._validation import check_exact_labels
from peerloss.datasets.tables import quoted, require_columns
from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    import pandas as pd


def split_target(
    table: pd.DataFrame, target: str | None, *, where: str = "The table"
) -> tuple[pd.DataFrame, pd.Series]:
    """Return features and labels, after refusing labels that nothing can be learned from.

    Parameters
    ----------
    table
        Features and one column of labels.
    target
        The name of that column.
    where
        The name of the table in messages.

    Raises
    ------
    InvalidInputError
        If the column does not exist (or ``target`` is ``None``), labels are missing, fractional or all the
        same, or there is no other column.
    """
    if target is None:
        raise InvalidInputError(
            f"`target` must name the column of the labels; the columns of {where} are {quoted(table)}."
        )
    require_columns(table.columns, [target], where=where)
    labels = table[target]
    missing = np.flatnonzero(labels.isna())
    if len(missing):
        raise InvalidInputError(
            f"{where}: {len(missing)} of {len(labels)} labels in column {target!r} are missing, the first in "
            f"row {missing[0] + 1} below the header. Remove those rows, or predict them after training."
        )
    check_label_column(labels, where=where)
    values = labels.unique().tolist()
    if len(values) < 2:
        found = f"every row has the label {values[0]!r}" if values else "no row has a label"
        raise InvalidInputError(f"{where}: column {target!r} must hold at least two classes; {found}.")
    if table.shape[1] == 1:
        raise InvalidInputError(f"{where} has no column besides the target {target!r}; add features.")
    return table.drop(columns=target), labels


def check_label_column(labels: pd.Series, *, where: str = "The table") -> None:
    """Refuse a column of labels that holds measurements instead of classes. Missing labels are ignored.

    Parameters
    ----------
    labels
        Numbers or text; the name of the column appears in messages.
    where
        The name of the table in messages.

    Raises
    ------
    InvalidInputError
        If a number is fractional, infinite, or too large to be exact as a float.
    """
    if labels.dtype.kind not in "iuf":
        return
    known = labels.dropna()
    check_exact_labels(known.to_numpy(), f"{where}: column {labels.name!r}")
    fractions = known[known != known.round()]
    if len(fractions):
        raise InvalidInputError(
            f"{where}: column {labels.name!r} must hold classes; it holds measurements such as "
            f"{fractions.iloc[0]:g}. Convert them to classes first, for example above and below a threshold, "
            "or choose another column."
        )
