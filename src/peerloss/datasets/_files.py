"""Anybody's table as a data set: one column holds the labels, the others are features."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from peerloss.datasets._dataset import Dataset
from peerloss.datasets._kinds import quoted, require_columns
from peerloss.datasets._tables import read_table
from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    from pathlib import Path


def load_file(path: Path, *, target: str | None) -> Dataset:
    """Read a CSV, Parquet or ARFF file; ``target`` is the column of the labels."""
    return as_dataset(read_table(path), target, name=path.name, where=str(path), citation=f"The file {path}.")


def as_dataset(
    table: pd.DataFrame,
    target: str | None,
    *,
    name: str,
    where: str,
    citation: str,
    notes: tuple[str, ...] = (),
) -> Dataset:
    """Take the labels out of a table and code them 0..K-1 in sorted order."""
    X, labels = split_target(table, target, where=where)
    codes, values = pd.factorize(labels, sort=True)
    return Dataset(
        name=name,
        X=X,
        y=codes.astype(np.int64),
        feature_names=tuple(X.columns),
        target_names=tuple(f"{value:g}" if isinstance(value, float) else str(value) for value in values),
        citation=citation,
        notes=notes,
    )


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
        The table's name in messages.

    Raises
    ------
    InvalidInputError
        If the column is not there (its name may be ``None``), some labels are missing, all are the same, or
        they are fractions; or if no other column is left.
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
    _check_classes(labels, where)
    if table.shape[1] == 1:
        raise InvalidInputError(f"{where} has no column besides the target {target!r}; add features.")
    return table.drop(columns=target), labels


def _check_classes(labels: pd.Series, where: str) -> None:
    values = labels.unique()
    if len(values) < 2:
        raise InvalidInputError(
            f"{where}: column {labels.name!r} must hold at least two classes; every row says {values[0]!r}."
        )
    if pd.api.types.is_float_dtype(labels) and (labels % 1 != 0).any():
        fraction = labels[labels % 1 != 0].iloc[0]
        raise InvalidInputError(
            f"{where}: column {labels.name!r} must hold classes; got the number {fraction:g}. "
            "Turn a measured quantity into classes first, for example above and below a threshold."
        )
