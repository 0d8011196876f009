"""Delimited text as it is written: records with their source, cells replaced in place, tables written.

Whatever a cell holds comes back when it is read: cells with a delimiter, a quotation mark, a carriage return,
a line feed or blanks in front are quoted.
"""

from __future__ import annotations

import csv
import re
from typing import IO, TYPE_CHECKING, NamedTuple

import pandas as pd

from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

DELIMITERS = (",", ";", "\t")
_NEEDS_QUOTES = re.compile('[",;\t\r\n]|^[ \ufeff]')  # a byte order mark in front would be taken away
#: What a spreadsheet takes for the beginning of a formula; numbers are harmless.
_FORMULA = re.compile(r"[=+\-@\t\r\n']")
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")


class Record(NamedTuple):
    """A record of a delimited file."""

    line: int
    """Number of the line on which it begins, from 1."""
    source: str
    """The text, with its line end."""
    fields: list[str]

    @property
    def is_blank(self) -> bool:
        """Whether it is an empty line, or one of blanks; such lines are not rows."""
        return len(self.fields) <= 1 and not self.source.strip(" \t\r\n")


def read_records(stream: IO[str], path: Path, delimiter: str) -> Iterator[Record]:
    """Yield every record of a stream that keeps line ends; ``path`` is named in errors."""
    source: list[str] = []

    def lines() -> Iterator[str]:
        for line in stream:
            source.append(line)
            yield line

    reader = csv.reader(lines(), delimiter=delimiter, skipinitialspace=True, strict=True)
    number = 1
    try:
        for fields in reader:
            yield Record(number, "".join(source), fields)
            source.clear()
            number = reader.line_num + 1
    except csv.Error as error:
        raise InvalidInputError(
            f"{path}, line {number}: {error}. Look for a quotation mark that is not closed or not doubled."
        ) from error


def replace_field(source: str, place: int, text: str, delimiter: str) -> str:
    """Return the source of a record with another text in one field; every other character stays.

    Blanks in front of the field stay, and quotation marks around it.

    >>> replace_field('1, "a, b",  c', 2, "x,y", ",")
    '1, "a, b",  "x,y"'
    """
    field = re.compile(rf' *("[^"]*(?:""[^"]*)*"|[^{delimiter}\r\n]*)')
    start = 0
    for _ in range(place):
        start = field.match(source, start).end() + 1  # type: ignore[union-attr]  # it matches any text
    found = field.match(source, start)
    start, end = found.span(1)  # type: ignore[union-attr]
    new = _quoted(text) if source.startswith('"', start) else quote_field(text)
    return source[:start] + new + source[end:]


def append_field(source: str, text: str, delimiter: str) -> str:
    r"""Return the source of a record with one more field at its end.

    >>> append_field("1,2\r\n", "x", ",")
    '1,2,x\r\n'
    """
    content = source.rstrip("\r\n")
    return content + delimiter + quote_field(text) + source[len(content) :]


def quote_field(text: str) -> str:
    """Quote a field if it must be."""
    return _quoted(text) if _NEEDS_QUOTES.search(text) else text


def neutralise(text: str) -> str:
    """Put an apostrophe before what a spreadsheet would take for a formula.

    An apostrophe at the beginning is doubled, so that taking one away restores any text.

    >>> [neutralise(text) for text in ("=1+1", "-3.5", "'quoted'", "plain")]
    ["'=1+1", '-3.5', "''quoted'", 'plain']
    """
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


def write_table(
    stream: IO[str], table: pd.DataFrame, *, header: bool = True, spreadsheet_safe: bool = False
) -> None:
    """Write the columns of a table, without its index, as comma-separated text.

    Parameters
    ----------
    stream
        Opened with ``newline=""``.
    table
        Columns of any type; what is missing is written as an empty cell.
    header
        Whether to write the names of the columns first.
    spreadsheet_safe
        Whether to :func:`neutralise` texts.
    """

    def written(texts: Iterable[str]) -> list[str]:
        if spreadsheet_safe:
            texts = map(neutralise, texts)
        return [quote_field(text) for text in texts]

    columns = []
    for place in range(table.shape[1]):
        column = table.iloc[:, place]
        if isinstance(column.dtype, pd.CategoricalDtype):
            column = column.astype(object)
        if column.dtype == object or pd.api.types.is_string_dtype(column):
            texts = column.astype(object).where(column.notna(), "").tolist()
            columns.append(written(map(str, texts)))
        else:  # numbers, dates: as pandas writes them
            lines = column.to_csv(index=False, header=False, lineterminator="\n").split("\n")[:-1]
            columns.append(["" if line == '""' else line for line in lines])
    if header:
        stream.write(_joined(written(map(str, table.columns))))
    stream.writelines(map(_joined, zip(*columns, strict=True)))


def _joined(fields: list[str] | tuple[str, ...]) -> str:
    return (",".join(fields) or '""') + "\n"  # an empty line would not be a row


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'
