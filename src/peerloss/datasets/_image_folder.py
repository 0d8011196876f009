"""A folder of images with labels: class sub-folders, or a table of file names and labels.

Every image is decoded once, so that all files that cannot be used are known before anything is computed.
"""

from __future__ import annotations

import hashlib
import os
import unicodedata
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from peerloss.datasets._read_image import IMAGE_SUFFIXES, decode_image, import_pillow
from peerloss.datasets.tables import iter_table, read_with_notes, require_columns
from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from peerloss.datasets.tables import ReadOptions

#: Names that a message lists of each kind of problem.
LISTED = 5
#: Sub-folders with these names are parts of a data set, not classes.
SPLITS = {"train", "training", "test", "testing", "val", "valid", "validation", "dev"}
_OUTSIDE = "images outside the folder, or links that lead out of it"
_NOT_UNICODE = "images whose names are not valid Unicode"
_FOLDER_LINK = "links to folders, which are not followed"
_NO_CLASS = "images in no class sub-folder"
_MISSING = "images in the table, but not in the folder"
_AMBIGUOUS = "names that fit several images"
_NAMELESS = "rows without a file name"
_UNREADABLE = "unreadable images"


@dataclass(frozen=True, eq=False)
class ImageFolder:
    """Images and their labels; created by :func:`read_image_folder`."""

    folder: Path
    table: pd.DataFrame
    """One row per image: the columns of the table of labels, or ``file`` and ``label``."""
    paths: list[Path]
    """The image of each row; for a row that cannot be used, the folder itself."""
    usable: NDArray[np.bool_]
    """Whether the image of each row can be read; all can, unless some were skipped."""
    file_column: str = "file"
    """The column of the file names."""
    label_column: str = "label"
    """The column of the labels."""
    notes: list[str] = field(default_factory=list)
    """What was left out, and exact copies with different labels."""


def read_image_folder(
    folder: str | Path,
    labels: str | Path | None = None,
    *,
    file_column: str = "file",
    label_column: str = "label",
    skip_unreadable: bool = False,
    options: ReadOptions | None = None,
) -> ImageFolder:
    """Read which images a folder has and how they are labelled, and check that every image can be read.

    Parameters
    ----------
    folder
        The folder. Without ``labels``, each of its sub-folders is a class. Hidden files and files whose names
        do not end like an image's are ignored. Links to folders are not followed.
    labels
        A table with one row per image, as for :func:`read_table`. Files are named relative to ``folder``; the
        ending of a name may be missing. Images that are not in the table are ignored.
    file_column, label_column
        Columns of the table. The label column is checked by the caller, who may use several.
    skip_unreadable
        Leave out files that cannot be used, instead of refusing the folder.
    options
        How to read the table, as for :func:`read_table`.

    Returns
    -------
    ImageFolder
        Without ``labels``, rows are sorted by file name.

    Raises
    ------
    InvalidInputError
        If images are missing, damaged, too large, outside the folder, or named twice: the message counts them
        and lists the first ones. If there are fewer than two classes.

    Examples
    --------
    >>> import tempfile
    >>> from PIL import Image
    >>> folder = Path(tempfile.mkdtemp())
    >>> for name, colour in {"cat": "gray", "frog": "green"}.items():
    ...     (folder / name).mkdir()
    ...     Image.new("RGB", (8, 8), colour).save(folder / name / "1.png")
    >>> read_image_folder(folder).table
             file label
    0   cat/1.png   cat
    1  frog/1.png  frog
    """
    import_pillow()
    root = Path(folder)
    if not root.is_dir():
        raise InvalidInputError(f"{root} must be a folder of images; {_what_is(root)}.")
    found = _Files(root)
    if labels is None:
        table = found.class_table()
        names: list[Path | None] = [Path(name) for name in table["file"]]
        file_column, label_column = "file", "label"
    else:
        table, names = found.match(Path(labels), file_column, options)
    paths = [root if name is None else root / name for name in names]
    usable = _check(paths, names, found)
    if found.problems and not skip_unreadable:
        raise InvalidInputError(
            f"{root}: {_listed(found.problems)}. Correct or remove them, or leave them out with "
            "`skip_unreadable`."
        )
    if not usable.any():
        raise InvalidInputError(f"{root}: no image can be used: {_listed(found.problems)}.")
    if labels is None:
        _check_classes(table["label"][usable], root)
    notes = [f"Left out: {_listed(found.problems)}."] if found.problems else []
    notes += found.notes
    notes += _copies(paths, table, usable, label_column)
    kept = [path if ok else root for path, ok in zip(paths, usable, strict=True)]
    return ImageFolder(root, table, kept, usable, file_column, label_column, notes)


class _Files:
    """The images of a folder, relative to it, and what is wrong with some files."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.images: list[str] = []
        self.problems: dict[str, list[str]] = defaultdict(list)
        self.notes: list[str] = []
        others: list[str] = []
        links: list[str] = []
        for place, folders, files in os.walk(root):
            folders[:] = sorted(name for name in folders if not _is_hidden(name))
            here = Path(place).relative_to(root)
            links += [(here / name).as_posix() for name in folders if (Path(place) / name).is_symlink()]
            for name in sorted(files):
                if not _is_hidden(name):
                    is_image = name.lower().endswith(IMAGE_SUFFIXES)
                    (self.images if is_image else others).append((here / name).as_posix())
        self.links = links
        if others:
            self.notes.append(f"Files that are not images, ignored: {_some(others)}.")

    def class_table(self) -> pd.DataFrame:
        """Return one row per image in a sub-folder; the first part of its path is the label."""
        if self.links:
            self.problems[_FOLDER_LINK] += self.links
        inside = [name for name in self.images if "/" in name]
        if len(inside) < len(self.images):
            self.problems[_NO_CLASS] += [name for name in self.images if "/" not in name]
        unwritable = {name for name in inside if not _is_unicode(name)}
        if unwritable:
            self.problems[_NOT_UNICODE] += sorted(unwritable)
        inside = [name for name in inside if name not in unwritable]
        classes = [name.partition("/")[0] for name in inside]
        if not inside or set(map(str.lower, classes)) <= SPLITS:
            advice = f"its sub-folders are {_some(sorted(set(classes)))}" if inside else "none was found"
            raise InvalidInputError(
                f"{self.root} must have one sub-folder of images per class; {advice}. Pass the folder that "
                "contains the class folders, or a table of labels."
            )
        return pd.DataFrame({"file": inside, "label": classes}, dtype=object)

    def match(
        self, labels: Path, file_column: str, options: ReadOptions | None
    ) -> tuple[pd.DataFrame, list[Path | None]]:
        """Read the table of labels, and return the file of each row, or ``None`` if it cannot be used."""
        reading = read_with_notes(labels, options=options)
        table, numbers = reading.table, reading.row_numbers
        require_columns(table.columns, [file_column], where=str(labels))
        chunks = iter_table(labels, kinds={file_column: "text"}, options=options)
        text = pd.concat([chunk[file_column] for chunk in chunks])
        table[file_column] = text.to_numpy(dtype=object)  # "007" stays "007"
        full: dict[str, list[str]] = defaultdict(list)
        stems: dict[str, list[str]] = defaultdict(list)
        for name in self.images:
            full[_normal(name)].append(name)
            stems[_normal(str(PurePosixPath(name).with_suffix("")))].append(name)
        known = dict(stems) | dict(full)
        names = [self._find(value, numbers[row], known) for row, value in enumerate(table[file_column])]
        self._check_once(labels, names)
        unlabelled = sorted(set(self.images) - {name.as_posix() for name in names if name is not None})
        if unlabelled:
            self.notes.append(f"Images without a row in {labels.name}, ignored: {_some(unlabelled)}.")
        return table, names

    def _find(self, value: object, row: int, known: dict[str, list[str]]) -> Path | None:
        if not isinstance(value, str):
            self.problems[_NAMELESS].append(f"row {row}")
            return None
        name = value.strip().replace("\\", "/")
        if Path(name).is_absolute():
            name = os.path.relpath(name, self.root.absolute())
        name = os.path.normpath(name)
        if name == ".." or name.startswith("../") or "\0" in name:
            self.problems[_OUTSIDE].append(value)
            return None
        for candidate in (name, name.removeprefix(f"{self.root.resolve().name}/")):
            matches = known.get(_normal(candidate), [])
            if len(matches) == 1:
                return Path(matches[0])
            if matches:
                self.problems[_AMBIGUOUS].append(value)
                return None
            if os.path.lexists(self.root / candidate):
                return Path(candidate)
        self.problems[_MISSING].append(value)
        return None

    def _check_once(self, labels: Path, names: list[Path | None]) -> None:
        counts = pd.Series([name.as_posix() for name in names if name is not None], dtype=object)
        twice = list(counts[counts.duplicated()].unique())
        if twice:
            raise InvalidInputError(
                f"{labels}: every image must have one row; named more than once: {_some(twice)}. Keep one of "
                "the rows, or use one column per annotator."
            )


def _check(paths: list[Path], names: list[Path | None], found: _Files) -> NDArray[np.bool_]:
    """Decode every image, and note those that cannot be used."""
    usable = np.zeros(len(paths), dtype=bool)
    home = found.root.resolve()
    for place, (path, name) in enumerate(zip(paths, names, strict=True)):
        if name is None:
            continue
        try:
            inside = path.resolve().is_relative_to(home)
        except (OSError, RuntimeError):  # a link that leads to itself
            inside = False
        if not inside:
            found.problems[_OUTSIDE].append(name.as_posix())
            continue
        decoded = decode_image(path)
        if isinstance(decoded, str):
            found.problems[_UNREADABLE].append(f"{name.as_posix()} {decoded}")
        else:
            usable[place] = True
    return usable


def _check_classes(labels: pd.Series, root: Path) -> None:
    if labels.nunique() < 2:
        raise InvalidInputError(
            f"{root} must have images of at least two classes; all are in {labels.iloc[0]!r}. Pass the "
            "folder that contains the class folders, or a table of labels."
        )


def _copies(paths: list[Path], table: pd.DataFrame, usable: NDArray[np.bool_], column: str) -> list[str]:
    """Report files with the same content; those with different labels are at least half wrong."""
    same: dict[bytes, list[int]] = defaultdict(list)
    for row in np.flatnonzero(usable):
        with paths[row].open("rb") as stream:
            same[hashlib.file_digest(stream, "sha256").digest()].append(int(row))
    groups = [rows for rows in same.values() if len(rows) > 1]
    if not groups:
        return []
    notes = [f"Images that are exact copies of another one: {sum(map(len, groups)) - len(groups):,}."]
    if column in table:
        differ = [rows for rows in groups if len(table[column].iloc[rows].unique()) > 1]
        pairs = [" = ".join(paths[row].name for row in rows[:2]) for rows in differ]
        if differ:
            notes.append(f"Groups of exact copies with different labels: {_some(pairs)}.")
    return notes


def _what_is(path: Path) -> str:
    return "it is a file" if path.exists() else "it does not exist"


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or name == "__MACOSX"


def _is_unicode(name: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in name)


def _normal(name: str) -> str:
    """Return a name as it is compared: file systems compose accents differently."""
    return unicodedata.normalize("NFC", name)


def _listed(problems: dict[str, list[str]]) -> str:
    return "; ".join(f"{kind}: {_some(names)}" for kind, names in problems.items())


def _some(names: Iterable[str]) -> str:
    """Return the number of names and the first ones."""
    listed = [ascii(name)[1:-1] if not _is_unicode(name) else name for name in names]
    more = ", …" if len(listed) > LISTED else ""
    return f"{len(listed):,} ({', '.join(listed[:LISTED])}{more})"
