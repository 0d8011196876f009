"""Read CSV, Parquet and ARFF files, entirely and in chunks; refuse damaged ones."""

import csv
import gzip
import importlib.util
import re
import sys
import tempfile
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from peerloss._installing import install_command
from peerloss.datasets import column_kinds, iter_table, read_table, require_columns
from peerloss.exceptions import InvalidInputError

needs_arrow = pytest.mark.skipif(importlib.util.find_spec("pyarrow") is None, reason="needs pyarrow")
needs_arff = pytest.mark.skipif(importlib.util.find_spec("arff") is None, reason="needs liac-arff")

ARFF = """% a comment
@relation weather
@attribute outlook {sunny, 'light rain'}
@attribute temperature numeric
@attribute note string
@data
sunny, 20.5, 'warm, dry'
'light rain', ?, ?
% another
sunny, 18, mild
"""


@pytest.fixture
def write(tmp_path):
    def write(content, name="table.csv"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def test_csv_columns_are_numbers_or_text(write):
    """Text, several spellings of missing values, quoted delimiters and booleans."""
    table = read_table(write('age,job,smoker\n31,"clerk, senior",true\n,?,false\n52,NA,\n'))
    assert column_kinds(table) == {"age": "number", "job": "text", "smoker": "text"}
    assert table["job"].dropna().tolist() == ["clerk, senior"]
    assert table["smoker"].dropna().tolist() == ["true", "false"], "as in the file, not as in Python"
    assert table["age"].isna().tolist() == [False, True, False]


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_the_delimiter_is_inferred_from_the_header(write, delimiter):
    """Comma, semicolon or tab; a byte order mark, blank lines and spaces after delimiters are ignored."""
    rows = [["a", "b", "c"], ["1", " x", "2.5"], ["2", "y", "3.5"]]
    text = "\n\n".join(delimiter.join(row) for row in rows)
    table = read_table(write(b"\xef\xbb\xbf" + text.encode()))
    assert table.to_dict("list") == {"a": [1, 2], "b": ["x", "y"], "c": [2.5, 3.5]}


def test_the_index_that_pandas_writes_is_left_out(write):
    """A row number would be a feature that encodes the order of the file."""
    path = write(pd.DataFrame({"a": [3, 4], "b": ["x", "y"]}).to_csv())
    assert list(read_table(path)) == ["a", "b"]


def test_gzipped_csv(write):
    """A gzipped file is read; a truncated one is refused."""
    packed = gzip.compress(b"a,b\n" + b"1,2\n" * 5000)
    for name in ("table.csv.gz", "table.CSV.GZ"):
        assert len(read_table(write(packed, name))) == 5000
    with pytest.raises(InvalidInputError, match="not a complete gzip file"):
        read_table(write(packed[:-20], "cut.csv.gz"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty"),
        ("\n \n", "is empty; expected a header line"),
        ("a,b\n", "has a header but no rows"),
        ("a,b\n1,2\n\n3\n", r"line 4: expected 2 fields, as in the header, but found 1"),
        ("a,b\n1,2\n3,4,5\n", r"line 3: expected 2 fields.*found 3.*unquoted ','"),
        ('a,b\n"x\ny",2\n3\n', "line 4: expected 2"),
        ('a,b\n1,2\n3,"x\n4,5\n', "line 3: unexpected end of data.*quotation mark"),
        ("a,b,a\n1,2,3\n", "column names must be unique; 'a' occurs more than once"),
        ("a,b,\n1,2,\n", "column 3 has no name"),
        (b"a,b\n1,2\n3,caf\xe9\n", r"line 3: not UTF-8 text"),
        (b"PK\x03\x04\xff\xfe\x00", "line 1: not UTF-8 text"),
    ],
)
def test_damaged_csv_is_refused_with_the_line_number(write, content, message):
    """No value is filled in and no column is renamed silently."""
    path = write(content)
    with pytest.raises(InvalidInputError, match=message) as caught:
        read_table(path)
    assert str(path) in str(caught.value)
    with pytest.raises(InvalidInputError, match=message):
        iter_table(path)


def test_the_path_must_be_a_table(tmp_path, write):
    """Missing files, folders and unknown endings are refused with the accepted endings."""
    with pytest.raises(InvalidInputError, match=r"nothing.csv does not exist.*\.parquet"):
        read_table(tmp_path / "nothing.csv")
    with pytest.raises(InvalidInputError, match="is a folder"):
        read_table(tmp_path)
    with pytest.raises(InvalidInputError, match=r"must end in .csv.*Save the table as CSV"):
        read_table(write("x", "table.ods"))


def test_joined_chunks_equal_the_table(write):
    """The values and the index are the same for every chunk size."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"x": rng.normal(size=23), "name": rng.choice(["u", "v", "007"], 23)})
    path = write(table.to_csv(index=False))
    for rows in (1, 7, 100):
        joined = pd.concat(iter_table(path, chunk_rows=rows, kinds={"name": "text"}))
        pd.testing.assert_frame_equal(joined, read_table(path))
    with pytest.raises(InvalidInputError, match="`chunk_rows` must be an integer"):
        iter_table(path, chunk_rows=0)


CELL = st.text(alphabet=',;"\n\r\t ab1é', min_size=1, max_size=6)


@given(rows=st.lists(st.tuples(CELL, CELL), min_size=1, max_size=6), chunk_rows=st.integers(1, 3))
def test_any_quoted_text_is_read_unchanged(rows, chunk_rows):
    """Delimiters, quotation marks, line ends and spaces inside quotes are kept."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "any.csv")
        with path.open("w", newline="", encoding="utf-8") as stream:
            csv.writer(stream, quoting=csv.QUOTE_ALL).writerows([("u", "v"), *rows])
        read = pd.concat(iter_table(path, chunk_rows=chunk_rows, kinds={"u": "text", "v": "text"}))
    assert list(read.itertuples(index=False, name=None)) == rows


def test_kinds_are_the_same_in_all_chunks(write):
    """Text stays text in a chunk of digits; text in a column of numbers is refused with its line."""
    path = write('a,b\n1,2\n\n"2",3\n"x\ny",4\n')
    chunks = list(iter_table(path, chunk_rows=1, kinds={"a": "text", "b": "number"}))
    assert [chunk["a"].item() for chunk in chunks] == ["1", "2", "x\ny"]
    with pytest.raises(InvalidInputError, match=r"line 5: column 'a' must hold numbers.*text"):
        list(iter_table(path, chunk_rows=1))


def test_missing_columns_are_listed(write):
    """The message lists missing and present columns and suggests a similar name."""
    path = write("age,labels\n1,2\n")
    with pytest.raises(
        InvalidInputError, match=r"no column 'label'; its columns are 'age', 'labels'. Did you mean"
    ):
        next(iter_table(path, kinds={"label": "text"}))
    with pytest.raises(InvalidInputError, match=r"my table has no column 'q', 'r'; its columns are 'age'.$"):
        require_columns(["age"], ["q", "age", "r"], where="my table")
    with pytest.raises(InvalidInputError, match=r"'c39' and 60 more\."):
        require_columns([f"c{i}" for i in range(100)], ["x"], where="my table")


@needs_arrow
def test_parquet(tmp_path):
    """Booleans, dates and categories become text; indexes are left out; joined chunks equal the table."""
    table = pd.DataFrame(
        {
            "n": [1, 2, 3],
            "x": [0.5, None, 1.5],
            "flag": [True, False, None],
            "day": pd.to_datetime(["2020-01-01", None, "2020-01-03"]),
            "kind": pd.Categorical(["u", "v", "u"]),
        },
        index=[9, 8, 7],
    )
    path = tmp_path / "table.parquet"
    table.to_parquet(path)
    read = read_table(path)
    assert column_kinds(read) == {"n": "number", "x": "number", "flag": "text", "day": "text", "kind": "text"}
    assert read["flag"].dropna().tolist() == ["True", "False"]
    assert read["kind"].tolist() == ["u", "v", "u"]
    assert read.index.tolist() == [0, 1, 2]
    pd.testing.assert_frame_equal(pd.concat(iter_table(path, chunk_rows=2)), read)
    with pytest.raises(InvalidInputError, match=r"row 1: column 'kind' must hold numbers.*'u'"):
        list(iter_table(path, kinds={"kind": "number"}))


@needs_arrow
def test_damaged_parquet_is_refused(tmp_path, write):
    """Other formats, files without rows and repeated column names."""
    import pyarrow as pa  # noqa: PLC0415
    from pyarrow import parquet  # noqa: PLC0415

    with pytest.raises(InvalidInputError, match="not a readable Parquet file"):
        read_table(write("a,b\n1,2\n", "fake.parquet"))
    pd.DataFrame({"a": pd.Series([], dtype=float)}).to_parquet(tmp_path / "none.parquet")
    with pytest.raises(InvalidInputError, match="no rows"):
        read_table(tmp_path / "none.parquet")
    parquet.write_table(pa.table([pa.array([1]), pa.array([2])], names=["a", "a"]), tmp_path / "two.parquet")
    with pytest.raises(InvalidInputError, match="'a' occurs more than once"):
        read_table(tmp_path / "two.parquet")


@needs_arff
def test_arff(write):
    """Declared types are used; quotes, comments and question marks are parsed."""
    path = write(ARFF, "weather.arff")
    table = read_table(path)
    assert column_kinds(table) == {"outlook": "text", "temperature": "number", "note": "text"}
    assert table["outlook"].tolist() == ["sunny", "light rain", "sunny"]
    assert table["note"].isna().tolist() == [False, True, False]
    pd.testing.assert_frame_equal(pd.concat(iter_table(path, chunk_rows=2)), table)
    assert len(read_table(write(gzip.compress(ARFF.encode()), "weather.arff.gz"))) == 3


@needs_arff
@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("sunny, 18, mild", "sunny, warm, mild", "line 10: Invalid numerical value"),
        ("sunny, 18, mild", "snow, 18, mild", "line 10: Data value snow not found"),
        ("sunny, 18, mild", "sunny, 18", "line 10: Bad @DATA instance"),
        ("temperature numeric", "outlook numeric", "line 4: Bad @ATTRIBUTE name outlook"),
        (ARFF[ARFF.index("sunny, 20") :], "", "header but no rows"),
        (ARFF, "no arff at all", "line 1: Invalid layout"),
    ],
)
def test_damaged_arff_is_refused_with_the_line_number(write, old, new, message):
    """Errors in the header and in the data are located."""
    with pytest.raises(InvalidInputError, match=message):
        read_table(write(ARFF.replace(old, new), "broken.arff"))


@pytest.mark.parametrize(("package", "name"), [("pyarrow", "t.parquet"), ("arff", "t.arff")])
def test_missing_packages_are_reported(write, monkeypatch, package, name):
    """The message contains the command that installs them."""
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(InvalidInputError, match=re.escape(f"{install_command('tables')}. Or save")):
        read_table(write("anything", name))


def test_decimal_numbers_of_parquet_files_are_numbers(tmp_path):
    """They are read as floats, entirely and in chunks."""
    pytest.importorskip("pyarrow", reason="needs pyarrow")
    table = pd.DataFrame({"price": [Decimal("1.50"), None, Decimal("2.25")], "label": ["a", "b", "a"]})
    table.to_parquet(tmp_path / "t.parquet")
    for found in (read_table(tmp_path / "t.parquet"), next(iter_table(tmp_path / "t.parquet"))):
        assert column_kinds(found) == {"price": "number", "label": "text"}
        assert found["price"].sum() == 3.75
