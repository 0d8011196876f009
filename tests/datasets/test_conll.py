"""CoNLL files: what is read, and which files are refused."""

import gzip

import pytest

from peerloss.datasets import read_conll
from peerloss.exceptions import InvalidInputError


def write(folder, text, name="some.conll", encoding="utf-8"):
    path = folder / name
    path.write_bytes(text.encode(encoding))
    return path


def test_tokens_and_tags_of_each_sentence(tmp_path):
    """The first column is the token, the last the tag; empty lines end sentences, also several of them."""
    text = "-DOCSTART- -X- O O\n\nEU NNP I-NP B-ORG\nrejects VBZ I-VP O\n \n\n\nPeter NNP I-NP B-PER\n"
    found = read_conll(write(tmp_path, text))
    assert found.tokens == [["EU", "rejects"], ["Peter"]]
    assert found.tags == [["B-ORG", "O"], ["B-PER"]]
    assert found.lines == [3, 8]
    assert len(found) == 2


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_line_ends_and_byte_order_marks(tmp_path, end):
    """All kinds of line ends and a byte order mark are accepted."""
    found = read_conll(write(tmp_path, end.join(["a O", "b X", "", "c O"]), encoding="utf-8-sig"))
    assert found.tokens == [["a", "b"], ["c"]]


def test_tabs_allow_spaces_in_tokens(tmp_path):
    """If the first line has a tab, only tabs separate columns; other white space is never a separator."""
    found = read_conll(write(tmp_path, "New York\tLOC\nis\tO\n"))
    assert found.tokens == [["New York", "is"]]
    found = read_conll(write(tmp_path, "a\u00a0b  O\nc\u2028d \t X\n"))
    assert found.tokens == [["a\u00a0b", "c\u2028d"]]


def test_gzipped_files(tmp_path):
    """A name that ends in .gz is unpacked."""
    path = tmp_path / "some.conll.gz"
    path.write_bytes(gzip.compress(b"a O\n"))
    assert read_conll(path).tags == [["O"]]


def test_comments_are_skipped_on_request(tmp_path):
    """Only before a sentence: inside it, a number sign is a token."""
    path = write(tmp_path, "# id = 1\na O\n# O\n\n# id = 2\nb O\n")
    found = read_conll(path, comment="# ")
    assert found.tokens == [["a", "#"], ["b"]]
    assert found.lines == [2, 6]
    with pytest.raises(InvalidInputError, match=r"line 2: expected 4 columns, as in the first line"):
        read_conll(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no sentence"),
        ("\n\n", "has no sentence"),
        ("a O\nb\n", "line 2: expected a token and its tag.*comment="),
        ("a x O\n\nb O\n", "line 3: expected 3 columns, as in the first line, but found 2"),
        ("a\tO\nb\t\n", "line 2: the tag is empty"),
        ("a\tO\n\tO\n", "line 2: the token is empty"),
        ("a O\nb\0 O\n", "line 2: a NUL character"),
    ],
)
def test_broken_lines_are_named(tmp_path, text, message):
    """The message has the file, the number of the line and what to do."""
    with pytest.raises(InvalidInputError, match=message):
        read_conll(write(tmp_path, text))


def test_files_that_cannot_be_read(tmp_path, monkeypatch):
    """Missing files, folders, other encodings, broken archives and endless lines are named."""
    with pytest.raises(InvalidInputError, match="does not exist"):
        read_conll(tmp_path / "none.conll")
    with pytest.raises(InvalidInputError, match="is a folder"):
        read_conll(tmp_path)
    with pytest.raises(InvalidInputError, match="line 2: not UTF-8"):
        read_conll(write(tmp_path, "a O\n\u00e9t\u00e9 O\n", encoding="latin-1"))
    broken = tmp_path / "broken.gz"
    broken.write_bytes(gzip.compress(b"a O\n" * 100)[:-9])
    with pytest.raises(InvalidInputError, match="not a complete gzip file"):
        read_conll(broken)
    monkeypatch.setattr("peerloss.datasets._open_limited.MAX_LINE", 100)
    with pytest.raises(InvalidInputError, match="a line of more than"):
        read_conll(write(tmp_path, "a" * 2**19 + " O\n"))
    with pytest.raises(InvalidInputError, match="`comment` must not be empty"):
        read_conll(write(tmp_path, "a O\n"), comment="")
