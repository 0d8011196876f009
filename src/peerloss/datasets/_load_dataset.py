"""Load data sets: built-in ones by name, those of OpenML by number, and files by path."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from peerloss.datasets._catalogue import EMBEDDED, GENERATED, OTHER
from peerloss.datasets._synthetic import make_two_circles, make_twonorm, make_waveform
from peerloss.datasets.tables._columns import split_target
from peerloss.datasets.tables._read_table import read_table
from peerloss.datasets.tables._reading import TABLE_SUFFIXES
from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    from peerloss._validation import IntArray

_ENTRIES = EMBEDDED | GENERATED | OTHER
#: Built-in data sets that are not in the paper's tables and not in :func:`list_datasets`.
OTHER_DATASETS = tuple(OTHER)


@dataclass(frozen=True)
class Dataset:
    """A classification data set with clean labels."""

    name: str
    X: pd.DataFrame
    """Raw features, one row per example. Text columns stay text; missing values are NaN."""
    y: IntArray
    """Clean labels 0..K-1."""
    feature_names: tuple[str, ...]
    target_names: tuple[str, ...]
    citation: str
    notes: tuple[str, ...] = ()
    """Known edits, repeated rows and reversed labels, which matter when results are compared."""


def list_datasets() -> list[str]:
    """Return the names of the ten data sets in the paper's tables, for :func:`load_dataset`."""
    return sorted(EMBEDDED | GENERATED)


def load_dataset(
    name: str | Path, *, data_dir: str | Path | None = None, target: str | None = None
) -> Dataset:
    """Load a data set with labels coded 0..K-1.

    Parameters
    ----------
    name
        One of :func:`list_datasets`; ``"circles"``, the data of the paper's decision boundaries;
        ``"heart-as-released"``, heart in the row order of the authors' file; ``"openml:31"``, a data set of
        openml.org by number; or the path of a CSV, Parquet or ARFF file.
    data_dir
        Folder for downloads from OpenML (by default in scikit-learn's data folder), and the folder that a
        relative path starts from (by default the current one).
    target
        The column with the labels, for a file; for OpenML, to replace the default target.

    Raises
    ------
    InvalidInputError
        If the name is unknown, the file cannot be read or has no such column, labels are missing or all the
        same, or an OpenML data set is not in the cache and cannot be downloaded.

    Examples
    --------
    >>> heart = load_dataset("heart")
    >>> heart.X.shape, round(float(heart.y.mean()), 3)
    ((303, 13), 0.545)
    """
    text = str(name)
    if text in _ENTRIES:
        if target is not None:
            raise InvalidInputError(
                f"`target` names a column of a file or an OpenML data set; {text!r} includes its labels. "
                "Omit it."
            )
        return _load_built_in(text)
    if text.startswith("openml:"):
        from peerloss.datasets._openml import read_openml  # noqa: PLC0415 - needs scikit-learn

        number = text.removeprefix("openml:")
        table, record = read_openml(number, data_dir)
        where = f"OpenML data set {number} ({record.name})"
        note = f"{record.name} from https://www.openml.org/d/{number}."
        return _as_dataset(table, target or record.target, text, where, record.citation, note)
    if isinstance(name, Path) or text.lower().endswith(TABLE_SUFFIXES) or Path(text).is_file():
        path = Path(data_dir or ".", text)
        return _as_dataset(read_table(path), target, path.name, str(path), f"The file {path}.")
    raise InvalidInputError(
        f"`name` must be one of {', '.join(_ENTRIES)}, 'openml:' and a number, or a file "
        f"whose name ends in {', '.join(TABLE_SUFFIXES)}; got {text!r}."
    )


def _as_dataset(
    table: pd.DataFrame, target: str | None, name: str, where: str, citation: str, *notes: str
) -> Dataset:
    """Split the labels off a table and code them 0..K-1 in sorted order."""
    X, labels = split_target(table, target, where=where)
    codes, values = pd.factorize(labels, sort=True)
    classes = tuple(f"{value:g}" if isinstance(value, float) else str(value) for value in values)
    return Dataset(name, X, codes.astype(np.int64), tuple(X.columns), classes, citation, notes)


def _load_built_in(name: str) -> Dataset:
    if name == "heart-as-released":
        X, y = _read_embedded("heart")
        positive_first = np.argsort(-y, kind="stable")
        X, y = X.iloc[positive_first].reset_index(drop=True), y[positive_first]
    else:
        X, y = _read_embedded(name) if name in EMBEDDED else _generate(name)
    entry = _ENTRIES[name]
    return Dataset(name, X, y, tuple(X.columns), entry.target_names, entry.citation, entry.notes)


def _read_embedded(name: str) -> tuple[pd.DataFrame, IntArray]:
    source = resources.files("peerloss.datasets") / "data" / f"{name}.csv.gz"
    with source.open("rb") as stream:
        table = pd.read_csv(stream, compression="gzip", na_values="?")
    return table.drop(columns="target"), table["target"].to_numpy(dtype=np.int64)


def _generate(name: str) -> tuple[pd.DataFrame, IntArray]:
    if name == "breast2":
        from sklearn.datasets import load_breast_cancer  # noqa: PLC0415 - slow to import

        bunch = load_breast_cancer()
        malignant = np.asarray(1 - bunch.target, dtype=np.int64)  # scikit-learn counts benign as 1
        return pd.DataFrame(bunch.data, columns=[str(column) for column in bunch.feature_names]), malignant
    generators = {"twonorm": make_twonorm, "waveform": make_waveform, "circles": make_two_circles}
    X, y = generators[name]()
    return pd.DataFrame(X, columns=[f"x{i + 1}" for i in range(X.shape[1])]), y
