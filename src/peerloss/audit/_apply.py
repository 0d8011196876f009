"""From an audit and its decisions to a cleaned table: labels change, other cells stay as written."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from typing import TYPE_CHECKING

from peerloss._files import whole_files
from peerloss.audit._journal import latest, read_journal
from peerloss.datasets import read_table
from peerloss.datasets._csv import check_csv
from peerloss.datasets._text import open_text
from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
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
    """Write the cleaned table as CSV, whole or not at all; return its number of rows."""
    header, delimiter, records = _records(folder)
    columns = folder.manifest["labels"]
    place = header.index(columns[0]) if len(columns) == 1 else None
    if place is None and NEW_COLUMN in header:
        raise InvalidInputError(
            f"{folder.data_path.name} has a column {NEW_COLUMN!r} already, where the cleaned labels would "
            "stand. Rename it and audit again."
        )
    written = 0
    with whole_files(output) as (path,), path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, delimiter=delimiter, lineterminator="\n")
        writer.writerow(header if place is not None else [*header, NEW_COLUMN])
        for row, record in enumerate(records):
            if row in cleaning.dropped:
                continue
            label = cleaning.new_labels.get(row)
            if place is None:
                record = [*record, label if label is not None else cleaning.given.get(row, "")]  # noqa: PLW2901
            elif label is not None:
                record[place] = label
            writer.writerow(record)
            written += 1
    return written


def _records(folder: AuditFolder) -> tuple[list[str], str, Iterator[list[str]]]:
    """Return header, delimiter and records of the data, as text."""
    path = folder.data_path
    if path.name.lower().endswith((".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz")):
        found = check_csv(path)
        return list(found.header), found.delimiter, _text_records(path, found.delimiter)
    table = read_table(path)
    return (
        list(map(str, table.columns)),
        ",",
        (_as_text(row) for row in table.itertuples(index=False, name=None)),
    )


def _text_records(path: Path, delimiter: str) -> Iterator[list[str]]:
    with open_text(path) as stream:
        records = csv.reader(stream, delimiter=delimiter, skipinitialspace=True, strict=True)
        whole = (record for record in records if len(record) > 1 or (record and record[0].strip()))
        next(whole)  # the header
        yield from whole


def _as_text(row: Sequence[object]) -> list[str]:
    return ["" if value is None or value != value else str(value) for value in row]  # noqa: PLR0124 - NaN
