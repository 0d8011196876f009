"""CSV text: written tables can be read back, and single fields can be edited."""

import csv
import io
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from peerloss.datasets import iter_table, read_table
from peerloss.datasets.tables import (
    append_field,
    neutralise,
    read_records,
    replace_field,
    write_table,
)
from peerloss.exceptions import InvalidInputError

TEXT = st.text(
    alphabet=st.one_of(st.sampled_from(" ,;\"\t\r\n=+-@'\ufeff\u2028éa1"), st.characters(codec="utf-8"))
)
CELL = TEXT.map(lambda text: text.replace("\0", ""))


def written(table, **options):
    stream = io.StringIO(newline="")
    write_table(stream, table, **options)
    return stream.getvalue()


def read_back(text):
    return list(csv.reader(io.StringIO(text, newline=""), skipinitialspace=True, strict=True))


@given(rows=st.integers(1, 3).flatmap(lambda k: st.lists(st.tuples(*[CELL] * k), min_size=1, max_size=5)))
def test_any_cells_can_be_read_back(rows):
    """Line ends, quotation marks, delimiters, spaces and byte order marks, in the header and in rows."""
    table = pd.DataFrame(rows[1:], columns=pd.Index(rows[0], dtype=object), dtype=object)
    assert read_back(written(table)) == [list(row) for row in rows]


@given(rows=st.lists(st.tuples(CELL, CELL), min_size=1, max_size=6))
def test_any_cells_can_be_read_back_in_chunks(rows):
    """The same rows with the same text, except for the values that mean missing."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "any.csv")
        with path.open("w", encoding="utf-8", newline="") as stream:
            write_table(stream, pd.DataFrame(rows, columns=["u", "v;;"], dtype=object))
        read = pd.concat(iter_table(path, chunk_rows=2, kinds={"u": "text", "v;;": "text"}))
    assert len(read) == len(rows)
    for cells, found in zip(rows, read.itertuples(index=False, name=None), strict=True):
        assert all(pd.isna(text) or text == cell for cell, text in zip(cells, found, strict=True))
        assert all(len(cell) <= 9 for cell, text in zip(cells, found, strict=True) if pd.isna(text))


def test_values_are_written_as_by_pandas():
    """Numbers, dates, booleans, categories and missing values."""
    table = pd.DataFrame(
        {
            "n": [1, 2],
            "x": [0.1, None],
            "big": [1e300, -1.5e-7],
            "flag": [True, False],
            "day": pd.to_datetime(["2020-01-02", None]),
            "kind": pd.Categorical(["u", None]),
            "mixed": np.array([3, None], dtype=object),
            "text": ["plain", None],
        }
    )
    assert written(table) == table.to_csv(index=False, lineterminator="\n")
    assert written(table[["x"]]) == table[["x"]].to_csv(index=False, lineterminator="\n")


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", ""])
def test_a_field_is_replaced_or_added_in_place(end):
    """Spaces and quotation marks around it are kept; text that needs quotation marks gets them."""
    source = f'1,  a b ,"x, ""y""",  "z"{end}'
    assert replace_field(source, 1, "c", ",") == f'1,  c,"x, ""y""",  "z"{end}'
    assert replace_field(source, 2, 'q"', ",") == f'1,  a b ,"q""",  "z"{end}'
    assert replace_field(source, 3, "w", ",") == f'1,  a b ,"x, ""y""",  "w"{end}'
    assert replace_field(source, 0, "\r", ",") == f'"\r",  a b ,"x, ""y""",  "z"{end}'
    assert append_field(source, "n,m", ",") == f'1,  a b ,"x, ""y""",  "z","n,m"{end}'


def test_records_keep_their_source():
    """Joined, they are equal to the text; blank lines are records too."""
    text = 'a,b\r\n\n1,"x\r\ny"\r  \r2,3'
    records = list(read_records(io.StringIO(text, newline=""), Path("x.csv"), ","))
    assert "".join(record.source for record in records) == text
    assert [record.line for record in records] == [1, 2, 3, 5, 6]
    assert [record.is_blank for record in records] == [False, True, False, True, False]


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("=1+1", "'=1+1"), ("+cmd", "'+cmd"), ("-x", "'-x"), ("@sum", "'@sum"), ("\tx", "'\tx"),
        ("\rx", "'\rx"),
        ("'x", "''x"), ("-1.5", "-1.5"), ("+3e-7", "+3e-7"), ("x=1", "x=1"), ("", ""),
    ],
)  # fmt: skip
def test_formulas_are_neutralised(text, safe):
    """They get an apostrophe in front; numbers and other text are unchanged."""
    assert neutralise(text) == safe


@given(cell=CELL)
def test_neutralised_cells_can_be_restored(cell):
    """Removing one apostrophe restores the text."""
    assert neutralise(cell).removeprefix("'") == cell
    assert neutralise(cell)[:1] not in set("=@\t\r\n")


def test_tables_can_be_made_safe_for_spreadsheets():
    """Text and column names are neutralised, numbers are not; by default nothing is."""
    table = pd.DataFrame({"=a": ["=b", "-1"], "x": [-1, 2]})
    assert written(table, spreadsheet_safe=True) == "'=a,x\n'=b,-1\n-1,2\n"
    assert written(table) == "=a,x\n=b,-1\n-1,2\n"


@pytest.mark.parametrize(
    "header", ['"a;b;c",d', '"a\n;;",d', '"a\t\tb",d', 'a,"b;;"', '"5"" ;;",b', '5" a,b']
)
def test_quoted_delimiters_are_ignored(tmp_path, header):
    """The delimiter is the one that separates the column names."""
    path = tmp_path / "t.csv"
    path.write_text(header + "\n1,2\n", newline="")
    assert read_table(path).shape == (1, 2)


def test_a_nul_in_the_header_is_refused(tmp_path):
    """The message names the file and what to do."""
    path = tmp_path / "t.csv"
    path.write_bytes(b"a\0,b\n1,2\n")
    with pytest.raises(InvalidInputError, match=r"t\.csv: the header line contains a NUL.*Save the table"):
        read_table(path)


def test_an_empty_field_that_pandas_would_drop_is_refused(tmp_path):
    """After an empty line that ends in a carriage return only, pandas skips a delimiter."""
    path = tmp_path / "t.csv"
    path.write_bytes(b"a,b\r1,2\r\r,3\r")
    with pytest.raises(InvalidInputError, match=r"line 4: an empty first field.*Remove the empty line"):
        read_table(path)
