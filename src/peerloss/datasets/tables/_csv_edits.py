"""Edit single fields in the source text of CSV records; all other characters are kept."""

from __future__ import annotations

import re

from peerloss.datasets.tables._csv import quote_field


def replace_field(source: str, place: int, text: str, delimiter: str) -> str:
    """Return the source of a record with new text in one field; all other characters are kept.

    Spaces before the field and quotation marks around it are kept.

    >>> replace_field('1, "a, b",  c', 2, "x,y", ",")
    '1, "a, b",  "x,y"'
    """
    start, end = _find_field(source, place, delimiter).span(1)
    new = quote_field(text, delimiter, always=source.startswith('"', start))
    return source[:start] + new + source[end:]


def strip_field(source: str, place: int, delimiter: str) -> str:
    """Return the source of a record without the spaces before one field.

    >>> strip_field("1,  a, b", 1, ",")
    '1,a, b'
    """
    found = _find_field(source, place, delimiter)
    return source[: found.start()] + source[found.start(1) :]


def _find_field(source: str, place: int, delimiter: str) -> re.Match[str]:
    """Return where a field is, with the spaces before it; group 1 is without them."""
    field = re.compile(rf' *("[^"]*(?:""[^"]*)*"|[^{re.escape(delimiter)}\r\n]*)')
    start = 0
    for _ in range(place):
        start = field.match(source, start).end() + 1  # type: ignore[union-attr]  # it always matches
    found: re.Match[str] = field.match(source, start)  # type: ignore[assignment]
    return found


def append_field(source: str, text: str, delimiter: str) -> str:
    r"""Return the source of a record with a field added at the end.

    >>> append_field("1,2\r\n", "x", ",")
    '1,2,x\r\n'
    """
    content = source.rstrip("\r\n")
    return content + delimiter + quote_field(text, delimiter) + source[len(content) :]
