"""The cleaned table equals the audited one byte by byte, except for changed labels and dropped rows."""

import codecs
import gzip
import tempfile
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from peerloss.audit.folder import AuditFolder
from peerloss.audit.review import Cleaning, write_cleaned
from peerloss.exceptions import InvalidInputError

LABELS = ["a", "b c", 'say "x"', "new\rline", " led", "=1", "é", "u,v;w\tx"]
BLANK = ["", "", " \n", " \r\n"]
ENDS = ["\n", "\r\n", "\r"]


def audit_of(folder, name, content, columns=("label",)):
    (folder / name).write_bytes(content)
    manifest = {"data": name, "labels": list(columns), "summary": {"classes": LABELS}}
    return AuditFolder(folder, manifest, pd.DataFrame())


def cleaned(content, *, new=None, dropped=(), given=None, name="data.csv", columns=("label",)):
    """Write a table, clean it, and return the bytes and the number of rows."""
    with tempfile.TemporaryDirectory() as home:
        folder = audit_of(Path(home), name, content, columns)
        plan = Cleaning(new or {}, frozenset(dropped), given or {}, 0, 0)
        rows = write_cleaned(folder, plan, Path(home, "out.csv"))
        return Path(home, "out.csv").read_bytes(), rows


def quoted(text):
    return '"' + text.replace('"', '""') + '"'


@st.composite
def tables(draw):
    """Draw the pieces of a file: the text before each label, the label, and the text after it."""
    delimiter = draw(st.sampled_from(",;\t"))
    anything = st.text(st.sampled_from(' ab",;\t\r\n\u2028éñ'), max_size=5).map(quoted)
    plain = st.text(st.sampled_from('a b1"é'), max_size=4).map(lambda text: "x" + text)
    blanks = st.sampled_from(["", " ", "  "])
    cell = st.tuples(blanks, st.one_of(anything, plain)).map("".join)
    end = st.sampled_from(ENDS)
    pieces = [(f"id{delimiter}", "label", f"{delimiter}z{draw(end)}")]
    for _ in range(draw(st.integers(1, 5))):
        between = draw(st.sampled_from(BLANK))
        before = between + draw(cell) + delimiter + draw(blanks)
        label = draw(st.one_of(st.sampled_from(LABELS).map(quoted), st.just("plain"), st.just("p q ")))
        pieces.append((before, label, delimiter + draw(cell) + draw(end)))
    if draw(st.booleans()):  # no line end at the end of the file
        before, label, after = pieces[-1]
        pieces[-1] = (before, label, after.rstrip("\r\n"))
    return delimiter, pieces, draw(st.booleans())


def joined(pieces, bom):
    text = "".join(map("".join, pieces)).encode()
    return (codecs.BOM_UTF8 if bom else b"") + text


@given(table=tables())
def test_without_changes_the_file_is_the_same(table):
    """Line ends, quotation marks, blanks, blank lines and a byte order mark are copied."""
    _, pieces, bom = table
    content = joined(pieces, bom)
    assert cleaned(content) == (content, len(pieces) - 1)


@given(table=tables(), data=st.data())
def test_only_the_bytes_of_changed_labels_change(table, data):
    """A quoted label stays quoted, others are quoted if necessary; dropped rows disappear completely."""
    _, pieces, bom = table
    rows = range(len(pieces) - 1)
    new = data.draw(st.dictionaries(st.sampled_from(rows), st.sampled_from(LABELS)))
    dropped = data.draw(st.sets(st.sampled_from(rows)).map(lambda found: found - set(new)))
    expected = [pieces[0]]
    for row, (before, label, after) in enumerate(pieces[1:]):
        if row in dropped:
            blank_line = next((line for line in BLANK if line and before.startswith(line)), "")
            expected.append((blank_line, "", ""))
            continue
        if row in new:
            plain = new[row] in {"a", "b c", "=1", "é"} and not label.startswith('"')
            label = new[row] if plain else quoted(new[row])  # noqa: PLW2901
        expected.append((before, label, after))
    content, count = cleaned(joined(pieces, bom), new=new, dropped=dropped)
    assert content == joined(expected, bom)
    assert count == len(rows) - len(dropped)


@given(table=tables())
def test_a_column_is_added_before_the_line_ends(table):
    """For several annotators a column is added; the rest of each line does not change."""
    delimiter, pieces, bom = table
    given = {row: LABELS[row % len(LABELS)] for row in range(1, len(pieces) - 1)}  # row 0 has no label
    content, _ = cleaned(joined(pieces, bom).replace(b"label", b"named"), given=given, columns=())
    plain = {"a", "b c", "=1", "é"}
    texts = ["label", *(given.get(row, "") for row in range(len(pieces) - 1))]
    expected = []
    for (before, label, after), text in zip(pieces, texts, strict=True):
        rest = after.rstrip("\r\n")
        cell = text if not text or text in plain | {"label"} else quoted(text)
        expected.append(
            (before, label.replace("label", "named"), rest + delimiter + cell + after[len(rest) :])
        )
    assert content == joined(expected, bom)


def test_compressed_text_is_written_uncompressed():
    """The bytes are those before compression."""
    content = b"x,label\r\n 1 ,a\r\n2,b\r\n"
    assert cleaned(gzip.compress(content), name="data.csv.gz") == (content, 2)


def test_other_tables_become_csv(tmp_path):
    """A Parquet file is written as text, with the new labels."""
    pytest.importorskip("pyarrow", reason="needs pyarrow")
    pd.DataFrame({"x": [0.5, None, 2.0], "t": ["u\rv", " w", None], "label": [1, 2, 1]}).to_parquet(
        tmp_path / "d.pq"
    )
    content = (tmp_path / "d.pq").read_bytes()
    text, rows = cleaned(content, name="data.pq", new={0: "2"}, dropped={2})
    assert (text, rows) == (b'x,t,label\n0.5,"u\rv",2\n," w",2\n', 2)


def test_rows_beyond_the_data_are_refused():
    """The message names the row and the number of rows."""
    with pytest.raises(InvalidInputError, match="names row 7, but the data have 2 rows"):
        cleaned(b"x,label\n1,a\n2,b\n", new={7: "a"})


@pytest.mark.parametrize(
    ("header", "name"), [("x,label", "label_1"), ("label_1,label", "label_2"), ("x,Label", "label")]
)
def test_the_added_column_has_a_free_name(tmp_path, header, name):
    """Columns of the table stay, whatever they are called; the format of the output does not matter."""
    content, given = f"{header}\n1,a\n2,b\n".encode(), {0: "b c", 1: "a"}
    text, _ = cleaned(content, columns=("x", "y"), given=given, new={1: "é"})
    assert text.decode() == f"{header},{name}\n1,a,b c\n2,b,é\n"
    folder = audit_of(tmp_path, "data.csv", content, ())
    plan = Cleaning({1: "é"}, frozenset(), given, 0, 0)
    write_cleaned(folder, plan, tmp_path / "out.parquet")
    table = pd.read_parquet(tmp_path / "out.parquet")
    assert list(table) == [*header.split(","), name]
    assert table[name].tolist() == ["b c", "é"]
