"""A second table of a command is read with those options of the main table that it needs."""

import gzip

import pandas as pd
import pytest

from peerloss.datasets import read_table
from peerloss.datasets.tables import ReadOptions, options_for_other
from peerloss.exceptions import InvalidInputError

MAIN = ReadOptions(encoding="cp1252", sep="!", decimal=",", na_values=("none",), sheet="data")
TABLE = pd.DataFrame({"größe": [0.5, 1.5], "label": ["ä", "none"]})


@pytest.mark.parametrize(
    ("written", "needed"),
    [
        ({"encoding": "utf-8"}, {}),
        ({"encoding": "cp1252"}, {"encoding"}),
        ({"encoding": "utf-8", "sep": "!"}, {"sep"}),
        ({"encoding": "cp1252", "sep": "!", "decimal": ","}, {"encoding", "sep"}),
        ({"encoding": "utf-8", "sep": ";", "decimal": ","}, {}),
        ({"encoding": "utf-8", "decimal": ","}, {"decimal"}),
    ],
)
def test_only_what_the_other_file_needs_is_used(tmp_path, written, needed):
    """A file of another program is read as it is; one like the main table with the same options."""
    path = tmp_path / "other.csv"
    TABLE.to_csv(path, index=False, **written)
    options = options_for_other(path, MAIN)
    assert options.as_dict().keys() - {"na_values"} == set(needed)
    table = read_table(path, options=options)
    assert table["größe"].tolist() == [0.5, 1.5]
    assert table["label"].isna().tolist() == [False, True]


def test_a_sheet_is_used_if_the_other_workbook_has_it(tmp_path):
    """Otherwise its first sheet is read; options of text files do not apply."""
    pytest.importorskip("openpyxl", reason="needs openpyxl")
    for sheet, expected in (("data", "data"), ("results", None)):
        path = tmp_path / f"{sheet}.xlsx"
        with pd.ExcelWriter(path) as book:
            pd.DataFrame({"a": [1]}).to_excel(book, sheet_name="first", index=False)
            TABLE.to_excel(book, sheet_name=sheet, index=False)
        options = options_for_other(path, MAIN)
        assert (options.sheet, options.encoding, options.sep) == (expected, None, None)


def test_a_missing_file_is_reported_by_the_reader(tmp_path):
    """No option is tried on it."""
    options = options_for_other(tmp_path / "no.csv", MAIN)
    with pytest.raises(InvalidInputError, match="does not exist"):
        read_table(tmp_path / "no.csv", options=options)


def test_the_decimal_mark_is_not_used_for_columns_that_are_text_for_another_reason(tmp_path):
    """A stray word in one column does not turn 1.100 of another one into a thousand."""
    path = tmp_path / "other.csv"
    path.write_text("size;note\n" + "".join(f"1.{100 + i};{i or 'unknown'}\n" for i in range(20)))
    options = options_for_other(path, MAIN)
    assert options.decimal is None
    assert read_table(path, options=options)["size"].iloc[0] == 1.1


@pytest.mark.parametrize(
    "content", [gzip.compress(b"task,label\n" * 5000)[:40], b"no gzip"], ids=["incomplete", "not gzip"]
)
def test_a_damaged_gzip_file_is_named(tmp_path, content):
    """The encoding cannot be tried on it; the message is that of the reader."""
    path = tmp_path / "other.csv.gz"
    path.write_bytes(content)
    with pytest.raises(InvalidInputError, match=r"other.csv.gz is not a complete gzip file.*Download"):
        options_for_other(path, MAIN)
