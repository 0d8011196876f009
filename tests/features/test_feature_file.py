"""Files of features: formats, shapes, and what is refused."""

import numpy as np
import pandas as pd
import pytest

from peerloss.exceptions import InvalidInputError
from peerloss.features import _feature_file, read_features

X = np.arange(12, dtype=np.float32).reshape(4, 3)


def test_npy_files_are_mapped(tmp_path):
    """The file is not read into memory."""
    np.save(tmp_path / "x.npy", X)
    found = read_features(tmp_path / "x.npy", n_rows=4)
    assert isinstance(found, np.memmap)
    np.testing.assert_array_equal(found, X)


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_tables_of_numbers_are_read(tmp_path, suffix):
    """One column per feature."""
    table = pd.DataFrame(X, columns=list("abc"))
    if suffix == "parquet":
        pytest.importorskip("pyarrow", reason="needs pyarrow")
        table.to_parquet(tmp_path / "x.parquet")
    else:
        table.to_csv(tmp_path / "x.csv", index=False)
    np.testing.assert_array_equal(read_features(tmp_path / f"x.{suffix}", n_rows=4), X)


def save(array, name="x.npy", **options):
    return lambda folder: np.save(folder / name, array, **options)


def truncated(folder):
    np.save(folder / "x.npy", X)
    (folder / "x.npy").write_bytes((folder / "x.npy").read_bytes()[:-4])


@pytest.mark.parametrize(
    ("write", "name", "message"),
    [
        (lambda folder: np.savez(folder / "x.npz", X), "x.npz", "an archive of several arrays. Save one"),
        (lambda _folder: None, "x.pt", "a pickle, which may contain code"),
        (lambda _folder: None, "x.npy", "it does not exist"),
        (lambda _folder: None, "x.csv", "does not exist"),
        (save(np.array([{}], dtype=object), allow_pickle=True), "x.npy", "objects are not read"),
        (truncated, "x.npy", "is not a complete array"),
        (lambda folder: (folder / "x.npy").write_bytes(b"x"), "x.npy", "is not a complete array"),
        (save(X[0]), "x.npy", r"in two dimensions, one row per row of the data; got shape \(3,\)"),
        (save(X[:, :0]), "x.npy", r"got shape \(4, 0\)"),
        (save(X.astype(str)), "x.npy", "and type <U"),
        (save(X.astype(complex)), "x.npy", "and type complex128"),
        (save(X[:3]), "x.npy", "one row per row of the data, 4; it has 3"),
        (save(np.where(X == 7, np.nan, X)), "x.npy", "row 2, counted from 0, has a missing or infinite"),
        (lambda folder: (folder / "x.csv").write_text("a,b\n1,x\n"), "x.csv", "column 'b' does not"),
        (lambda folder: (folder / "x.csv").write_text("a\n1\n?\n3\n4\n"), "x.csv", "row 1, counted from 0"),
    ],
)
def test_other_files_are_refused(tmp_path, monkeypatch, write, name, message):
    """The message names the file and what is wrong; pickles are never loaded."""
    monkeypatch.setattr(_feature_file, "CHUNK", 2)
    write(tmp_path)
    with pytest.raises(InvalidInputError, match=message):
        read_features(tmp_path / name, n_rows=4)
