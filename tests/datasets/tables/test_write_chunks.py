"""Tables are written in the format of the file's ending, and can be read back."""

import sys
from pathlib import Path

import pandas as pd
import pytest

from peerloss.datasets import read_table
from peerloss.datasets.tables import OUTPUT_SUFFIXES, check_output_format, write_chunks
from peerloss.exceptions import InvalidInputError

FRAME = pd.DataFrame(
    {
        "name": ["=1+1", "tab\there", None, 'quo"ted'],
        "n": [1, 2, 3, 4],
        "x": [0.1, None, 1 / 3, -1e-300],
        "kind": pd.Categorical(["u", "v", "u", "u"]),
    }
)


@pytest.mark.parametrize("suffix", OUTPUT_SUFFIXES)
def test_every_format_is_read_back(tmp_path, suffix):
    """Numbers are exact and text is unchanged, also if it looks like a formula; chunks are joined."""
    for package, suffixes in {"pyarrow": (".parquet", ".pq"), "openpyxl": (".xlsx",)}.items():
        if suffix in suffixes:
            pytest.importorskip(package, reason=f"needs {package}")
    path = tmp_path / f"t{suffix}"
    assert check_output_format(path, "--output") == suffix
    write_chunks(path, [FRAME.iloc[:2], FRAME.iloc[2:]], suffix=suffix)
    table = read_table(path)
    assert list(table) == list(FRAME)
    assert table["name"].dropna().tolist() == ["=1+1", "tab\there", 'quo"ted']
    assert table["name"].isna().tolist() == [False, False, True, False]
    assert table["n"].tolist() == [1, 2, 3, 4]
    pd.testing.assert_series_equal(table["x"], FRAME["x"], rtol=0.0)
    assert table["kind"].tolist() == ["u", "v", "u", "u"]


def test_a_column_without_text_in_the_first_chunk(tmp_path):
    """Parquet files have one type per column, text for what is not numbers."""
    pytest.importorskip("pyarrow", reason="needs pyarrow")
    chunks = [pd.DataFrame({"a": pd.Series([None], dtype=object)}), pd.DataFrame({"a": ["x"]})]
    write_chunks(tmp_path / "t.parquet", chunks, suffix=".parquet")
    assert read_table(tmp_path / "t.parquet")["a"].tolist()[1:] == ["x"]


def test_other_endings_are_refused():
    """The message lists the endings."""
    with pytest.raises(
        InvalidInputError, match=r"--output must be a file whose name ends in .csv.*got t.docx"
    ):
        check_output_format(Path("t.docx"), "--output")


@pytest.mark.parametrize(("package", "name"), [("pyarrow", "t.parquet"), ("openpyxl", "t.xlsx")])
def test_missing_packages_are_reported_before_the_work(monkeypatch, package, name):
    """The message contains the command that installs them."""
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, "pyarrow.parquet", raising=False)
    with pytest.raises(InvalidInputError, match=rf'files need .*pip install .*"{package}'):
        check_output_format(Path(name), "--output")


@pytest.mark.parametrize("text", ["a\x07b", "x" * 40_000])
def test_text_that_excel_would_change_is_refused(tmp_path, text):
    """Control characters are not allowed there, and long text would be cut."""
    pytest.importorskip("openpyxl", reason="needs openpyxl")
    with pytest.raises(InvalidInputError, match="at most 32,767 characters and no control characters"):
        write_chunks(tmp_path / "t.xlsx", [pd.DataFrame({"a": [text]})], suffix=".xlsx")


def test_too_many_rows_for_excel_are_refused(tmp_path, monkeypatch):
    """The message names other formats."""
    pytest.importorskip("openpyxl", reason="needs openpyxl")
    monkeypatch.setattr("peerloss.datasets.tables._write_chunks.MAX_ROWS", 3)
    with pytest.raises(
        InvalidInputError, match=r"at most 3 rows. Choose a name that ends in .csv or .parquet"
    ):
        write_chunks(tmp_path / "t.xlsx", [FRAME], suffix=".xlsx")
