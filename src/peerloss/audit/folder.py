"""The folder that an audit writes and a review reads.

audit.json        format, name of the data, SHA-256 of the other files, columns of labels and of features,
                  summary
data.*            an exact copy of the table
labels.csv        one row per label: row (from 0), name, given, suggested, p_error, p_suggested, rank,
                  flagged; further columns follow, such as why
explanations.json why rows are suspect (``_stored_explanations.py``)
pictures.json     absolute path of the picture of each row of the data, if the data have pictures
index.html        the page
*.npy             probabilities and reports, see ``_stored_evidence.py``
decisions.jsonl   the decisions of the review, written by ``review/_decisions_file.py``
"""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from peerloss._files import atomic_folder, check_output_folder, lock_file, restore_folder
from peerloss._version import __version__
from peerloss.audit._audit_page import PageContext, audit_page, printable, reason_texts
from peerloss.audit._picture_files import PICTURE_TYPES
from peerloss.audit._stored_evidence import FILES, write_evidence
from peerloss.audit._stored_explanations import dump_explanations, load_explanations
from peerloss.datasets import ReadOptions, read_table
from peerloss.datasets.tables import RowNumbers, write_table
from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy as np

    from peerloss.audit._label_audit import LabelAudit
    from peerloss.audit._stored_explanations import StoredExplanation
    from peerloss.audit.table_summary import TableSummary

#: The last is written. Format 1 had no SHA-256 of labels.csv; formats 1 and 2 had no p_suggested, and the
#: suggestion could be the given label.
FORMATS = (1, 2, 3)
MANIFEST, LABELS, PAGE, DECISIONS = "audit.json", "labels.csv", "index.html", "decisions.jsonl"
EXPLANATIONS, PICTURES = "explanations.json", "pictures.json"
#: Files that an audit may lack → key of their SHA-256 in the manifest.
OPTIONAL = {EXPLANATIONS: "explanations_sha256", PICTURES: "pictures_sha256"}
COLUMNS = ("row", "name", "given", "suggested", "p_error", "rank", "flagged")
TEXT_COLUMNS = ("name", "given", "suggested")
#: Column since format 3.
P_SUGGESTED = "p_suggested"
#: Types of the columns that are not text.
KINDS = {"row": "i", "p_error": "fi", P_SUGGESTED: "fi", "rank": "i", "flagged": "b"}
#: How far a stored probability may be outside of [0, 1].
ROUNDING = 1e-6


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

    @property
    def row_numbers(self) -> RowNumbers:
        """The numbers of the rows in the file, as a spreadsheet shows them."""
        if "row_numbers" not in self.manifest:  # an earlier version, or a file without empty lines
            return RowNumbers.usual(str(self.manifest["data"]))
        return RowNumbers.from_json(self.manifest["row_numbers"])

    def suspects(self) -> pd.DataFrame:
        """Return the flagged rows, most probable errors first."""
        return self.labels[self.labels["flagged"]].sort_values("rank", kind="stable")

    def explanations(self, n_rows: int) -> dict[int, StoredExplanation]:
        """Return row → why it is suspect; empty for older audits. The data have ``n_rows`` rows."""
        if EXPLANATIONS not in self._optional_files():
            return {}
        try:
            text = (self.path / EXPLANATIONS).read_text(encoding="utf-8")
            return load_explanations(text, n_rows=n_rows, n_classes=len(self.classes))
        except (OSError, ValueError, RecursionError) as error:
            raise _damaged(self.path, error) from error

    def pictures(self) -> list[Path] | None:
        """Return the picture of each row of the data, or ``None`` if the audit has none."""
        if PICTURES not in self._optional_files():
            return None
        try:
            paths = json.loads((self.path / PICTURES).read_text(encoding="utf-8"))
            if not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
                raise ValueError("pictures.json is not a list of paths")  # noqa: TRY301
        except (OSError, ValueError, RecursionError) as error:
            raise _damaged(self.path, error) from error
        return [Path(path) for path in paths]

    def _optional_files(self) -> set[str]:
        return {name for name, key in OPTIONAL.items() if key in self.manifest}

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
        known = {MANIFEST, LABELS, PAGE, *OPTIONAL, *FILES, str(manifest["data"])}
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        known = set()
    if known and not _has_decisions(folder / DECISIONS):
        known.add(DECISIONS)
    elif known:
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


def _has_decisions(path: Path) -> bool:
    """Return whether something was decided, or may be in a review that is open."""
    if not path.exists() or path.stat().st_size:
        return path.exists()
    with path.open("rb") as stream:
        return lock_file(stream) is False


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
    pictures: Sequence[Path] | None = None,
    row_numbers: RowNumbers | None = None,
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
    pictures
        The picture of each row of the file, shown in the review. The folder stores the absolute paths, not
        the pictures.
    row_numbers
        The numbers of the rows in the file; ``None`` if it has no empty lines.

    Raises
    ------
    InvalidInputError
        If the folder contains other files, or a picture does not have the ending of an image.
    """
    check_free(folder)
    shown = None if pictures is None else _check_pictures(pictures, rows)
    with atomic_folder(folder) as fresh:
        copy = fresh / f"data{''.join(data.suffixes[-2:] if data.suffix == '.gz' else data.suffixes[-1:])}"
        shutil.copyfile(data, copy)
        if shown is not None:
            (fresh / PICTURES).write_text(json.dumps(list(map(str, shown))), encoding="utf-8")
        manifest = {
            "format": FORMATS[-1],
            "peerloss": __version__,
            "source": printable(data.name),
            "data": copy.name,
            "sha256": _digest(copy),
            "spreadsheet_safe": spreadsheet_safe,
            "labels": labels,
            "options": {} if options is None else options.as_dict(),
            "table": {} if described is None else described.as_dict() | {"text": str(described)},
            "evidence": write_evidence(fresh, audit),
            # null: the audit did not learn from columns of the table; it may still show some
            "features": _columns(audit.X) if audit.shown is None else None,
            "shown": _columns(audit.shown),
        }
        numbers = RowNumbers.usual(copy.name) if row_numbers is None else row_numbers
        if numbers != RowNumbers.usual(copy.name):
            manifest["row_numbers"] = numbers.starts
        text = "" if described is None else str(described)
        context = PageContext(str(folder), rows, numbers, shown, text)
        write_results(fresh, audit, manifest, context=context, title=title)


def write_results(
    folder: Path, audit: LabelAudit, manifest: dict[str, Any], *, context: PageContext, title: str
) -> None:
    """Write labels.csv, explanations, the page and audit.json; ``manifest`` describes the other files."""
    title, context = printable(title), replace(context, folder=printable(context.folder))
    table, rows = audit.table, context.rows
    named = pd.DataFrame({"row": rows, "name": [str(name) for name in table.index]})
    results = table.reset_index(drop=True).assign(
        given=table["given"].astype(str).to_numpy(),
        suggested=table["suggested"].astype(str).to_numpy(),
        why=reason_texts(audit, with_values=context.pictures is None),
    )
    safe = manifest.get("spreadsheet_safe") is True
    with (folder / LABELS).open("w", encoding="utf-8", newline="") as stream:
        write_table(stream, pd.concat([named, results], axis=1), spreadsheet_safe=safe)
    text = dump_explanations(audit.explanations, rows, with_values=context.pictures is None)
    (folder / EXPLANATIONS).write_text(text, encoding="utf-8")
    (folder / PAGE).write_text(audit_page(audit, title=title, context=context), encoding="utf-8")
    digests = {key: _digest(folder / name) for name, key in OPTIONAL.items() if (folder / name).exists()}
    manifest |= {"labels_sha256": _digest(folder / LABELS), **digests, "summary": audit.summary()}
    text = json.dumps(manifest, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    (folder / MANIFEST).write_text(text, encoding="utf-8")


def _columns(features: Any) -> list[str] | None:
    return [str(name) for name in features] if isinstance(features, pd.DataFrame) else None


def _check_pictures(pictures: Sequence[Path], rows: np.ndarray[Any, Any]) -> list[Path]:
    """Return absolute paths; refuse endings that are not those of images, and rows without a picture."""
    paths = [Path(path).absolute() for path in pictures]
    if len(rows) and int(rows.max()) >= len(paths):
        raise InvalidInputError(
            f"`pictures` must have one path per row of the data, at least {int(rows.max()) + 1}; got "
            f"{len(paths)}."
        )
    wrong = next((path for path in paths if path.suffix.lower() not in PICTURE_TYPES), None)
    if wrong is not None:
        raise InvalidInputError(
            f"`pictures` must end in one of {', '.join(PICTURE_TYPES)}; got {wrong}. Convert it, or leave it "
            "out."
        )
    return paths


def _damaged(folder: Path, error: Exception) -> InvalidInputError:
    return InvalidInputError(f"{folder} is a damaged audit: {error}. Run `peerloss audit` again.")


def read_folder(folder: Path, *, accept_edits: bool = False) -> AuditFolder:
    """Read an audit; refuse other folders, and audits whose files were changed.

    With ``accept_edits``, changes to labels.csv are accepted. If there are any, its column p_suggested is
    left out, because it belongs to the suggestion before the change.
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
        columns_needed = COLUMNS if manifest["format"] < 3 else (*COLUMNS, P_SUGGESTED)
        valid = valid and labels.columns.is_unique and set(columns_needed) <= set(labels)
        valid = valid and all(labels[name].dtype.kind in KINDS[name] for name in KINDS if name in labels)
        valid = valid and bool((labels["row"] >= 0).all())
        if valid:
            _check_numbers(labels, classes)
        audit = AuditFolder(folder, manifest, labels)
        valid = valid and all(isinstance(text, str) for text in [*audit.tidied, *audit.tidied.values()])
        valid = valid and all(_is_columns(manifest.get(key)) for key in ("features", "shown"))
        valid = valid and isinstance(audit.options, ReadOptions)  # raises an error if they are damaged
        valid = valid and isinstance(audit.row_numbers, RowNumbers)  # so does this
        digest = _digest(folder / name) if valid else ""
        changed = [
            name
            for name, key in OPTIONAL.items()
            if key in manifest and _digest(folder / name) != manifest[key]
        ]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _damaged(folder, error) from error
    if not valid:
        raise InvalidInputError(
            f"{folder} is not an audit that this version can read. Run `peerloss audit` again."
        )
    if digest != manifest["sha256"]:
        changed = [name, *changed]
    if changed:
        raise InvalidInputError(
            f"{folder / changed[0]} was changed since the audit. Run `peerloss audit` again."
        )
    if accept_edits:
        _check_edits(labels, set(classes), folder / LABELS)
    if _digest(folder / LABELS) == manifest.get("labels_sha256"):
        return audit
    if not accept_edits:
        raise InvalidInputError(
            f"{folder / LABELS} was changed since the audit, or was written by an earlier version that did "
            "not record its SHA-256. Run `peerloss audit` again, or pass --accept-edits if you changed it "
            "yourself."
        )
    return replace(audit, labels=labels.drop(columns=P_SUGGESTED, errors="ignore"))


def _check_numbers(labels: pd.DataFrame, classes: list[str]) -> None:
    """Raise ``ValueError`` for probabilities that are none, and for classes that occur twice."""
    for name in ("p_error", P_SUGGESTED):
        if name in labels and not labels[name].between(-ROUNDING, 1.0 + ROUNDING).all():
            raise ValueError(f"{name} in {LABELS} must hold numbers from 0 to 1")
    if len(set(classes)) < len(classes):
        raise ValueError(f"the classes in {MANIFEST} must be different")


def _is_columns(names: Any) -> bool:
    return names is None or (isinstance(names, list) and all(isinstance(name, str) for name in names))


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
