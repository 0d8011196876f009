"""Read CSV records with their source text, edit single fields, and write tables.

Every cell can be read back unchanged: cells with a delimiter, a quotation mark, a line end or a leading space
are quoted.
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
_NEEDS_QUOTES = re.compile('[",;\t\r\n]|^[ \ufeff]')  # a leading byte order mark would be removed
#: First characters that a spreadsheet interprets as a formula, except in numbers.
_FORMULA = re.compile(r"[=+\-@\t\r\n']")
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")


class Record(NamedTuple):
    """A record of a CSV file."""

    line: int
    """Number of its first line, counted from 1."""
    source: str
    """Its text, including the line end."""
    fields: list[str]

    @property
    def is_blank(self) -> bool:
        """Whether the line is empty or has only spaces and tabs, so that it is not a row."""
        return len(self.fields) <= 1 and not self.source.strip(" \t\r\n")


def read_records(stream: IO[str], path: Path, delimiter: str) -> Iterator[Record]:
    """Yield every record of a stream opened with ``newline=""``; ``path`` appears in errors."""
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
            f"{path}, line {number}: {error}. Check for a quotation mark that is not closed or not doubled."
        ) from error


def replace_field(source: str, place: int, text: str, delimiter: str) -> str:
    """Return the source of a record with new text in one field; all other characters are kept.

    Spaces before the field and quotation marks around it are kept.

    >>> replace_field('1, "a, b",  c', 2, "x,y", ",")
    '1, "a, b",  "x,y"'
    """
    field = re.compile(rf' *("[^"]*(?:""[^"]*)*"|[^{delimiter}\r\n]*)')
    start = 0
    for _ in range(place):
        start = field.match(source, start).end() + 1  # type: ignore[union-attr]  # it always matches
    found = field.match(source, start)
    start, end = found.span(1)  # type: ignore[union-attr]
    new = _quoted(text) if source.startswith('"', start) else quote_field(text)
    return source[:start] + new + source[end:]


def append_field(source: str, text: str, delimiter: str) -> str:
    r"""Return the source of a record with a field added at the end.

    >>> append_field("1,2\r\n", "x", ",")
    '1,2,x\r\n'
    """
    content = source.rstrip("\r\n")
    return content + delimiter + quote_field(text) + source[len(content) :]


def quote_field(text: str) -> str:
    """Return a field, quoted if necessary."""
    return _quoted(text) if _NEEDS_QUOTES.search(text) else text


def neutralise(text: str) -> str:
    """Prefix text that a spreadsheet would interpret as a formula with an apostrophe.

    A leading apostrophe is doubled, so that removing one restores the text.

    >>> [neutralise(text) for text in ("=1+1", "-3.5", "'quoted'", "plain")]
    ["'=1+1", '-3.5', "''quoted'", 'plain']
    """
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


def write_table(
    stream: IO[str], table: pd.DataFrame, *, header: bool = True, spreadsheet_safe: bool = False
) -> None:
    """Write a table, without its index, as comma-separated text.

    Parameters
    ----------
    stream
        A text stream opened with ``newline=""``.
    table
        Columns of any type; missing values are written as empty cells.
    header
        Whether to write the column names first.
    spreadsheet_safe
        Whether to apply :func:`neutralise` to text.
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
        else:  # numbers and dates are written as pandas does
            lines = column.to_csv(index=False, header=False, lineterminator="\n").split("\n")[:-1]
            columns.append(["" if line == '""' else line for line in lines])
    if header:
        stream.write(_joined(written(map(str, table.columns))))
    stream.writelines(map(_joined, zip(*columns, strict=True)))


def _joined(fields: list[str] | tuple[str, ...]) -> str:
    return (",".join(fields) or '""') + "\n"  # an empty line is not a row


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'
