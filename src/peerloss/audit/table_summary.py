"""The summary of a table before anything is trained: columns, classes, and what is odd about them."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from peerloss._infinite_features import check_no_infinity
from peerloss._pages import counted
from peerloss.datasets import check_label_column, require_columns
from peerloss.datasets.label_spelling import (
    PreparedLabels,
    describe_change,
    prepare_labels,
    without_label,
)
from peerloss.datasets.tables import Reading, ReadOptions, read_with_notes
from peerloss.datasets.tables.column_use import describe_columns
from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from peerloss.datasets import Spellings
    from peerloss.datasets.tables import WordUse

#: Columns and classes that are listed as text; ``as_dict`` has all of them.
MAX_COLUMNS, MAX_CLASSES = 30, 20
#: A class with a larger share of the labels is mentioned.
IMBALANCE = 0.9
#: A larger number of classes, as a share of the rows, is serious.
MANY_CLASSES = 0.5
#: A larger share of rows that contradict others is serious.
CONTRADICTIONS = 0.1


@dataclass(frozen=True)
class ColumnSummary:
    """How a column was read, and whether it is used."""

    name: str
    kind: str
    """``number``, ``category``, ``text``, or, if it is not used, ``date``, ``identifier``, ``constant`` or
    ``empty``, as :func:`~peerloss.estimators.describe_columns` returns it."""
    used: bool
    why: str = ""
    """How it is used, or why it is not."""
    note: str = ""
    """How it was read, or how it should be: a clause whose subject is the column."""

    @property
    def is_odd(self) -> bool:
        """Whether the column is not used, and not because its numbers were read as text."""
        return not self.used and not self.note.startswith("is text because")


@dataclass(frozen=True, eq=False)
class TableSummary:
    """What a table contains, and what will be done with it; made by :func:`describe_table`.

    ``str`` gives the summary as text. Options are named as on the command line, ``--na-values`` for the field
    ``na_values`` of :class:`~peerloss.datasets.ReadOptions`.
    """

    rows: int
    columns: tuple[ColumnSummary, ...]
    """The features."""
    classes: dict[str, int]
    """Label → number of rows, of the labels in use, the most frequent first."""
    unlabelled: int
    """Number of rows without a label."""
    rare: dict[str, int] = field(default_factory=dict)
    """Classes that are set aside because they have too few rows → number of rows."""
    minus_one: int = 0
    """Number of labels -1 that are taken as missing."""
    spellings: tuple[Spellings, ...] = ()
    """Labels that look like one class."""
    tidied: dict[str, str] = field(default_factory=dict)
    """Spelling of a label → the one that replaces it."""
    words: tuple[WordUse, ...] = ()
    """Labels such as NA, and whether they are a class."""
    contradictions: int = 0
    """Number of rows that equal a row with another label, in all columns in use."""
    decimal: str | None = None
    """The decimal mark that was named or recognised, if any."""
    learns: bool = True
    """Whether a model learns from the columns; probabilities or features may be given instead."""

    @property
    def labelled(self) -> int:
        """The number of rows in use."""
        return self.rows - self.unlabelled - sum(self.rare.values())

    @property
    def serious(self) -> tuple[str, ...]:
        """What should be looked at before anything is trained."""
        found = (
            [] if self.tidied else [f"{group}; use `--tidy-labels` to merge them" for group in self.spellings]
        )
        if self.minus_one and set(self.classes) == {"0", "1"}:  # -1, 0 and 1 are often three classes
            found.append(_on_minus_one(self.minus_one))
        if len(self.classes) > max(MAX_CLASSES, MANY_CLASSES * self.labelled):
            found.append(
                f"{self.labelled:,} rows have {len(self.classes):,} different labels; check that this column "
                "holds classes"
            )
        if self.contradictions > CONTRADICTIONS * self.labelled:
            found.append(self._on_contradictions())
        return tuple(found)

    @property
    def notes(self) -> tuple[str, ...]:
        """Everything that is worth a sentence, as sentences; those of ``serious`` are included."""
        found = []
        if self.learns:
            # A note on how a column should be read says why it is not used, too.
            found = [f"Column {c.name!r} is not used: it {c.why}" for c in self.columns if c.is_odd]
        if self.decimal == ",":
            found.append("Numbers are read with decimal commas")
        found += [f"Column {c.name!r} {c.note}" for c in self.columns if c.note]
        found += [describe_change(old, new) for old, new in self.tidied.items()]
        found += self.serious
        if self.minus_one and _on_minus_one(self.minus_one) not in self.serious:
            found.append(_on_minus_one(self.minus_one))
        if 0 < self.contradictions <= CONTRADICTIONS * self.labelled:
            found.append(self._on_contradictions())
        found += [_on_word(word) for word in self.words]
        found += [
            f"{counted(n, 'row')} {'has' if n == 1 else 'have'} the label {name!r}, too few to learn from, "
            f"and {'is' if n == 1 else 'are'} left out; use `--min-class-rows {n}` to keep "
            f"{'it' if n == 1 else 'them'}"
            for name, n in self.rare.items()
        ]
        if self.unlabelled:
            found.append(f"Rows without a label, left out: {self.unlabelled:,}")
        largest = next(iter(self.classes), None)
        if largest is not None and self.classes[largest] > IMBALANCE * sum(self.classes.values()):
            share = self.classes[largest] / sum(self.classes.values())
            found.append(f"The label {largest!r} has {share:.1%} of the rows")
        return tuple(f"{text}." for text in found)

    @property
    def plan(self) -> str:
        """What will be used."""
        used = f"{sum(column.used for column in self.columns):,} of {len(self.columns):,} columns"
        if not self.learns:
            used = "no columns"
        classes = counted(len(self.classes), "class", "classes")
        return f"In use: {self.labelled:,} of {counted(self.rows, 'row')}, {used}, {classes}."

    def as_dict(self) -> dict[str, Any]:
        """Return the summary as plain numbers, text and lists, for JSON."""
        return {
            "rows": self.rows,
            "rows_in_use": self.labelled,
            "rows_without_label": self.unlabelled,
            "minus_one_taken_as_missing": self.minus_one,
            "columns": [asdict(column) for column in self.columns],
            "classes": self.classes,
            "spellings": [group.rows for group in self.spellings],
            "tidied": self.tidied,
            "set_aside": self.rare,
            "missing_words": [word._asdict() for word in self.words],
            "contradicting_rows": self.contradictions,
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        shown = self.columns if len(self.columns) <= MAX_COLUMNS else self._interesting()
        width = max([len(repr(column.name)) for column in shown], default=0)
        lines = [
            f"  {column.name!r:<{width}}  {column.kind:<10}  {'used' if column.used else 'not used'}"
            if self.learns
            else f"  {column.name!r:<{width}}  {column.kind}"
            for column in shown
        ]
        if len(shown) < len(self.columns):
            rest = len(self.columns) - len(shown)
            lines.append(f"  and {rest:,} more column{'s' * (rest != 1)}")
        return "\n".join(["Columns:", *lines, f"Labels: {self._class_list()}.", *self.notes, self.plan])

    def _interesting(self) -> tuple[ColumnSummary, ...]:
        """Return the columns to list if there are many: first those that need a word."""
        order = sorted(self.columns, key=lambda column: column.used and not column.note)
        chosen = set(order[:MAX_COLUMNS])
        return tuple(column for column in self.columns if column in chosen)

    def _class_list(self) -> str:
        total = sum(self.classes.values())
        listed = list(self.classes.items())[:MAX_CLASSES]
        text = ", ".join(f"{name!r} {rows:,} ({rows / total:.1%})" for name, rows in listed)
        rest = len(self.classes) - len(listed)
        return f"{text} and {rest:,} more" if rest else text or "none"

    def _on_contradictions(self) -> str:
        share = self.contradictions / self.labelled
        return f"{counted(self.contradictions, 'row')} ({share:.1%}) equal a row that has another label"


def _on_minus_one(labels: int) -> str:
    verb = "is" if labels == 1 else "are"
    return f"{counted(labels, 'label')} -1 {verb} taken as missing; use `--abstain none` if -1 is a class"


def _on_word(word: WordUse) -> str:
    labels = f"{word.rows:,} label{'s' * (word.rows != 1)} {word.word!r}"
    if word.is_class:
        remedy = f"`--na-values {word.word}` makes them missing"
        return f"{labels} in column {word.column!r} are read as a class; {remedy}"
    return f"{labels} in column {word.column!r} {'is' if word.rows == 1 else 'are'} read as missing"


def describe_table(
    table: pd.DataFrame | str | Path,
    target: str,
    *,
    drop: Sequence[str] = (),
    options: ReadOptions | None = None,
    tidy: bool = False,
    min_class_rows: int | None = None,
    abstain: str | None = None,
) -> TableSummary:
    """Describe a table before anything is trained on it.

    The summary names each column, how it was read, whether it is used and why not; the classes with their
    numbers of rows; spellings that look like one class; missing labels; classes with too few rows; and rows
    that equal others with another label. ``peerloss audit`` and ``peerloss fit`` print it first.

    Parameters
    ----------
    table
        A DataFrame, or a file that :func:`peerloss.datasets.read_table` can read.
    target
        The column of the labels.
    drop
        Columns that are not features.
    options
        How to read the file.
    tidy
        Whether to merge spellings of one class, as :func:`peerloss.datasets.tidy_labels` does.
    min_class_rows
        Classes with fewer rows are set aside, as in :func:`peerloss.datasets.find_rare_labels`.
    abstain
        The label that means that a row has none. If ``None``, -1 has this meaning if all other labels are
        non-negative integers (but -1 and 1 alone are two classes). If every label is a class, pass a text
        that is not a label, such as ``"none"``.

    Raises
    ------
    InvalidInputError
        If the file cannot be read, a column does not exist, the labels are not classes, or a feature is
        infinite.

    Examples
    --------
    >>> table = pd.DataFrame({"size": [1.5, 2.5, 3.5, 4.5], "label": ["Yes", "yes ", "no", "no"]})
    >>> print(describe_table(table, "label"))
    Columns:
      'size'  number      used
    Labels: 'no' 2 (50.0%), 'Yes' 1 (25.0%), 'yes ' 1 (25.0%).
    'Yes', 'yes ' look like one class; use `--tidy-labels` to merge them.
    In use: 4 of 4 rows, 1 of 1 columns, 3 classes.
    """
    if isinstance(table, pd.DataFrame):
        reading, where = Reading(table), "The table"
    else:
        reading, where = read_with_notes(table, options=options, labels=[target]), str(table)
    require_columns(reading.table.columns, [target, *drop], where=where)
    labels = as_classes(reading.table[[target]], where=where, abstain=abstain, tidy=tidy)
    prepared = prepare_labels(labels, tidy=tidy, min_class_rows=min_class_rows, minus_one=abstain is None)
    X = reading.table.drop(columns=list({target, *drop}))
    return describe_rows(X, prepared, reading)


def as_classes(
    labels: pd.DataFrame, *, where: str, abstain: str | None = None, tidy: bool = False
) -> pd.DataFrame:
    """Return labels in the type that the file gives them: integers stay integers if some are missing.

    The label ``abstain`` becomes a missing one. In a column of numbers it is compared as a number, because 1
    is 1.0 there if a label is missing. With ``tidy``, so do its other spellings.
    """
    if abstain is not None:
        labels = labels.apply(without_label, label=abstain, tidy=tidy)
    return labels.apply(_as_class_column, where=where)


def _as_class_column(column: pd.Series, *, where: str) -> pd.Series:
    check_label_column(column, where=where)
    return column.astype("Int64" if column.dtype.kind in "iuf" else object).astype(object)


def check_classes(
    labels: pd.Series, *, where: str, words: Sequence[WordUse] = (), minus_one: int = 0
) -> None:
    """Refuse labels of fewer than two classes.

    Parameters
    ----------
    labels
        The labels of all rows; missing ones are NaN.
    where
        What holds the labels, for the message.
    words
        Labels such as nan that may have been read as missing; the message names them.
    minus_one
        Number of labels -1 that were taken as missing; the message says so.
    """
    classes = labels.dropna().unique().tolist()
    if len(classes) > 1:
        return
    found = f"every label is {str(classes[0])!r}" if classes else "no row has a label"
    unread = [_on_word(word) for word in words if not word.is_class]
    advice = " Write them in another way if they are a class." if unread else ""
    if minus_one:
        advice += f" {_on_minus_one(minus_one)}."
    raise InvalidInputError(
        f"{where} must hold at least two classes; {found}." + "".join(f" {text}." for text in unread) + advice
    )


def describe_rows(
    X: pd.DataFrame, prepared: PreparedLabels, reading: Reading, *, learns: bool = True
) -> TableSummary:
    """Describe features, and labels in the same order of rows.

    Parameters
    ----------
    X
        The features of all rows.
    prepared
        The labels of all rows.
    reading
        The table of which ``X`` is a part; only its notes are used.
    learns
        Whether a model will be trained on ``X``.

    Raises
    ------
    InvalidInputError
        If a number from which a model would learn is infinite.
    """
    labels = prepared.labels
    if labels.shape[1] == 1:
        given = labels.iloc[:, 0]
    else:  # one label per annotator
        given = pd.Series(labels.to_numpy(dtype=object).ravel()).dropna()
    in_use = labels.notna().any(axis=1).to_numpy()
    if learns:  # before the work, and with the numbers of the rows in the file
        rows = np.flatnonzero(in_use)
        check_no_infinity(X[in_use], locate=lambda row: reading.row_numbers[rows[row]])
    columns = _columns(X[in_use], reading)
    counts = given.dropna().map(str).value_counts()
    return TableSummary(
        rows=len(X),
        columns=columns,
        classes={str(name): int(rows) for name, rows in counts.items()},
        unlabelled=len(X) - int(in_use.sum()) - sum(prepared.rare.values()),
        rare={str(name): rows for name, rows in prepared.rare.items()},
        minus_one=prepared.minus_one,
        spellings=tuple(prepared.spellings),
        tidied=prepared.tidied,
        words=reading.words,
        decimal=reading.decimal,
        learns=learns,
        contradictions=0
        if labels.shape[1] > 1
        else count_contradictions(X.loc[in_use, [c.name for c in columns if c.used]], given[in_use]),
    )


def _columns(X: pd.DataFrame, reading: Reading) -> tuple[ColumnSummary, ...]:
    """Return the use of each column, as the encoder of the classifiers decides it."""
    notes = {note.column: note.text for note in reading.notes}
    if not len(X) or not X.shape[1]:
        return ()
    return tuple(
        ColumnSummary(use["column"], use["kind"], use["used"], use["why"], notes.get(use["column"], ""))
        for use in describe_columns(X).to_dict("records")
    )


def count_contradictions(X: pd.DataFrame, labels: pd.Series) -> int:
    """Count the rows that equal a row with another label."""
    if not X.shape[1] or not len(X):
        return 0
    hashes = pd.util.hash_pandas_object(X, index=False).to_numpy()
    codes = pd.factorize(labels.to_numpy(dtype=object))[0]
    groups = pd.DataFrame({"row": hashes, "label": codes}).groupby("row")["label"]
    return int((groups.transform("min") != groups.transform("max")).sum())
