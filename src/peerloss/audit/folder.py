"""The folder that an audit writes and a review reads.

audit.json        format, name of the data, SHA-256 of data and labels.csv, label columns, summary
data.*            an exact copy of the table
labels.csv        one row per label: row (from 0), name, given, suggested, p_error, rank, flagged
index.html        the page
decisions.jsonl   the decisions of the review, written by ``review/_decisions_file.py``
"""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from peerloss._files import atomic_folder, check_output_folder, restore_folder
from peerloss._version import __version__
from peerloss.audit._audit_page import audit_page
from peerloss.datasets import ReadOptions, read_table
from peerloss.datasets.tables import write_table
from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np

    from peerloss.audit._label_audit import LabelAudit
    from peerloss.audit.table_summary import TableSummary

#: The last is written; format 1 had no SHA-256 of labels.csv.
FORMATS = (1, 2)
MANIFEST, LABELS, PAGE, DECISIONS = "audit.json", "labels.csv", "index.html", "decisions.jsonl"
COLUMNS = ("row", "name", "given", "suggested", "p_error", "rank", "flagged")
TEXT_COLUMNS = ("name", "given", "suggested")
#: Types of the columns that are not text.
KINDS = {"row": "i", "p_error": "fi", "flagged": "b"}


@dataclass(frozen=True, eq=False)
class AuditFolder:
    """An audit that was read from disk."""

    path: Path
    manifest: dict[str, Any]
    labels: pd.DataFrame
    """The columns of labels.csv; given and suggested are text."""

    @property
    def data_path(self) -> Path:
        """The copy of the table."""
        return self.path / str(self.manifest["data"])

    @property
    def decisions_path(self) -> Path:
        """The file of decisions, which may not exist yet."""
        return self.path / DECISIONS

    @property
    def classes(self) -> list[str]:
        """The labels, as text."""
        return list(map(str, self.manifest["summary"]["classes"]))

    @property
    def options(self) -> ReadOptions:
        """How the table is read."""
        return ReadOptions.from_dict(self.manifest.get("options", {}))

    @property
    def tidied(self) -> dict[str, str]:
        """Spelling of a label in the table → the one that the audit used."""
        return dict(self.manifest.get("table", {}).get("tidied", {}))

    def suspects(self) -> pd.DataFrame:
        """Return the flagged rows, most probable errors first."""
        return self.labels[self.labels["flagged"]].sort_values("rank", kind="stable")

    def features(self) -> pd.DataFrame:
        """Read the table without its label columns."""
        table = read_table(self.data_path, options=self.options)
        return table[[name for name in table.columns if name not in self.manifest["labels"]]]

    def check_rows(self, named: Iterable[int], rows: int) -> None:
        """Refuse row numbers of labels.csv that do not exist in data with ``rows`` rows."""
        last = max(named, default=-1)
        if last >= rows:
            raise InvalidInputError(
                f"{self.path}: labels.csv names row {last}, but the data have {rows} rows, counted from 0. "
                "Correct the row number, or run `peerloss audit` again."
            )


def check_free(folder: Path) -> None:
    """Refuse a path that cannot be written, or a folder with other files than an audit without decisions."""
    check_output_folder(folder)
    if not folder.exists() or not any(folder.iterdir()):
        return
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        known = {MANIFEST, LABELS, PAGE, str(manifest["data"])}
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        known = set()
    if (folder / DECISIONS).exists() and known:
        raise InvalidInputError(
            f"{folder} contains decisions of a review and is not replaced. Choose another folder, or delete "
            "this one."
        )
    others = sorted(path.name for path in folder.iterdir() if path.name not in known)
    if others:
        raise InvalidInputError(
            f"{folder} contains other files ({', '.join(others[:5])}) and is not replaced. Choose another "
            "folder."
        )


def write_folder(
    folder: Path,
    audit: LabelAudit,
    data: Path,
    *,
    rows: np.ndarray[Any, Any],
    labels: list[str],
    title: str,
    spreadsheet_safe: bool = False,
    options: ReadOptions | None = None,
    described: TableSummary | None = None,
) -> None:
    """Write an audit of the file ``data``, completely or not at all; the folder must pass :func:`check_free`.

    Parameters
    ----------
    rows
        The position in the file of each row of the audit.
    labels
        Columns of the file that hold labels: one, or one per annotator; none if the labels came from another
        file.
    title
        Heading of the page.
    spreadsheet_safe
        Whether to write an apostrophe before texts in labels.csv that a spreadsheet would read as a formula.
    options
        How ``data`` was read; the copy is read in the same way.
    described
        The summary of the table, which is stored with the audit.
    """
    check_free(folder)
    with atomic_folder(folder) as fresh:
        copy = fresh / f"data{''.join(data.suffixes[-2:] if data.suffix == '.gz' else data.suffixes[-1:])}"
        shutil.copyfile(data, copy)
        table = audit.table
        named = pd.DataFrame({"row": rows, "name": [str(name) for name in table.index]})
        results = table.reset_index(drop=True).assign(
            given=table["given"].astype(str).to_numpy(), suggested=table["suggested"].astype(str).to_numpy()
        )
        with (fresh / LABELS).open("x", encoding="utf-8", newline="") as stream:
            write_table(stream, pd.concat([named, results], axis=1), spreadsheet_safe=spreadsheet_safe)
        (fresh / PAGE).write_text(audit_page(audit, title=title), encoding="utf-8")
        manifest = {
            "format": FORMATS[-1],
            "peerloss": __version__,
            "source": data.name,
            "data": copy.name,
            "sha256": _digest(copy),
            "labels_sha256": _digest(fresh / LABELS),
            "spreadsheet_safe": spreadsheet_safe,
            "labels": labels,
            "options": {} if options is None else options.as_dict(),
            "table": {} if described is None else described.as_dict(),
            "summary": audit.summary(),
        }
        text = json.dumps(manifest, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        (fresh / MANIFEST).write_text(text, encoding="utf-8")


def read_folder(folder: Path, *, accept_edits: bool = False) -> AuditFolder:
    """Read an audit; refuse other folders, and audits whose files were changed.

    With ``accept_edits``, changes to labels.csv are accepted.
    """
    restore_folder(folder)
    if not (folder / MANIFEST).is_file():
        raise InvalidInputError(
            f"{folder} is not an audit: it has no {MANIFEST}. Make one with `peerloss audit`."
        )
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        name, columns, classes = manifest["data"], manifest["labels"], manifest["summary"]["classes"]
        valid = manifest["format"] in FORMATS and Path(name).name == name and name not in {"", ".", ".."}
        valid &= all(isinstance(text, str) for text in [*columns, *classes])
        labels = _read_labels(folder / LABELS, spreadsheet_safe=manifest.get("spreadsheet_safe") is True)
        valid &= list(labels) == list(COLUMNS)
        valid = valid and all(labels[column].dtype.kind in kinds for column, kinds in KINDS.items())
        valid = valid and bool((labels["row"] >= 0).all())
        audit = AuditFolder(folder, manifest, labels)
        valid = valid and all(isinstance(text, str) for text in [*audit.tidied, *audit.tidied.values()])
        valid = valid and isinstance(audit.options, ReadOptions)  # raises an error if they are damaged
        digest = _digest(folder / name) if valid else ""
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InvalidInputError(
            f"{folder} is a damaged audit: {error}. Run `peerloss audit` again."
        ) from error
    if not valid:
        raise InvalidInputError(
            f"{folder} is not an audit that this version can read. Run `peerloss audit` again."
        )
    if digest != manifest["sha256"]:
        raise InvalidInputError(f"{folder / name} was changed since the audit. Run `peerloss audit` again.")
    if accept_edits:
        _check_edits(labels, set(classes), folder / LABELS)
    elif _digest(folder / LABELS) != manifest.get("labels_sha256"):
        raise InvalidInputError(
            f"{folder / LABELS} was changed since the audit, or was written by an earlier version that did "
            "not record its SHA-256. Run `peerloss audit` again, or pass --accept-edits if you changed it "
            "yourself."
        )
    return audit


def _read_labels(path: Path, *, spreadsheet_safe: bool) -> pd.DataFrame:
    labels = pd.read_csv(
        path, dtype=dict.fromkeys(TEXT_COLUMNS, str), keep_default_na=False, encoding="utf-8-sig"
    )
    if spreadsheet_safe:
        labels = labels.assign(**{name: labels[name].str.removeprefix("'") for name in TEXT_COLUMNS})
    return labels


def _check_edits(labels: pd.DataFrame, classes: set[str], path: Path) -> None:
    twice = labels["row"][labels["row"].duplicated()]
    if len(twice):
        raise InvalidInputError(f"{path}: row {twice.iloc[0]} occurs more than once. Keep one of the lines.")
    for name in ("given", "suggested"):
        unknown = labels[~labels[name].isin(classes)]
        if len(unknown):
            raise InvalidInputError(
                f"{path}: {name} of row {unknown['row'].iloc[0]} must be a label of the audit; got "
                f"{unknown[name].iloc[0]!r}. Correct it, or run `peerloss audit` again."
            )


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
