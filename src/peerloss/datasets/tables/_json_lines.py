"""JSON lines: one object per line, whose keys are the columns."""

from __future__ import annotations

import json
import re
from itertools import islice
from typing import IO, TYPE_CHECKING, Any

import pandas as pd

from peerloss.datasets._open_limited import check_unpacked, open_text
from peerloss.datasets.tables._reading import RowNumbers
from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_SURROGATE = re.compile("[\ud800-\udfff]")
_STRING = r'"(?:[^"\\]|\\.)*"'
#: A name and a value of an object without arrays and objects.
_PAIR = re.compile(rf'({_STRING})\s*:\s*({_STRING}|[^\s,}}"]+)')


def json_frames(path: Path, chunk_rows: int | None, encoding: str | None) -> Iterator[pd.DataFrame]:
    """Read the objects of a file, in one table or in chunks; a key that an object lacks is missing.

    Strings are text, numbers are numbers, true and false are text. The index counts rows from 0.
    """
    start = 0
    with open_text(path, encoding) as stream:
        records = _records(stream, path)
        while rows := list(islice(records, chunk_rows)):
            names = list(dict.fromkeys(name for row in rows for name in row))
            # Objects with different keys make a small file a huge table.
            check_unpacked(path, len(rows) * len(names) * 8, advice="Use the same keys in every line.")
            index = pd.RangeIndex(start, start + len(rows))
            yield pd.DataFrame({name: _column(rows, name, index) for name in names})
            start = index.stop
    if not start:
        raise InvalidInputError(f"{path} has no rows; expected one JSON object per line.")


def json_row_numbers(path: Path, encoding: str | None) -> RowNumbers:
    """Return the numbers of the lines that hold an object."""
    with open_text(path, encoding) as stream:
        return RowNumbers.of(number for number, line in enumerate(stream, start=1) if line.strip())


def value_places(line: str) -> dict[str, slice]:
    """Return name → place of its value in a line, of an object of numbers and text.

    >>> places = value_places('{"x": 1.50, "label": "yes"}')
    >>> '{"x": 1.50, "label": "yes"}'[places["x"]]
    '1.50'
    """
    return {json.loads(pair[1]): slice(*pair.span(2)) for pair in _PAIR.finditer(line)}


def _records(stream: IO[str], path: Path) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(stream, start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InvalidInputError(
                f"{path}, line {number}: not JSON ({error}). Write one object such as "
                '{"x": 1.5, "label": "yes"} on each line.'
            ) from error
        if not isinstance(record, dict) or not record:
            raise InvalidInputError(
                f"{path}, line {number}: expected an object with names and values, such as "
                f'{{"x": 1.5, "label": "yes"}}; got {type(record).__name__}.'
            )
        for name, value in record.items():
            if not _is_unicode(name) or not _is_unicode(value):
                raise InvalidInputError(
                    f"{path}, line {number}: {name!r} holds half of a surrogate pair, such as \\ud800, which "
                    "is not a character. Write the whole character or remove it."
                )
            if isinstance(value, dict | list):
                raise InvalidInputError(
                    f"{path}, line {number}: {name!r} must be a number or text; got a JSON "
                    f"{'object' if isinstance(value, dict) else 'array'}. Write each of its values under "
                    "a name of its own."
                )
        yield record


def _is_unicode(value: object) -> bool:
    return not isinstance(value, str) or not _SURROGATE.search(value)


def _column(rows: list[dict[str, Any]], name: str, index: pd.RangeIndex) -> pd.Series:
    values = [row.get(name) for row in rows]
    if any(isinstance(value, bool) for value in values):
        values = [str(value).lower() if isinstance(value, bool) else value for value in values]
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {int, float}:
        return pd.Series(values, index, dtype="float64" if None in values or float in kinds else None)
    return pd.Series([None if value is None else str(value) for value in values], index, dtype=object)
