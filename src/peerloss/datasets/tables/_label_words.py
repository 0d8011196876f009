"""Labels such as "NA" and "None": a class if they are frequent, else a missing label."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pandas as pd

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Words that pandas reads as missing, but that are also names of classes: North America, no defect.
WORDS = ("NA", "N/A", "n/a", "None", "NULL", "null")
#: What programs write for missing values, and nobody as a class.
MARKERS = (
    "",
    "#N/A",
    "#N/A N/A",
    "#NA",
    "-1.#IND",
    "-1.#QNAN",
    "-NaN",
    "-nan",
    "1.#IND",
    "1.#QNAN",
    "<NA>",
    "NaN",
    "nan",
)
#: A word is a class if at least this share of the rows, and this many of them, have it.
CLASS_SHARE, CLASS_ROWS = 0.05, 10


class WordUse(NamedTuple):
    """How a word such as NA was read in a column of labels."""

    column: str
    word: str
    rows: int
    is_class: bool


def read_label_words(
    column: pd.Series, raw: pd.Series, *, missing: Iterable[str]
) -> tuple[pd.Series, list[WordUse]]:
    """Return a column of labels in which frequent words such as NA are labels.

    Parameters
    ----------
    column
        The labels, with NaN for every word that may mean a missing value.
    raw
        The same cells as text; empty cells may be NaN.
    missing
        Words that the user declared to be missing.
    """
    excluded = {*missing, *MARKERS}
    counts = raw[raw.isin([word for word in WORDS if word not in excluded])].value_counts()
    is_text = not pd.api.types.is_numeric_dtype(column) and bool(column.notna().any())
    frequent = [w for w, n in counts.items() if is_text and n >= max(CLASS_ROWS, CLASS_SHARE * len(raw))]
    uses = [WordUse(str(column.name), str(w), int(n), w in frequent) for w, n in counts.items()]
    kept = column.astype(object).where(~raw.isin(frequent), raw.astype(object)) if frequent else column
    return kept.astype(column.dtype), uses
