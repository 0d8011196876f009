"""CoNLL files: one token per line with its tag in the last column, and an empty line after each sentence."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from peerloss.datasets._open_limited import open_text
from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Iterator

#: First field of the line that separates documents.
DOCUMENT_START = "-DOCSTART-"
#: Only these separate columns: other white space, such as a no-break space, can be part of a token.
_SPACES = re.compile("[ \t]+")


@dataclass(frozen=True)
class TaggedSentences:
    """Sentences with one tag per token; created by :func:`read_conll`."""

    tokens: list[list[str]]
    """The tokens of each sentence."""
    tags: list[list[str]]
    """Their tags."""
    lines: list[int]
    """The number of the line on which each sentence begins, counted from 1."""

    def __len__(self) -> int:
        return len(self.tokens)


def read_conll(path: str | Path, *, comment: str | None = None) -> TaggedSentences:
    """Read tokens and tags from a file in CoNLL format.

    Each line has the columns of one token: the first is the token, the last its tag. Columns are separated by
    tabs if the first line contains a tab, else by spaces. An empty line ends a sentence. Lines that begin
    with ``-DOCSTART-`` are skipped.

    Parameters
    ----------
    path
        A text file in UTF-8, plain or gzipped (its name then ends in .gz).
    comment
        Lines before the first token of a sentence that begin with this text are skipped, for example
        ``"# "``. By default no line is a comment.

    Returns
    -------
    The :class:`TaggedSentences`.

    Raises
    ------
    InvalidInputError
        If the file does not exist, has no sentence, is not UTF-8 text, or if a line does not have as many
        columns as the first one. The message contains the number of the line.
    """
    path = Path(path)
    if not path.is_file():
        what = "is a folder, not a file" if path.is_dir() else "does not exist"
        raise InvalidInputError(f"{path} {what}. Pass a text file with one token and its tag per line.")
    if comment == "":
        raise InvalidInputError("`comment` must not be empty: every line begins with it. Pass '# ' or None.")
    found = TaggedSentences([], [], [])
    inside = False
    for number, fields in _numbered_fields(path, comment):
        if not fields:
            inside = False
            continue
        if not inside:
            found.tokens.append([])
            found.tags.append([])
            found.lines.append(number)
            inside = True
        found.tokens[-1].append(fields[0])
        found.tags[-1].append(fields[-1])
    if not len(found):
        raise InvalidInputError(f"{path} has no sentence; expected one token and its tag per line.")
    return found


def _numbered_fields(path: Path, comment: str | None) -> Iterator[tuple[int, list[str]]]:
    """Yield the number and the columns of each line; no columns at the end of a sentence."""
    has_tabs, width, inside = False, 0, False
    with open_text(path) as stream:
        for number, line in enumerate(stream, start=1):
            text = line.strip("\r\n")
            if not text.strip(" \t") or text.lstrip(" \t").startswith(DOCUMENT_START):
                inside = False
                yield number, []
                continue
            if comment is not None and not inside and text.startswith(comment):
                continue
            if width == 0:
                has_tabs = "\t" in text.strip(" \t")
            fields = text.split("\t") if has_tabs else _SPACES.split(text.strip(" \t"))
            width = width or len(fields)
            _check_fields(fields, width, f"{path}, line {number}")
            inside = True
            yield number, fields


def _check_fields(fields: list[str], width: int, place: str) -> None:
    if any("\0" in field for field in fields):
        raise InvalidInputError(
            f"{place}: a NUL character, so the file is damaged or not text. Save it as UTF-8 text."
        )
    if len(fields) < 2:
        raise InvalidInputError(
            f"{place}: expected a token and its tag, separated by spaces or a tab, but found one column. "
            "If the line is a comment, pass `comment=`."
        )
    if len(fields) != width:
        raise InvalidInputError(
            f"{place}: expected {width} columns, as in the first line, but found {len(fields)}. Look for a "
            "missing or an extra column; a token that contains spaces needs columns separated by tabs."
        )
    if not fields[0].strip() or not fields[-1].strip():
        what = "token" if not fields[0].strip() else "tag"
        raise InvalidInputError(f"{place}: the {what} is empty. Write one token and its tag per line.")
