"""Small files that would use too much memory are refused before they are read."""

import gzip

import numpy as np
import pytest

from peerloss.datasets import _open_limited, read_table
from peerloss.exceptions import InvalidInputError


def test_one_line_of_a_gzipped_table_is_limited(tmp_path):
    """A few kilobytes could unpack to a line that does not fit into memory."""
    path = tmp_path / "line.csv.gz"
    path.write_bytes(gzip.compress(b"a,b\n1," + b"2" * (_open_limited.MAX_LINE + 10**6), 1))
    with pytest.raises(
        InvalidInputError, match=r"line.csv.gz has a line of more than 64 MiB, so it is not a table"
    ):
        read_table(path)


def test_one_line_of_a_plain_table_is_limited(tmp_path, monkeypatch):
    """A file with a line of gigabytes is not a table."""
    monkeypatch.setattr(_open_limited, "MAX_LINE", 10**4)
    path = tmp_path / "line.csv"
    path.write_bytes(b"a,b\n1," + b"2" * 10**5)
    with pytest.raises(InvalidInputError, match="has a line of more than"):
        read_table(path)


def test_a_gzipped_table_that_unpacks_to_too_much_is_refused(tmp_path, monkeypatch):
    """The limit holds for the entire file, also if its lines are short."""
    monkeypatch.setattr(_open_limited, "FREE_BYTES", 10**5)
    path = tmp_path / "bomb.csv.gz"
    path.write_bytes(gzip.compress(b"a,b\n" + b"1,2\n" * 10**6, 9))
    with pytest.raises(
        InvalidInputError, match=r"bomb.csv.gz unpacks to more than .* over 200 times its size"
    ):
        read_table(path)


def test_ordinary_tables_are_read(tmp_path):
    """A gzipped file with long lines is read."""
    rows = "".join(f"{i},{'x' * 2000}\r\n" for i in range(100))
    path = tmp_path / "table.csv.gz"
    path.write_bytes(gzip.compress(("a,b\r\n" + rows).encode()))
    table = read_table(path)
    assert table.shape == (100, 2)
    np.testing.assert_array_equal(table["a"], np.arange(100))


def test_a_parquet_file_of_very_many_equal_rows_is_refused(tmp_path, monkeypatch):
    """A few bytes can encode any number of equal rows."""
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr(_open_limited, "FREE_BYTES", 10**5)
    path = tmp_path / "rows.parquet"
    parquet.write_table(arrow.table({"a": np.zeros(10**6), "b": np.zeros(10**6)}), path)
    with pytest.raises(InvalidInputError, match=r"rows.parquet unpacks to more than"):
        read_table(path)


@pytest.mark.parametrize(
    "array", [np.arange(6).reshape(2, 3), np.zeros((0, 3)), np.asfortranarray(np.eye(3))]
)
def test_arrays_are_read_unchanged(array, tmp_path):
    """Any shape and memory order."""
    np.save(tmp_path / "array.npy", array)
    np.testing.assert_array_equal(_open_limited.read_array(tmp_path / "array.npy"), array)
