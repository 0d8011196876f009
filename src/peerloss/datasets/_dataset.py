"""The record that :func:`~peerloss.datasets.load_dataset` returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from peerloss.datasets._label_column import split_target

if TYPE_CHECKING:
    from peerloss._validation import IntArray


@dataclass(frozen=True)
class Dataset:
    """A classification data set with clean labels."""

    name: str
    X: pd.DataFrame
    """Raw features, one row per example. Text columns stay text; missing values are NaN."""
    y: IntArray
    """Clean labels 0..K-1."""
    feature_names: tuple[str, ...]
    target_names: tuple[str, ...]
    citation: str
    notes: tuple[str, ...] = ()
    """Known edits, repeated rows and reversed labels, which matter when results are compared."""


def as_dataset(
    table: pd.DataFrame,
    target: str | None,
    *,
    name: str,
    where: str,
    citation: str,
    notes: tuple[str, ...] = (),
) -> Dataset:
    """Split the labels off a table and code them 0..K-1 in sorted order."""
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
