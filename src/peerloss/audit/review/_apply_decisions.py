"""Write the cleaned table of an audit: labels change as decided, everything else stays as written."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from itertools import chain, count, islice
from typing import IO, TYPE_CHECKING

from peerloss._files import atomic_files
from peerloss._pages import counted
from peerloss.audit._label_audit import is_replaceable
from peerloss.audit.review._decisions_file import checked_latest, disagreements, read_decisions
from peerloss.datasets.label_spelling import respell
from peerloss.datasets.tables import (
    JSON_SUFFIXES,
    TEXT_SUFFIXES,
    append_field,
    check_csv,
    check_output_format,
    csv_rows,
    open_text,
    read_records,
    read_with_notes,
    replace_field,
    strip_field,
    text_encoding,
    value_places,
    write_chunks,
)
from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from peerloss.audit.folder import AuditFolder
    from peerloss.datasets.tables import CsvFile

#: What to do with suspects without a decision.
UNDECIDED_POLICIES = ("keep", "relabel", "drop")
#: Largest share of the rows that may change or be dropped without a decision of a person.
MAX_CHANGE = 0.3
#: Column that is added if the labels came from several annotators or from another file.
NEW_COLUMN = "label"


@dataclass(frozen=True)
class Cleaning:
    """Which labels to change and which rows to drop."""

    new_labels: dict[int, str]
    dropped: frozenset[int]
    given: dict[int, str]
    """The given label of each audited row."""
    decided: int
    """Number of rows that a person decided to keep, change or drop."""
    undecided: int
    """Number of suspects without a decision."""
    automatic: int = 0
    """Number of rows that change or are dropped without a decision of a person."""
    disputed: tuple[int, ...] = ()
    """Rows on which reviewers decided differently; the last decision counts."""


def plan_cleaning(folder: AuditFolder, undecided_policy: str) -> Cleaning:
    """Combine the decisions with a policy for suspects without a decision.

    ``"keep"`` keeps their labels, ``"relabel"`` takes the suggestion if the label is more likely wrong than
    right (as :meth:`LabelAudit.relabel <peerloss.audit.LabelAudit.relabel>` does), ``"drop"`` drops their
    rows.
    """
    labels = folder.labels
    path, rows = folder.decisions_path, set(labels["row"].tolist())
    made = read_decisions(path)
    decisions = checked_latest(made, rows, set(folder.classes), path)
    new = {row: d.label for row, d in decisions.items() if d.label is not None}
    decided = {row for row, d in decisions.items() if d.action != "skip"}
    suspects = labels[labels["flagged"] & ~labels["row"].isin(decided)]
    dropped = {row for row, d in decisions.items() if d.action == "drop"}
    automatic: list[int] = []
    if undecided_policy == "relabel":
        wrong = suspects[is_replaceable(suspects)]
        automatic = wrong["row"].tolist()
        new |= dict(zip(automatic, wrong["suggested"].tolist(), strict=True))
    elif undecided_policy == "drop":
        automatic = suspects["row"].tolist()
        dropped |= set(automatic)
    given = dict(zip(labels["row"].tolist(), labels["given"].tolist(), strict=True))
    changed = {row: label for row, label in new.items() if label != given[row]}
    return Cleaning(
        changed,
        frozenset(dropped),
        given,
        decided=len(decided),
        undecided=len(suspects),
        automatic=len(automatic),
        disputed=tuple(disagreements(made)),
    )


def check_automatic_changes(folder: AuditFolder, cleaning: Cleaning, *, max_change: float) -> None:
    """Refuse changes without a decision of a person if the audit is not a sound basis for them.

    That is so if the noise rates could not be estimated, even if no row is flagged then, or if more than the
    share ``max_change`` of the rows would change. Do not call it if undecided suspects are kept.
    """
    rows = len(folder.labels)
    share = cleaning.automatic / rows
    what = f"{counted(cleaning.automatic, 'suspect')} of {counted(rows, 'row')} ({share:.1%})"
    advice = "Decide with `peerloss review`, or pass --force to do it anyway."
    reason = folder.manifest["summary"].get("reason")
    if reason:
        raise InvalidInputError(
            "--rest changes or drops suspects without a decision, but the audit could not estimate how many "
            f"labels are wrong: {reason}. Nothing was written. {advice}"
        )
    if share > max_change:
        raise InvalidInputError(
            f"--rest would change or drop {what} without a decision, more than --max-change {max_change:g} "
            f"allows. Nothing was written. {advice}"
        )


def write_cleaned(folder: AuditFolder, cleaning: Cleaning, output: Path) -> int:
    """Write the cleaned table, completely or not at all; return its number of rows.

    The ending of ``output`` is the format. Delimited text is copied to a .csv file, and text with tabs to a
    .tsv file, character by character and in its encoding, except for changed labels and dropped rows. So are
    JSON lines to a .jsonl or .ndjson file, unless a column of labels is added. Other tables are converted.
    """
    path, suffix = folder.data_path, check_output_format(output, "output")
    is_text = path.name.lower().endswith(TEXT_SUFFIXES)
    found = check_csv(path, folder.options) if is_text else None
    with atomic_files(output) as (file,):
        if found is not None and (suffix == ".csv" or (suffix, found.delimiter) == (".tsv", "\t")):
            encoding = text_encoding(path, folder.options.encoding)
            with file.open("x", encoding=encoding, newline="") as stream:
                try:
                    return _copy_text(folder, cleaning, stream, found)
                except UnicodeEncodeError as error:
                    raise InvalidInputError(
                        f"a label cannot be written in the encoding of the table, {encoding}: {error}. Write "
                        "to a file whose name ends in .tsv, .jsonl, .parquet or .xlsx instead."
                    ) from error
        is_json = path.name.lower().endswith(JSON_SUFFIXES) and suffix in JSON_SUFFIXES
        if is_json and len(folder.manifest["labels"]) == 1:
            encoding = text_encoding(path, folder.options.encoding)
            with file.open("x", encoding=encoding, newline="") as stream:
                return _copy_json(folder, cleaning, stream)
        return _convert(folder, cleaning, file, suffix)


def _copy_text(folder: AuditFolder, cleaning: Cleaning, output: IO[str], found: CsvFile) -> int:
    path, tidied = folder.data_path, folder.tidied
    column = _label_column(folder, found.header)
    written: dict[str, str] = {}
    if column is not None:
        records = islice(csv_rows(path, found.delimiter, folder.options.encoding), 1, None)
        texts = enumerate(record.fields[column] for record in records)
        written = _written_as((cleaning.given.get(row), text) for row, text in texts if text not in tidied)
    row = -1  # the header
    with open_text(path, folder.options.encoding) as stream:
        for record in read_records(stream, path, found.delimiter):
            if record.is_blank:
                output.write(record.source)
                continue
            if row not in cleaning.dropped:
                label = cleaning.new_labels.get(row)
                text = record.source
                if column is None:
                    given = cleaning.given.get(row, "")
                    added = new_label_column(found.header) if row < 0 else given if label is None else label
                    text = append_field(text, added, found.delimiter)
                elif label is None and row >= 0:
                    label = tidied.get(record.fields[column])
                if column is not None and label is not None:
                    text = replace_field(text, column, written.get(label, label), found.delimiter)
                if column is not None and tidied and row >= 0:  # the reader ignores spaces before a field
                    text = strip_field(text, column, found.delimiter)
                output.write(text)
            row += 1
    folder.check_rows([*cleaning.new_labels, *cleaning.dropped], row)
    return row - len(cleaning.dropped)


def _written_as(labels: Iterable[tuple[str | None, str]]) -> dict[str, str]:
    """Return label → how the file writes it most often, such as 1.0 for 1.

    ``labels`` has the label of each row, ``None`` if it was not audited, and its text in the file.
    """
    counts: dict[str, Counter[str]] = {}
    for label, text in labels:
        if label is not None:
            counts.setdefault(label, Counter())[text] += 1
    return {label: found.most_common(1)[0][0] for label, found in counts.items()}


def _copy_json(folder: AuditFolder, cleaning: Cleaning, output: IO[str]) -> int:
    """Copy JSON lines; a new label is written as the file writes it elsewhere: as text or as a number."""
    (column,), path, tidied = folder.manifest["labels"], folder.data_path, folder.tidied
    with open_text(path, folder.options.encoding) as stream:
        lines = enumerate(line for line in stream if line.strip())
        written = _written_as(
            (cleaning.given.get(row), line[place])
            for row, line in lines
            if (place := value_places(line).get(column))
            and tidied.keys().isdisjoint(_label_texts(line[place]))
        )
    row = 0
    with open_text(path, folder.options.encoding) as stream:
        for line in stream:
            text = line
            if line.strip():
                place = value_places(line).get(column)
                label = cleaning.new_labels.get(row)
                if label is None and place is not None:
                    label = next((tidied[t] for t in _label_texts(line[place]) if t in tidied), None)
                if label is not None and place is not None:
                    text = line[: place.start] + written.get(label, json.dumps(label)) + line[place.stop :]
                text = "" if row in cleaning.dropped else text
                row += 1
            output.write(text)
    folder.check_rows([*cleaning.new_labels, *cleaning.dropped], row)
    return row - len(cleaning.dropped)


def _label_texts(value: str) -> list[str]:
    """Return the label that a JSON value is read as, if any: 1.0 is "1", or "1.0" in a column with text.

    >>> _label_texts('"yes"'), _label_texts("true"), _label_texts("1.0"), _label_texts("null")
    (['yes'], ['true'], ['1.0', '1'], [])
    """
    label = json.loads(value)
    if label is None:
        return []
    if isinstance(label, bool):
        return [str(label).lower()]
    whole = isinstance(label, float) and label.is_integer()
    return [str(label), str(int(label))] if whole else [str(label)]


def _convert(folder: AuditFolder, cleaning: Cleaning, file: Path, suffix: str) -> int:
    columns = folder.manifest["labels"]
    table = read_with_notes(folder.data_path, options=folder.options, labels=columns).table
    folder.check_rows([*cleaning.new_labels, *cleaning.dropped], len(table))
    header = list(map(str, table.columns))
    column = _label_column(folder, header)
    if column is None:
        column = table.shape[1]
        table[new_label_column(header)] = [cleaning.given.get(row, "") for row in range(len(table))]
    labels = respell(table.iloc[:, column], folder.tidied).astype(object)
    is_number = table.iloc[:, column].dtype.kind in "iuf"
    for row, label in cleaning.new_labels.items():
        labels.iloc[row] = float(label) if is_number else label
    if is_number:
        labels = labels.astype("float64" if labels.isna().any() else "int64")
    table = table.assign(**{str(table.columns[column]): labels}).drop(index=list(cleaning.dropped))
    write_chunks(file, [table], suffix=suffix)
    return len(table)


def _label_column(folder: AuditFolder, header: Sequence[str]) -> int | None:
    """Return the position of the label column, or ``None`` if one must be added."""
    columns = folder.manifest["labels"]
    return header.index(columns[0]) if len(columns) == 1 else None


def new_label_column(header: Sequence[str]) -> str:
    """Return the name of the column of labels that is added to a table with these columns.

    >>> new_label_column(["x", "ann"]), new_label_column(["x", "label"])
    ('label', 'label_1')
    """
    names = chain([NEW_COLUMN], (f"{NEW_COLUMN}_{i}" for i in count(1)))
    return next(name for name in names if name not in header)
