"""The rows and columns of a DataFrame of probabilities: in the order of the features and of the classes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Sequence


def check_row_order(index: pd.Index | None, pred_proba: pd.DataFrame) -> None:
    """Refuse probabilities whose index has the rows of ``X`` in another order: they are used by position."""
    if index is None or pred_proba.index.equals(index):
        return
    if len(index) == len(pred_proba) and index.isin(pred_proba.index).all():
        raise InvalidInputError(
            "`pred_proba` must have its rows in the order of `X`; its index has the same names in another "
            "order. Use pred_proba.loc[X.index], or pass an array."
        )


def in_class_order(
    table: Any, classes: Sequence[Any], *, name: str = "pred_proba", of: str = "classes of `labels`"
) -> Any:
    """Return probabilities with their columns in the order of the classes.

    Columns that are named after the classes, as values or as text, are put into their order. Columns
    0..K-1, columns with unrelated names, and arrays are used by position.

    Parameters
    ----------
    table
        Probabilities; only a DataFrame has names of columns.
    classes
        The classes, in the order that the result must have.
    name, of
        Name of the argument, and what its columns must be named after, for messages.

    Raises
    ------
    InvalidInputError
        If some columns are named after classes and others are not, or if a class has several columns.
    """
    if not isinstance(table, pd.DataFrame) or table.shape[1] != len(classes):  # refused later
        return table
    columns: list[Any] = table.columns.tolist()
    wanted = list(classes)
    if columns == wanted or _is_default(table.columns):
        return table
    for kind in (_itself, str):
        names, expected = [kind(column) for column in columns], [kind(label) for label in wanted]
        if len(set(expected)) == len(expected) and set(names) == set(expected):
            place = {column: position for position, column in enumerate(names)}
            return table.iloc[:, [place[label] for label in expected]]
    if columns == list(range(len(columns))):
        return table
    known = set(map(str, wanted))
    if known.isdisjoint(map(str, columns)):
        return table
    missing = known - set(map(str, columns))
    lacking = next((label for label in wanted if str(label) in missing), wanted[0])
    raise InvalidInputError(
        f"the columns of `{name}` must be named after the {of}, {wanted[:10]!r}; got {columns[:10]!r}, "
        f"without a column {lacking!r}. Rename the columns, or pass an array whose columns are in the order "
        "of the classes."
    )


def _is_default(columns: pd.Index) -> bool:
    """Return whether the columns are numbered as those of an array."""
    return isinstance(columns, pd.RangeIndex) and columns.start == 0 and columns.step == 1


def _itself(value: Any) -> Any:
    return value
