"""From an audit and its decisions to a cleaned table: labels change, everything else stays as written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

from peerloss._files import atomic_files
from peerloss.audit.review._decisions import latest, read_journal
from peerloss.datasets import read_table
from peerloss.datasets.tables import (
    append_field,
    check_csv,
    open_text,
    read_records,
    replace_field,
    text_encoding,
    write_table,
)
from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from peerloss.audit._folder import AuditFolder

RESTS = ("keep", "relabel", "drop")
#: Column that is added where labels came from several annotators.
NEW_COLUMN = "label"


@dataclass(frozen=True)
class Cleaning:
    """Which rows to change or leave out."""

    new_labels: dict[int, str]
    dropped: frozenset[int]
    given: dict[int, str]
    """The given label of each audited row."""
    decided: int
    """Suspects on which a person decided to keep or change."""
    undecided: int


def plan_cleaning(folder: AuditFolder, rest: str) -> Cleaning:
    """Put together what was decided and what ``rest`` says of suspects without a decision.

    ``"keep"`` leaves their labels, ``"relabel"`` takes the suggestion where the label is more likely wrong
    than right, ``"drop"`` leaves the rows out.
    """
    labels = folder.labels
    decisions = latest(read_journal(folder.decisions_path))
    known, classes = set(labels["row"].tolist()), set(folder.classes)
    for decision in decisions.values():
        if decision.row not in known or (decision.label is not None and decision.label not in classes):
            raise InvalidInputError(
                f"{folder.decisions_path} decides on row {decision.row} ({decision.label!r}), which is not "
                "of this audit. Were the files mixed up?"
            )
    new = {row: d.label for row, d in decisions.items() if d.label is not None}
    decided = {row for row, d in decisions.items() if d.action != "skip"}
    suspects = labels[labels["flagged"] & ~labels["row"].isin(decided)]
    dropped: frozenset[int] = frozenset()
    if rest == "relabel":
        wrong = suspects[suspects["p_error"] > 0.5]
        new |= dict(zip(wrong["row"].tolist(), wrong["suggested"].tolist(), strict=True))
    elif rest == "drop":
        dropped = frozenset(suspects["row"].tolist())
    given = dict(zip(labels["row"].tolist(), labels["given"].tolist(), strict=True))
    changed = {row: label for row, label in new.items() if label != given[row]}
    return Cleaning(changed, dropped, given, len(decided), len(suspects))


def write_cleaned(folder: AuditFolder, cleaning: Cleaning, output: Path) -> int:
    """Write the cleaned table as CSV, completely or not at all; return its number of rows.

    Delimited text is copied character for character, except for the labels that change and the rows that are
    left out. Other tables are written as comma-separated text.
    """
    path = folder.data_path
    is_text = path.name.lower().endswith((".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz"))
    encoding = text_encoding(path) if is_text else "utf-8"
    with atomic_files(output) as (file,), file.open("x", encoding=encoding, newline="") as stream:
        return (_splice if is_text else _convert)(folder, cleaning, stream)


def _splice(folder: AuditFolder, cleaning: Cleaning, output: IO[str]) -> int:
    path = folder.data_path
    found = check_csv(path)
    place = _label_place(folder, found.header)
    row = -1  # the header
    with open_text(path) as stream:
        for record in read_records(stream, path, found.delimiter):
            if record.is_blank:
                output.write(record.source)
                continue
            if row not in cleaning.dropped:
                label = NEW_COLUMN if row < 0 else cleaning.new_labels.get(row)
                if place is None:
                    label = cleaning.given.get(row, "") if label is None else label
                    output.write(append_field(record.source, label, found.delimiter))
                elif row < 0 or label is None:
                    output.write(record.source)
                else:
                    output.write(replace_field(record.source, place, label, found.delimiter))
            row += 1
    folder.check_rows([*cleaning.new_labels, *cleaning.dropped], row)
    return row - len(cleaning.dropped)


def _convert(folder: AuditFolder, cleaning: Cleaning, output: IO[str]) -> int:
    table = read_table(folder.data_path)
    folder.check_rows([*cleaning.new_labels, *cleaning.dropped], len(table))
    place = _label_place(folder, list(map(str, table.columns)))
    if place is None:
        place = table.shape[1]
        table[NEW_COLUMN] = [cleaning.given.get(row, "") for row in range(len(table))]
    labels = table.iloc[:, place].astype(object)
    for row, label in cleaning.new_labels.items():
        labels.iloc[row] = label
    table = table.assign(**{str(table.columns[place]): labels}).drop(index=list(cleaning.dropped))
    write_table(output, table)
    return len(table)


def _label_place(folder: AuditFolder, header: Sequence[str]) -> int | None:
    """Return the position of the column of labels, or ``None`` if one is to be added."""
    columns = folder.manifest["labels"]
    if len(columns) == 1:
        return header.index(columns[0])
    if NEW_COLUMN in header:
        raise InvalidInputError(
            f"{folder.data_path.name} has a column {NEW_COLUMN!r} already, which is where the cleaned labels "
            "would be written. Rename it and audit again."
        )
    return None
