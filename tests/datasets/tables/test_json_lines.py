"""JSON lines: one object per line."""

import gzip

import numpy as np
import pandas as pd
import pytest

from peerloss.datasets import column_kinds, iter_table, read_table
from peerloss.datasets.tables import ReadOptions, read_with_notes
from peerloss.exceptions import InvalidInputError

LINES = """{"x": 1.5, "n": 1, "kind": "u", "flag": true}
{"x": null, "n": 2, "kind": "NA"}

{"x": 2, "n": 3, "kind": null, "flag": false, "late": "w"}
"""


def test_values_keep_their_types(tmp_path):
    """Numbers are numbers, true is text, NA is a text like others; keys that are absent are missing."""
    path = tmp_path / "t.jsonl"
    path.write_text(LINES)
    table = read_table(path)
    assert column_kinds(table) == {
        "x": "number",
        "n": "number",
        "kind": "text",
        "flag": "text",
        "late": "text",
    }
    assert table["x"].tolist()[::2] == [1.5, 2.0]
    assert np.isnan(table["x"][1])
    assert table["kind"].tolist()[:2] == ["u", "NA"]
    assert table["flag"].dropna().tolist() == ["true", "false"]
    (tmp_path / "t.ndjson.gz").write_bytes(gzip.compress(LINES.encode()))
    pd.testing.assert_frame_equal(read_table(tmp_path / "t.ndjson.gz"), table)


def test_chunks_have_the_columns_of_the_first(tmp_path):
    """Kinds can be required; a column that the first chunk lacks is refused."""
    path = tmp_path / "t.jsonl"
    path.write_text(LINES)
    chunks = list(iter_table(path, chunk_rows=1, kinds={"x": "number", "n": "text"}))
    assert [list(chunk) for chunk in chunks] == [["x", "n", "kind", "flag"]] * 3
    assert [chunk.index[0] for chunk in chunks] == [0, 1, 2]
    assert [chunk["n"].item() for chunk in chunks] == ["1", "2", "3"]
    with pytest.raises(InvalidInputError, match="no column 'late'"):
        list(iter_table(path, chunk_rows=1, kinds={"late": "text"}))


def test_numbers_in_text_are_recognised(tmp_path):
    """Decimal commas need no option, because commas do not separate fields; a stray word is named."""
    path = tmp_path / "t.jsonl"
    rows = "".join(f'{{"a": "{i},5", "b": {i}}}\n' for i in range(20))
    path.write_text(rows + '{"a": "7,25", "b": "unknown"}\n')
    reading = read_with_notes(path)
    assert reading.table["a"].iloc[-1] == 7.25
    assert [(note.column, note.to_numbers) for note in reading.notes] == [("a", True), ("b", False)]
    assert "use `--na-values unknown`" in reading.notes[1].text
    table = read_table(path, options=ReadOptions(na_values=("unknown",)))
    assert column_kinds(table) == {"a": "number", "b": "number"}


def test_row_numbers_are_those_of_the_lines(tmp_path):
    """Empty lines count, also in messages."""
    path = tmp_path / "t.jsonl"
    path.write_text('\n{"a": 1}\n\n{"a": "x"}\n')
    numbers = read_with_notes(path).row_numbers
    assert [numbers[0], numbers[1]] == [2, 4]
    with pytest.raises(InvalidInputError, match=r"line 4: column 'a' must hold numbers"):
        list(iter_table(path, kinds={"a": "number"}))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"a": 1}\n{"a": 2\n', "line 2: not JSON .*Write one object"),
        ("[" * 100_000 + "\n", "line 1: not JSON"),
        ("[1, 2]\n", "line 1: expected an object with names and values.*got list"),
        ("{}\n", "line 1: expected an object"),
        ('{"a": {"b": 1}}\n', "line 1: 'a' must be a number or text; got a JSON object"),
        ('{"a": [1]}\n', "line 1: 'a' must be a number or text; got a JSON array"),
        ('{"a": "x"}\n{"a": "\\ud800x"}\n', "line 2: 'a' holds half of a surrogate pair"),
        ('{"\\udc00": "x"}\n', r"line 1: '\\udc00' holds half of a surrogate pair"),
        ("\n\n", "has no rows; expected one JSON object per line"),
        (b'{"a": "\xe9"}\n', "line 1: not UTF-8 text.*--encoding latin-1"),
    ],
)
def test_damaged_lines_are_refused_with_their_number(tmp_path, content, message):
    """The message says what a line should be."""
    path = tmp_path / "t.jsonl"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InvalidInputError, match=message):
        read_table(path)


def test_different_keys_in_every_line_are_refused(tmp_path):
    """A small file would become a table with a column per row."""
    path = tmp_path / "t.jsonl"
    path.write_text("".join(f'{{"{i}":1}}\n' for i in range(7000)))
    with pytest.raises(InvalidInputError, match=r"unpacks to more than 256 MiB.*same keys in every line"):
        read_table(path)
