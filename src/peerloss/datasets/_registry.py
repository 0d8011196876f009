"""The ten data sets of the paper by name: embedded, generated, or from scikit-learn."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from sklearn.datasets import load_breast_cancer

from peerloss.datasets._synthetic import make_twonorm, make_waveform
from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    from peerloss._validation import IntArray


@dataclass(frozen=True)
class Dataset:
    """A classification data set with clean labels."""

    name: str
    X: pd.DataFrame
    """Raw features, one row an example; text columns stay text, missing values are NaN."""
    y: IntArray
    """Clean labels 0..K-1."""
    feature_names: tuple[str, ...]
    target_names: tuple[str, ...]
    citation: str


@dataclass(frozen=True)
class _Entry:
    target_names: tuple[str, str]
    citation: str


# Class 1 is the one that the paper's table counts as positive.
_EMBEDDED = {
    "heart": _Entry(
        ("disease", "no disease"),
        "Heart Disease (Cleveland), A. Janosi, W. Steinbrunn, M. Pfisterer, R. Detrano, 1988. "
        "UCI, doi:10.24432/C52P4X. One row is left out and one repeated, as in the copy the paper used.",
    ),
    "diabetes": _Entry(
        ("negative", "positive"),
        "Pima Indians Diabetes, National Institute of Diabetes and Digestive and Kidney Diseases, 1990.",
    ),
    "breast": _Entry(
        ("no-recurrence-events", "recurrence-events"),
        "Breast Cancer, M. Zwitter and M. Soklic, Institute of Oncology, Ljubljana, 1988. "
        "UCI, doi:10.24432/C51P4M.",
    ),
    "german": _Entry(
        ("good", "bad"),
        "Statlog (German Credit Data), H. Hofmann, 1994. UCI, doi:10.24432/C5NC77. "
        "1 is bad credit as in the paper's table; the paper's code has it reversed.",
    ),
    "splice": _Entry(
        ("N", "EI or IE"),
        "Molecular Biology (Splice-junction Gene Sequences), G. Towell, M. Noordewier, J. Shavlik, 1991. "
        "UCI, doi:10.24432/C5M888. Rows with ambiguous letters are left out.",
    ),
    "thyroid": _Entry(
        ("normal", "hyper or hypo"),
        "Thyroid Disease (new-thyroid), D. Coomans, 1992. UCI, doi:10.24432/C5D010.",
    ),
    "image": _Entry(
        ("cement, window or grass", "brickface, sky, foliage or path"),
        "Image Segmentation, Vision Group, University of Massachusetts, 1990. UCI, doi:10.24432/C5GP4N.",
    ),
}


_OTHER = {
    "breast2": _Entry(
        ("benign", "malignant"),
        "Breast Cancer Wisconsin (Diagnostic), W. Wolberg, O. Mangasarian, W. N. Street, 1995. "
        "UCI, doi:10.24432/C5DW2B; from scikit-learn.",
    ),
    "twonorm": _Entry(
        ("-", "+"),
        "L. Breiman, Bias, Variance, and Arcing Classifiers, TR 460, UC Berkeley, 1996; generated.",
    ),
    "waveform": _Entry(
        ("other waves", "waves 1 and 3"),
        "Waveform Database Generator (Version 1), L. Breiman and C. Stone, 1984. "
        "UCI, doi:10.24432/C5CS3C; generated.",
    ),
}
_ENTRIES = _EMBEDDED | _OTHER


def list_datasets() -> list[str]:
    """Return the names that :func:`load_dataset` knows."""
    return sorted(_ENTRIES)


def load_dataset(name: str) -> Dataset:
    """Load one of the paper's data sets, with clean labels.

    Parameters
    ----------
    name
        One of :func:`list_datasets`.

    Examples
    --------
    >>> heart = load_dataset("heart")
    >>> heart.X.shape, round(float(heart.y.mean()), 3)
    ((303, 13), 0.545)
    """
    if name not in _ENTRIES:
        raise InvalidInputError(f"`name` must be one of {', '.join(list_datasets())}; got {name!r}.")
    X, y = _read_embedded(name) if name in _EMBEDDED else _make_other(name)
    entry = _ENTRIES[name]
    return Dataset(
        name=name,
        X=X,
        y=y,
        feature_names=tuple(X.columns),
        target_names=entry.target_names,
        citation=entry.citation,
    )


def _read_embedded(name: str) -> tuple[pd.DataFrame, IntArray]:
    source = resources.files("peerloss.datasets") / "data" / f"{name}.csv.gz"
    with source.open("rb") as stream:
        table = pd.read_csv(stream, compression="gzip", na_values="?")
    return table.drop(columns="target"), table["target"].to_numpy(dtype=np.int64)


def _make_other(name: str) -> tuple[pd.DataFrame, IntArray]:
    if name == "breast2":
        bunch = load_breast_cancer()
        malignant = np.asarray(1 - bunch.target, dtype=np.int64)  # scikit-learn counts benign as 1
        return pd.DataFrame(bunch.data, columns=[str(column) for column in bunch.feature_names]), malignant
    X, y = make_twonorm() if name == "twonorm" else make_waveform()
    return pd.DataFrame(X, columns=[f"x{i + 1}" for i in range(X.shape[1])]), y
