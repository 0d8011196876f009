"""What every loader returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

    from peerloss._validation import IntArray


@dataclass(frozen=True)
class Dataset:
    """A classification data set with clean labels."""

    name: str
    X: pd.DataFrame
    """Raw features, one row an example; text columns stay text, missing values are NaN."""
    y: IntArray
    """Clean labels 0..K-1."""
    feature_names: tuple[str, ...]
    target_names: tuple[str, ...]
    citation: str
    notes: tuple[str, ...] = ()
    """What somebody who compares numbers should know: edits, repeats, reversals."""
