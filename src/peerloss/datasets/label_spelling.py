"""Labels as people write them: spellings of one class, words such as NA, classes with very few rows."""

from __future__ import annotations

import re
import unicodedata
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from peerloss._validation import check_count, is_minus_one_missing
from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

#: Without a number of rows: classes with fewer rows than this are set aside, one row per fold of the audit.
MIN_CLASS_ROWS = 5
#: … if together they have at most this share of the rows.
MAX_RARE_SHARE = 0.05
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
#: Zero-width space, marks of the direction of writing, word joiner, byte order mark, soft hyphen.
_INVISIBLE = "\u200b\u200e\u200f\u2060\ufeff\u00ad"
#: A whole number with a decimal point, which is another spelling of the number without it.
_WHOLE = re.compile(r"(-?(?:0|[1-9][0-9]*))\.0+")
_DELETED = dict.fromkeys(map(ord, _INVISIBLE))
#: A word is a class if at least this share of the rows, and this many of them, have it.
CLASS_SHARE, CLASS_ROWS = 0.05, 10


@dataclass(frozen=True)
class Spellings:
    """Labels that look like one class."""

    tidy: str
    """The most frequent spelling, without spaces and invisible characters around it."""
    rows: dict[str, int]
    """Spelling → number of rows, the most frequent first."""

    def __str__(self) -> str:
        text = f"{', '.join(map(repr, self.rows))} look like one class"
        distinct = {unicodedata.normalize("NFC", spelling) for spelling in self.rows}
        alike = " (some look the same, but are stored as different characters)"
        return text + (alike if len(distinct) < len(self.rows) else "")


def find_spellings(labels: Any) -> list[Spellings]:
    """Return groups of labels that differ only in case, spaces, hyphens, underscores or Unicode forms.

    Invisible characters, such as a zero-width space, count as spaces. ``1`` and ``1.0`` are one class, too: a
    column of labels is text if one of them is not a number.

    Parameters
    ----------
    labels
        Labels of any type, one per row; only text is compared, and missing labels are left out.

    Examples
    --------
    >>> print(*find_spellings(["Yes", "yes ", "Yes", "YES", "no"]))
    'Yes', 'YES', 'yes ' look like one class
    """
    counts = pd.Series(labels, dtype=object).dropna().value_counts()
    texts = [(label, int(rows)) for label, rows in counts.items() if isinstance(label, str)]
    groups: dict[str, dict[str, int]] = {}
    for label, rows in sorted(texts, key=lambda text: (-text[1], text[0])):  # ties do not depend on the order
        groups.setdefault(_key(label), {})[label] = rows
    return [Spellings(_tidy(next(iter(rows))), rows) for rows in groups.values() if len(rows) > 1]


def tidy_labels(labels: Any) -> Any:
    """Return the labels with one spelling per class, the most frequent one, without spaces around it.

    Spellings that differ only in case, spaces, hyphens, underscores or Unicode forms are one class, and so
    are ``1`` and ``1.0``. Missing labels and labels that are not text stay as they are.

    Parameters
    ----------
    labels
        A pandas Series, or anything that makes one: one label per row.

    Returns
    -------
    pandas.Series
        With the index and the name of ``labels``.

    Examples
    --------
    >>> tidy_labels(["Yes", "yes ", "Yes", " no"]).tolist()
    ['Yes', 'Yes', 'Yes', 'no']
    """
    given = labels if isinstance(labels, pd.Series) else pd.Series(labels, dtype=object)
    return respell(given, tidy_spellings(given))


def tidy_spellings(labels: Any) -> dict[str, str]:
    """Return spelling → tidy spelling, for each label that :func:`tidy_labels` changes."""
    given = pd.Series(labels, dtype=object).dropna()
    changes = {text: _tidy(text) for text in given.unique() if isinstance(text, str)}
    changes |= {spelling: group.tidy for group in find_spellings(given) for spelling in group.rows}
    return {spelling: tidy for spelling, tidy in changes.items() if spelling != tidy}


def describe_change(old: str, new: str) -> str:
    """Return a sentence without its full stop: how a spelling is read.

    >>> describe_change("yes ", "yes")
    "'yes ' is read as 'yes'"
    """
    alike = unicodedata.normalize("NFC", old) == unicodedata.normalize("NFC", new)
    how = ", which looks the same but is stored as different characters" if alike else ""
    return f"{old!r} is read as {new!r}{how}"


def without_label(column: pd.Series, label: str, *, tidy: bool = False) -> pd.Series:
    """Return a column of labels in which ``label`` is a missing label.

    In a column of numbers it is compared as a number, because 1 is 1.0 there if a label is missing. In a
    column of text, ``tidy`` includes the spellings that :func:`tidy_labels` merges with it.
    """
    is_label = column.astype(str) == label
    if column.dtype.kind in "iu":
        column = column.convert_dtypes()  # with a missing value, large integers would be inexact floats
    if column.dtype.kind in "iuf":
        is_label |= column.isin(_numbers_of(label))
    elif tidy:
        key = _key(label)
        texts = (text for text in column.dropna().unique() if isinstance(text, str))
        is_label |= column.isin([text for text in texts if _key(text) == key])
    return column.mask(is_label)


def _numbers_of(text: str) -> list[int | float]:
    """Return the number that a text is, if it is one."""
    for kind in (int, float):  # a large integer is not exact as a float
        with suppress(ValueError):
            return [kind(text)]
    return []


def respell(labels: pd.Series, changes: Mapping[str, str]) -> pd.Series:
    """Return the labels with some of them replaced; all others stay as they are."""
    if not changes:
        return labels
    return labels.astype(object).map(lambda label: changes.get(label, label), na_action="ignore")


def find_rare_labels(labels: pd.Series, min_rows: int | None = None) -> dict[Any, int]:
    """Return the classes that have too few rows to be learned, with their numbers of rows.

    Parameters
    ----------
    labels
        One label per row; missing labels are left out.
    min_rows
        Classes with fewer rows are rare. If ``None``, the number is 5, one row for each fold of an audit, but
        nothing is rare if the rows of all such classes are more than 5 % of the table, or if fewer than two
        classes would remain.

    Raises
    ------
    InvalidInputError
        If fewer than two classes have ``min_rows`` rows.
    """
    counts = labels.dropna().value_counts()
    least = MIN_CLASS_ROWS if min_rows is None else check_count(min_rows, "min_class_rows")
    rare = counts[counts < least]
    left = len(counts) - len(rare)
    if min_rows is None:
        if left < 2 or rare.sum() > MAX_RARE_SHARE * counts.sum():
            return {}
    elif left < 2 <= len(counts):
        largest = ", ".join(f"{label!r} with {rows:,}" for label, rows in counts.head(3).items())
        raise InvalidInputError(
            f"`min_class_rows` must leave at least two classes; with {least} rows, {left} "
            f"{'is' if left == 1 else 'are'} left. The largest classes are {largest}. Use a smaller number."
        )
    return {label: int(rows) for label, rows in rare.items()}


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
    named = [text for text in (*WORDS, *MARKERS) if text and text not in set(missing)]
    counts = raw[raw.isin(named)].value_counts()
    is_text = not pd.api.types.is_numeric_dtype(column) and bool(column.notna().any())
    least = max(CLASS_ROWS, CLASS_SHARE * len(raw))
    frequent = [w for w, n in counts.items() if is_text and w in WORDS and n >= least]
    uses = [WordUse(str(column.name), str(w), int(n), w in frequent) for w, n in counts.items()]
    kept = column.astype(object).where(~raw.isin(frequent), raw.astype(object)) if frequent else column
    return kept.astype(column.dtype), uses


class PreparedLabels(NamedTuple):
    """Labels after :func:`prepare_labels`, and what was found and done."""

    labels: pd.DataFrame
    """The columns of labels; labels that are missing or set aside are NaN."""
    spellings: list[Spellings]
    """Labels that look like one class, before they were merged."""
    tidied: dict[str, str]
    """Spelling → the label that replaces it."""
    rare: dict[Any, int]
    """Classes that were set aside, with their numbers of rows."""
    minus_one: int = 0
    """Number of labels -1 that were taken as missing."""


def prepare_labels(
    labels: pd.DataFrame,
    *,
    tidy: bool = False,
    min_class_rows: int | None = None,
    keep_rare: bool = False,
    minus_one: bool = False,
) -> PreparedLabels:
    """Find different spellings of one class, merge them if ``tidy``, and set rare classes aside.

    Parameters
    ----------
    labels
        One column, or one per annotator.
    tidy
        Whether to merge spellings as :func:`tidy_labels` does, in all columns alike.
    min_class_rows
        As ``min_rows`` of :func:`find_rare_labels`. Only a single column has rare classes.
    keep_rare
        Whether to keep rare classes if ``min_class_rows`` is ``None``.
    minus_one
        Whether -1 is a missing label if all other labels are non-negative integers, as in the classifiers.
    """
    found = 0
    everything = pd.Series(labels.to_numpy(dtype=object).ravel())
    # The distinct labels, because an array of text is as wide as its longest label.
    if minus_one and is_minus_one_missing(np.array(everything.dropna().unique().tolist())):
        found = int((everything == -1).sum())
        labels = labels.mask(labels == -1)
    spellings, tidied = find_spellings(everything), tidy_spellings(everything) if tidy else {}
    labels = labels.apply(respell, changes=tidied)
    rare: dict[Any, int] = {}
    if labels.shape[1] == 1 and not (keep_rare and min_class_rows is None):
        rare = find_rare_labels(labels.iloc[:, 0], min_class_rows)
        labels = labels.mask(labels.isin(list(rare))) if rare else labels
    return PreparedLabels(labels, spellings, tidied, rare, found)


def _tidy(label: str) -> str:
    return _trimmed(label) or label  # an empty label would be a missing one in a file


def _trimmed(label: str) -> str:
    """Return a label without spaces and invisible characters around it."""
    shorter = label.strip().strip(_INVISIBLE)
    return shorter if shorter == label else _trimmed(shorter)


def _key(label: str) -> str:
    text = _trimmed(unicodedata.normalize("NFKC", label)).lower().translate(_DELETED)
    if whole := _WHOLE.fullmatch(text):
        return whole[1]
    # Not at the ends: A- and A+ are different.
    return re.sub(r"(?<=[^\W_])[\s_-]+(?=[^\W_])", " ", text)
