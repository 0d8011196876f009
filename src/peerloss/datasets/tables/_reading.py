"""What was read from a file: the table, and what was decided about its columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

    from peerloss.datasets.label_spelling import WordUse
    from peerloss.datasets.tables._number_text import ColumnNote


@dataclass(frozen=True, eq=False)
class Reading:
    """A table that was read from a file, and what was decided about its columns."""

    table: pd.DataFrame
    notes: tuple[ColumnNote, ...] = ()
    """Columns of text that were read as numbers, or that were probably meant as numbers."""
    words: tuple[WordUse, ...] = ()
    """Words such as NA in columns of labels, and whether they are a class."""
    decimal: str | None = None
    """The decimal mark that was named or recognised; ``None`` if there was nothing to recognise."""
