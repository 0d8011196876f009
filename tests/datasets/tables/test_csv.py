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
    ReadOptions,
    append_field,
    neutralise,
    read_records,
    read_with_notes,
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
    """The message names the file and what to do; UTF-16 without a byte order mark is one cause."""
    path = tmp_path / "t.csv"
    path.write_text("a,b\n1,2\n", encoding="utf-16-le")
    message = r"t\.csv: the header line contains a NUL.*--encoding utf-16-le.*save the table"
    with pytest.raises(InvalidInputError, match=message):
        read_table(path)
    assert read_table(path, options=ReadOptions(encoding="utf-16-le"))["b"].tolist() == [2]


def test_long_texts_are_read(tmp_path):
    """A cell may have more than the 131,072 characters at which Python's reader stops by default."""
    path = tmp_path / "t.csv"
    path.write_text(f'a,b\n"{"word, " * 50_000}",1\n')
    assert read_table(path)["a"].str.len().tolist() == [300_000]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Report of March\n\na,b\n1,2\n", r"line 3: expected 1 field, as.*If line 1 is a title or a comment"),
        ("Report of March,\na,b\n1,2\n", r"column 2 has no name in the header line, line 1.*is a title"),
        ("\na,b\n1,2\n3\n", r"line 4: expected 2 fields, as in the header, but found 1\. Look for"),
    ],
)
def test_titles_above_the_header_are_named_as_the_cause(tmp_path, text, message):
    """The message says to delete the lines above the header, if there may be some."""
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(InvalidInputError, match=message):
        read_table(path)


def test_bars_separate_fields_if_nothing_else_does(tmp_path):
    """Names with bars do not change the delimiter of a file with commas."""
    (tmp_path / "bars.csv").write_text("a|b\n1|2,5\n")
    (tmp_path / "names.csv").write_text("a|b|c,d\n1,2\n")
    assert read_table(tmp_path / "bars.csv").columns.tolist() == ["a", "b"]
    assert read_table(tmp_path / "names.csv").columns.tolist() == ["a|b|c", "d"]


def test_labels_with_leading_zeros_are_text(tmp_path):
    """01 is the name of a class, not the number 1; other columns of numbers stay numbers."""
    path = tmp_path / "t.csv"
    path.write_text("a,label\n01,01\n02,10\n03,\n")
    table = read_with_notes(path, labels=["label"]).table
    assert table["label"].tolist()[:2] == ["01", "10"]
    assert table["label"].isna().tolist() == [False, False, True]
    assert table["a"].tolist() == [1, 2, 3]


def test_labels_with_leading_zeros_make_the_labels_of_all_annotators_text(tmp_path):
    """The 10 of an annotator who had no row to write 01 in is the 10 of the others."""
    path = tmp_path / "data.csv"
    path.write_text("first,second\n01,10\n10,11\n02,\n")
    table = read_with_notes(path, labels=["first", "second"]).table
    assert table["first"].tolist() == ["01", "10", "02"]
    assert table["second"].tolist()[:2] == ["10", "11"]
    assert table["second"].isna().tolist() == [False, False, True]


def test_row_numbers_count_the_header_and_empty_lines(tmp_path):
    """They are those of a spreadsheet, in which a record with line ends in quotes is one row."""
    path = tmp_path / "t.csv"
    path.write_text('\n\na,b\n1,2\n"x\ny",3\n\n4,5\n')
    numbers = read_with_notes(path).row_numbers
    assert [numbers[row] for row in range(3)] == [4, 5, 7]


def test_an_empty_field_that_pandas_would_drop_is_refused(tmp_path):
    """After an empty line that ends in a carriage return only, pandas skips a delimiter."""
    path = tmp_path / "t.csv"
    path.write_bytes(b"a,b\r1,2\r\r,3\r")
    with pytest.raises(InvalidInputError, match=r"line 4: an empty first field.*Remove the empty line"):
        read_table(path)
