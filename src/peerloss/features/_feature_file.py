"""Files of features: one row of numbers per row of the data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from peerloss.datasets import column_kinds, read_table
from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from peerloss.datasets import ReadOptions

#: Rows that are checked at a time.
CHUNK = 4096
_REFUSED = {
    ".npz": "an archive of several arrays",
    ".pt": "a pickle, which may contain code",
    ".pth": "a pickle, which may contain code",
    ".pkl": "a pickle, which may contain code",
    ".pickle": "a pickle, which may contain code",
    ".joblib": "a pickle, which may contain code",
}


def read_features(path: str | Path, *, n_rows: int, options: ReadOptions | None = None) -> NDArray[Any]:
    """Read features from an ``.npy`` file, which is mapped into memory, or from a table of numbers.

    Parameters
    ----------
    path
        A file that ``numpy.save`` wrote, or a table as for :func:`peerloss.datasets.read_table`, such as
        Parquet. Pickles are never loaded.
    n_rows
        Number of rows of the data.
    options
        How to read a table, as for :func:`peerloss.datasets.read_table`; not used for an ``.npy`` file.

    Returns
    -------
    NDArray
        Shape (``n_rows``, d), of the type of the file.

    Raises
    ------
    InvalidInputError
        If the file cannot be read, does not have one row per row of the data, or has text, missing or
        infinite values.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "embeddings.npy"
    >>> np.save(path, np.zeros((3, 2), dtype=np.float32))
    >>> read_features(path, n_rows=3).shape
    (3, 2)
    """
    file = Path(path)
    kind = file.suffix.lower()
    if kind in _REFUSED:
        raise InvalidInputError(
            f'{file} is {_REFUSED[kind]}. Save one array with np.save("features.npy", array), or a Parquet '
            "file."
        )
    features = _read_npy(file) if kind == ".npy" else _read_numbers(file, options)
    if features.ndim != 2 or not features.shape[1] or features.dtype.kind not in "fiub":
        raise InvalidInputError(
            f"{file} must hold numbers in two dimensions, one row per row of the data; got shape "
            f"{features.shape} and type {features.dtype}."
        )
    if len(features) != n_rows:
        raise InvalidInputError(
            f"{file} must have one row per row of the data, {n_rows:,}; it has {len(features):,}."
        )
    for start in range(0, n_rows, CHUNK):
        bad = np.flatnonzero(~np.isfinite(features[start : start + CHUNK]).all(axis=1))
        if len(bad):
            raise InvalidInputError(
                f"{file}: row {start + bad[0]}, counted from 0, has a missing or infinite value. Replace it."
            )
    return features


def _read_npy(file: Path) -> NDArray[Any]:
    if not file.is_file():
        raise InvalidInputError(f"{file} must be a file of features; it does not exist or is a folder.")
    try:
        found: NDArray[Any] = np.load(file, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError, SyntaxError) as error:
        raise InvalidInputError(
            f"{file} is not a complete array in NumPy's format: {error}. Save it again with np.save; objects "
            "are not read."
        ) from error
    return found


def _read_numbers(file: Path, options: ReadOptions | None) -> NDArray[Any]:
    table = read_table(file, options=options)
    text = [name for name, kind in column_kinds(table).items() if kind != "number"]
    if text:
        raise InvalidInputError(
            f"{file} must hold numbers only; column {text[0]!r} does not. Save one column per feature."
        )
    return table.to_numpy(dtype=np.float64)
