"""Excel files: one sheet with names in the first row; hostile workbooks are refused."""

import sys
import zipfile

import numpy as np
import pandas as pd
import pytest

from peerloss.datasets import _open_limited, column_kinds, iter_table, read_table
from peerloss.datasets.tables import ReadOptions, read_with_notes
from peerloss.exceptions import InvalidInputError

openpyxl = pytest.importorskip("openpyxl", reason="needs openpyxl")


def write(path, rows, *, sheets=("first",)):
    book = openpyxl.Workbook()
    book.remove(book.active)
    for name in sheets:
        sheet = book.create_sheet(name)
        for row in rows if name == sheets[0] else [["other"], [1]]:
            sheet.append(row)
    book.save(path)
    return path


ROWS = [
    ["x", "n", "kind", "day", "flag", "price"],
    [1.5, 1, "u", pd.Timestamp("2024-12-31"), True, "$1,234.00"],
    [None, 2, "NA", None, False, "$5.00"],
    [],
    [2, 3, "?", pd.Timestamp("2025-01-01 12:30"), None, "7"],
]


def test_row_numbers_are_those_of_the_sheet(tmp_path):
    """Empty rows count, also in messages."""
    path = write(tmp_path / "t.xlsx", [[], ["x", "y"], [1, 2], [], [3, "many"]])
    numbers = read_with_notes(path).row_numbers
    assert [numbers[0], numbers[1]] == [3, 5]
    with pytest.raises(InvalidInputError, match=r"row 5: column 'y' must hold numbers.*got 'many'"):
        next(iter_table(path, kinds={"y": "number"}))


def test_a_title_above_the_names_is_named_as_the_cause(tmp_path):
    """The message says which rows to delete."""
    path = write(tmp_path / "t.xlsx", [["Report of March"], [], ["x", "y"], [1, 2]])
    with pytest.raises(InvalidInputError, match=r"row 3: a value to the right.*If row 1 is a title, delete"):
        read_table(path)


def test_messages_name_the_other_sheets(tmp_path):
    """A table on another sheet is the usual reason for missing rows and columns."""
    path = write(tmp_path / "t.xlsx", [["read me"]], sheets=("notes", "data"))
    with pytest.raises(
        InvalidInputError, match=r"sheet 'notes' \(--sheet chooses another: 'data'\) has a hea"
    ):
        read_table(path)
    path = write(tmp_path / "u.xlsx", [["x"], [1]], sheets=("notes", "data"))
    with pytest.raises(InvalidInputError, match=r"sheet 'notes' \(--sheet chooses.*has no column 'other'"):
        read_with_notes(path, labels=["other"])
    assert read_with_notes(path, labels=["other"], options=ReadOptions(sheet="data")).table.shape == (1, 1)


def test_cells_become_numbers_and_text(tmp_path):
    """Dates and flags are text, empty cells and the usual words are missing, empty rows are left out."""
    path = write(tmp_path / "t.xlsx", ROWS)
    table = read_table(path)
    assert column_kinds(table) == dict.fromkeys(["x", "n", "price"], "number") | dict.fromkeys(
        ["kind", "day", "flag"], "text"
    )
    np.testing.assert_array_equal(table["x"], [1.5, np.nan, 2.0])
    assert table["price"].tolist() == [1234.0, 5.0, 7.0]
    assert table["kind"].isna().tolist() == [False, True, True]
    assert table["day"].dropna().tolist() == ["2024-12-31", "2025-01-01T12:30:00"]
    assert table["flag"].dropna().tolist() == ["TRUE", "FALSE"]
    joined = pd.concat(iter_table(path, chunk_rows=2, kinds={"n": "number", "kind": "text"}))
    pd.testing.assert_frame_equal(joined, table)


def test_chunks_read_text_as_the_table_does(tmp_path):
    """Columns that must be text are not converted, and NA is missing in them however frequent it is."""
    rows = [["code", "kind"], *([f"{i} 000", "NA" if i % 2 else "u"] for i in range(1, 41))]
    path = write(tmp_path / "t.xlsx", rows)
    (chunk,) = iter_table(path, kinds={"code": "text", "kind": "text"})
    assert chunk["code"].iloc[0] == "1 000"
    assert chunk["kind"].isna().sum() == 20


def test_the_sheet_can_be_named(tmp_path):
    """The first sheet is the default; an unknown name is refused with the names of the sheets."""
    path = write(tmp_path / "t.xlsx", [["a"], [1], [2]], sheets=("first", "second"))
    assert list(read_table(path)) == ["a"]
    assert list(read_table(path, options=ReadOptions(sheet="second"))) == ["other"]
    with pytest.raises(InvalidInputError, match="`sheet` must be one of 'first', 'second'; got 'third'"):
        read_table(path, options=ReadOptions(sheet="third"))


def test_frequent_words_are_labels(tmp_path):
    """The rule for NA and None is that of CSV files."""
    rows = [["x", "label"], *([i, "None" if i % 2 else "scratch"] for i in range(40))]
    reading = read_with_notes(write(tmp_path / "t.xlsx", rows), labels=["label"])
    assert reading.table["label"].value_counts().to_dict() == {"scratch": 20, "None": 20}


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "is empty; expected a first row"),
        ([["a", "b"]], "has a header but no rows"),
        ([["a", None, "c"], [1, 2, 3]], "column 2 has no name in row 1"),
        ([["a", "a"], [1, 2]], "'a' occurs more than once"),
        ([["a"], [1], [2, 3]], "row 3: a value to the right of the last column with a name, 'a'"),
    ],
)
def test_sheets_that_are_not_tables_are_refused(tmp_path, rows, message):
    """The message has the row and what to do."""
    path = write(tmp_path / "t.xlsx", rows)
    with pytest.raises(InvalidInputError, match=message):
        read_table(path)


def test_a_text_in_a_column_of_numbers_is_located(tmp_path):
    """A model needs numbers; the message has the option that makes the word missing."""
    path = write(tmp_path / "t.xlsx", [["a"], [1], ["unknown"], [3]])
    with pytest.raises(InvalidInputError, match=r"row 3: column 'a' must hold numbers.*--na-values unknown"):
        list(iter_table(path, kinds={"a": "number"}))
    options = ReadOptions(na_values=("unknown",))
    assert pd.concat(iter_table(path, kinds={"a": "number"}, options=options))["a"].isna().sum() == 1


def rewritten(path, change):
    """Copy a workbook with other content in its sheet."""
    new = path.with_name("hostile.xlsx")
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(new, "w", zipfile.ZIP_DEFLATED) as out:
        for name in old.namelist():
            content = old.read(name)
            out.writestr(name, change(content) if name == "xl/worksheets/sheet1.xml" else content)
    return new


def test_archives_that_unpack_to_far_more_are_refused(tmp_path, monkeypatch):
    """The size is checked before anything is unpacked."""
    path = write(tmp_path / "t.xlsx", [["a"], [1]])
    hostile = rewritten(path, lambda content: content + b" " * 2**24)
    monkeypatch.setattr(_open_limited, "FREE_BYTES", 2**20)
    with pytest.raises(InvalidInputError, match=r"unpacks to more than \d MiB.*Save the sheet as CSV"):
        read_table(hostile)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_xml_entities_are_refused(tmp_path, encoding):
    """Nested entities unpack to any size; workbooks have none."""
    laughs = '<!DOCTYPE x [<!ENTITY a "ha"><!ENTITY b "&a;&a;">]>'
    path = write(tmp_path / "t.xlsx", [["a"], [1]])
    hostile = rewritten(path, lambda content: (laughs + content.decode()).encode(encoding))
    with pytest.raises(InvalidInputError, match=r"sheet1.xml declares XML entities"):
        read_table(hostile)


def test_cells_far_away_use_no_memory(tmp_path):
    """A cell in the last column of the last row is refused or ignored without building the rows between."""
    path = write(tmp_path / "t.xlsx", [["a"], [1]])
    far = b'<row r="1048577"><c r="XFD1048577"><v>1</v></c></row></sheetData>'
    assert len(read_table(rewritten(path, lambda content: content.replace(b"</sheetData>", far)))) == 1
    beside = b'<row r="9"><c r="A9"><v>1</v></c><c r="XFD9"><v>1</v></c></row></sheetData>'
    table = read_table(rewritten(path, lambda content: content.replace(b"</sheetData>", beside)))
    assert table.shape == (2, 1)


@pytest.mark.parametrize("content", [b"a,b\n1,2\n", b"PK\x03\x04 not a zip file"])
def test_other_files_are_refused(tmp_path, content):
    """The message says how to make a readable file."""
    path = tmp_path / "t.xlsx"
    path.write_bytes(content)
    with pytest.raises(InvalidInputError, match=r"not a readable workbook.*save it again"):
        read_table(path)


def test_a_missing_package_is_named(tmp_path, monkeypatch):
    """The message contains the command that installs it."""
    path = write(tmp_path / "t.xlsx", [["a"], [1]])
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(InvalidInputError, match=r'Excel files need .*pip install .*"openpyxl'):
        read_table(path)


def test_number_cells_beside_numbers_stored_as_text_are_kept(tmp_path):
    """The decimal mark applies to text only: the number 1.234 is not a thousand."""
    rows = [["a", "share"], [1.234, 5], ["2,5", "6 %"], [3, 7], [None, 8]]
    reading = read_with_notes(write(tmp_path / "t.xlsx", rows))
    np.testing.assert_array_equal(reading.table["a"], [1.234, 2.5, 3.0, np.nan])
    assert reading.table["share"].tolist() == ["5", "6 %", "7", "8"]
    assert {note.column: note.text for note in reading.notes} == {
        "a": "is read as numbers; '2,5' is 2.5",
        "share": "is text because it mixes '%' and no unit; convert its values to one unit",
    }


def test_parentheses_beside_number_cells_mean_negative_numbers(tmp_path):
    """Codes such as (1) are all in parentheses; here the number cells show that the others are numbers."""
    path = write(tmp_path / "t.xlsx", [["x"], [1.5], [2], ["(3.00)"]])
    assert read_table(path)["x"].tolist() == [1.5, 2.0, -3.0]
