"""An audit on disk: the data as they came, the labels' figures, the page, and later a person's decisions.

audit.json        what it is: format, name and SHA-256 of the data, label column, figures of the whole set
data.*            the table, byte for byte
labels.csv        one line a label: row (from 0), name, given, suggested, p_error, rank, flagged
index.html        the page
decisions.jsonl   written by the review
"""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from peerloss._files import whole_folder
from peerloss._version import __version__
from peerloss.audit._page import audit_page
from peerloss.datasets import read_table
from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    import numpy as np

    from peerloss.audit._label_audit import LabelAudit

FORMAT = 1
MANIFEST, LABELS, PAGE, DECISIONS = "audit.json", "labels.csv", "index.html", "decisions.jsonl"
COLUMNS = ("row", "name", "given", "suggested", "p_error", "rank", "flagged")


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
        """The file of decisions, which need not exist."""
        return self.path / DECISIONS

    @property
    def classes(self) -> list[str]:
        """The labels, as text."""
        return list(map(str, self.manifest["summary"]["classes"]))

    def suspects(self) -> pd.DataFrame:
        """Return the flagged rows, likeliest errors first."""
        return self.labels[self.labels["flagged"]].sort_values("rank", kind="stable")

    def features(self) -> pd.DataFrame:
        """Read the table without its label columns."""
        table = read_table(self.data_path)
        return table[[name for name in table.columns if name not in self.manifest["labels"]]]


def check_free(folder: Path) -> None:
    """Refuse a folder that holds anything but an audit on which nobody has worked."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    if not folder.is_dir():
        raise InvalidInputError(f"{folder} is a file; name a folder for the audit.")
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        known = {MANIFEST, LABELS, PAGE, str(manifest["data"])}
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        known = set()
    if (folder / DECISIONS).exists() and known:
        raise InvalidInputError(
            f"{folder} holds decisions of a review; it is left as it is. Choose another folder, or "
            "remove this one."
        )
    others = sorted(path.name for path in folder.iterdir() if path.name not in known)
    if others:
        raise InvalidInputError(
            f"{folder} holds other things ({', '.join(others[:5])}); it is left as it is. "
            "Choose another folder."
        )


def write_folder(
    folder: Path, audit: LabelAudit, data: Path, *, rows: np.ndarray[Any, Any], labels: list[str], title: str
) -> None:
    """Write an audit of a file, whole or not at all.

    Parameters
    ----------
    folder
        Where; see :func:`check_free`.
    audit
        Of the rows of the file.
    data
        The file.
    rows
        Position in the file of each row of the audit.
    labels
        Columns of the file that hold labels: one, or one an annotator; none where labels came from elsewhere.
    title
        Heading of the page.
    """
    check_free(folder)
    with whole_folder(folder) as fresh:
        copy = fresh / f"data{''.join(data.suffixes[-2:] if data.suffix == '.gz' else data.suffixes[-1:])}"
        shutil.copyfile(data, copy)
        table = audit.table
        named = pd.DataFrame({"row": rows, "name": [str(name) for name in table.index]})
        figures = table.reset_index(drop=True).assign(
            given=table["given"].astype(str).to_numpy(), suggested=table["suggested"].astype(str).to_numpy()
        )
        pd.concat([named, figures], axis=1).to_csv(fresh / LABELS, index=False, lineterminator="\n")
        (fresh / PAGE).write_text(audit_page(audit, title=title), encoding="utf-8")
        manifest = {
            "format": FORMAT,
            "peerloss": __version__,
            "source": data.name,
            "data": copy.name,
            "sha256": _digest(copy),
            "labels": labels,
            "summary": audit.summary(),
        }
        text = json.dumps(manifest, indent=2, ensure_ascii=False, allow_nan=False)
        (fresh / MANIFEST).write_text(text + "\n", encoding="utf-8")


def read_folder(folder: Path) -> AuditFolder:
    """Read an audit; refuse what is none, or whose data were changed."""
    if not (folder / MANIFEST).is_file():
        raise InvalidInputError(
            f"{folder} is no audit: it has no {MANIFEST}. Make one with `peerloss audit`."
        )
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        name, columns, classes = manifest["data"], manifest["labels"], manifest["summary"]["classes"]
        sound = manifest["format"] == FORMAT and Path(name).name == name and name not in {"", ".", ".."}
        sound &= all(isinstance(text, str) for text in [*columns, *classes])
        labels = pd.read_csv(
            folder / LABELS, dtype={"name": str, "given": str, "suggested": str}, keep_default_na=False
        )
        sound &= list(labels) == list(COLUMNS) and labels["flagged"].dtype == bool
        sound &= labels["row"].dtype.kind == "i" and bool((labels["row"] >= 0).all())
        sound &= labels["p_error"].dtype.kind in "fi"
        digest = _digest(folder / name) if sound else ""
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise InvalidInputError(
            f"{folder} is a damaged audit: {error}. Make it again with `peerloss audit`."
        ) from error
    if not sound:
        raise InvalidInputError(
            f"{folder} is no audit that this version can read. Make it again with `peerloss audit`."
        )
    if digest != manifest["sha256"]:
        raise InvalidInputError(
            f"{folder / name} is not the table that was audited: it was changed since. Run "
            "`peerloss audit` again."
        )
    return AuditFolder(folder, manifest, labels)


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
