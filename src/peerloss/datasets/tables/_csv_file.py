"""Delimited text: check every record first, with its line number, then let pandas read it.

pandas fills short records with missing values and renames repeated columns without a word; a pass with the
standard library's reader finds both, in memory that does not grow with the file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from peerloss.datasets.tables._column_kinds import as_kinds, column_kinds, quoted, require_columns
from peerloss.datasets.tables._csv_text import DELIMITERS, read_records
from peerloss.datasets.tables._open_text import open_text
from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from peerloss.datasets.tables._column_kinds import Kind
    from peerloss.datasets.tables._csv_text import Record


@dataclass(frozen=True)
class CsvFile:
    """A delimited file whose records were all found to have the length of the header."""

    path: Path
    delimiter: str
    header: tuple[str, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are read; a nameless first one is the row index that pandas writes."""
        return self.header if self.header[0] else self.header[1:]

    def read(self) -> pd.DataFrame:
        """Read everything; a column is text as soon as one of its values is."""
        return self._guess(rows=None)

    def chunks(self, chunk_rows: int, kinds: Mapping[str, Kind] | None) -> Iterator[pd.DataFrame]:
        """Read some rows at a time, the columns of the kinds given or of those seen in the first chunk."""
        if kinds is None:
            kinds = column_kinds(self._guess(rows=chunk_rows))
        else:
            require_columns(self.columns, kinds, where=str(self.path))
        text: dict[Any, Any] = {name: str for name, kind in kinds.items() if kind == "text"}
        with pd.read_csv(self.path, chunksize=chunk_rows, dtype=text, **self._options()) as reader:
            for chunk in reader:
                yield as_kinds(chunk, kinds, locate=self._locate)

    def _guess(self, *, rows: int | None) -> pd.DataFrame:
        table: pd.DataFrame = pd.read_csv(self.path, nrows=rows, **self._options())
        # As text, "true" stays "true" whatever the other rows of its chunk hold.
        types = {str(name): pd.api.types.infer_dtype(table[name], skipna=True) for name in table}
        flags = [name for name, kind in types.items() if kind == "boolean"]
        if flags:
            options = self._options() | {"usecols": flags}
            table[flags] = pd.read_csv(self.path, nrows=rows, dtype=str, **options)
        return table

    def _options(self) -> dict[str, Any]:
        return {
            "sep": self.delimiter,
            "usecols": list(self.columns),
            "index_col": False,
            "encoding": "utf-8-sig",
            "na_values": ["?"],  # what the data sets of UCI write
            "skipinitialspace": True,
            "low_memory": False,
        }

    def _locate(self, row: int) -> str:
        for number, record in enumerate(_rows(self.path, self.delimiter)):
            if number == row + 1:  # the header is record 0
                return f"{self.path}, line {record.line}"
        return f"{self.path}, row {row + 1}"


def check_csv(path: Path) -> CsvFile:
    """Read through a delimited file and refuse it, with a line number, unless every record is whole."""
    # Of equals the first is taken: a comma.
    delimiter = max(DELIMITERS, key=lambda delimiter: _columns(path, delimiter))
    records = _rows(path, delimiter)
    first = next(records, None)
    if first is None:
        raise InvalidInputError(f"{path} is empty; expected a header line with the names of the columns.")
    header = first.fields
    _check_header(header, path)
    found = None
    for found in records:
        if len(found.fields) != len(header):
            raise InvalidInputError(
                f"{path}, line {found.line}: expected {len(header)} fields, as in the header, "
                f"but found {len(found.fields)}. Look for a missing, an extra or an unquoted {delimiter!r}."
            )
    if found is None:
        raise InvalidInputError(f"{path} has a header but no rows.")
    return CsvFile(path, delimiter, tuple(header))


def _check_header(header: list[str], path: Path) -> None:
    if any("\0" in name for name in header):
        raise InvalidInputError(
            f"{path}: the header line holds a NUL character, so this is not a text file, or it is damaged. "
            "Save the table as CSV in UTF-8."
        )
    repeated = sorted({name for name in header if name and header.count(name) > 1})
    if repeated:
        raise InvalidInputError(
            f"{path}: column names must differ; {quoted(repeated)} comes more than once. "
            "Rename the columns in the header line."
        )
    nameless = [position for position, name in enumerate(header, start=1) if not name and position > 1]
    if nameless or header == [""]:
        raise InvalidInputError(
            f"{path}: column {nameless[0] if nameless else 1} has no name in the header line. "
            "Name it, or remove the column (often a delimiter too many at the end of each line)."
        )


def _columns(path: Path, delimiter: str) -> tuple[bool, int]:
    """Return whether quotation marks enclose fields of the header, and how many fields it has."""
    try:
        header = next(_rows(path, delimiter), None)
    except InvalidInputError:  # the delimiter that is chosen raises it again
        return False, 0
    if header is None:
        return False, 0
    unquoted = re.sub(rf'(^|{delimiter}) *"[^"]*(?:""[^"]*)*"', r"\1", header.source)
    return '"' not in unquoted, len(header.fields)


def _rows(path: Path, delimiter: str) -> Iterator[Record]:
    """Yield the records that are not blank, the header first."""
    before = ""
    with open_text(path) as stream:
        for record in read_records(stream, path, delimiter):
            if not record.is_blank:
                if before.endswith("\r") and record.source.lstrip(" ").startswith(delimiter):
                    raise InvalidInputError(  # pandas would lose the empty field in front
                        f"{path}, line {record.line}: an empty first field after an empty line, with lines "
                        "that end in a carriage return alone. Remove the empty line, or save the file with "
                        "the usual line ends."
                    )
                yield record
            before = record.source if record.is_blank else ""
