"""Delimited text: check every record first, with its line number, then let pandas read it.

pandas fills short records with missing values and renames repeated columns without a word; a pass with the
standard library's reader finds both, in memory that does not grow with the file.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

import pandas as pd

from peerloss.datasets._kinds import as_kinds, column_kinds, quoted, require_columns
from peerloss.datasets._text import open_text
from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from peerloss.datasets._kinds import Kind

_DELIMITERS = (",", ";", "\t")


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
        with open_text(self.path) as stream:
            for number, (line, _) in enumerate(_records(stream, self.path, self.delimiter)):
                if number == row + 1:  # the header is record 0
                    return f"{self.path}, line {line}"
        return f"{self.path}, row {row + 1}"


def check_csv(path: Path) -> CsvFile:
    """Read through a delimited file and refuse it, with a line number, unless every record is whole."""
    with open_text(path) as stream:
        first = next((line for line in stream if line.strip()), "")
    if not first:
        raise InvalidInputError(f"{path} is empty; expected a header line with the names of the columns.")
    delimiter = max(_DELIMITERS, key=first.count)  # the first of equals: a comma
    with open_text(path) as stream:
        records = _records(stream, path, delimiter)
        _, header = next(records)
        _check_header(header, path)
        found = None
        for found, record in records:
            if len(record) != len(header):
                raise InvalidInputError(
                    f"{path}, line {found}: expected {len(header)} fields, as in the header, "
                    f"but found {len(record)}. Look for a missing, an extra or an unquoted {delimiter!r}."
                )
    if found is None:
        raise InvalidInputError(f"{path} has a header but no rows.")
    return CsvFile(path, delimiter, tuple(header))


def _check_header(header: list[str], path: Path) -> None:
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


def _records(stream: IO[str], path: Path, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yield (line where it begins, fields) of each record that is not blank."""
    reader = csv.reader(stream, delimiter=delimiter, skipinitialspace=True, strict=True)
    line = 1
    try:
        for record in reader:
            if len(record) > 1 or (record and record[0].strip()):
                yield line, record
            line = reader.line_num + 1
    except csv.Error as error:
        raise InvalidInputError(
            f"{path}, line {line}: {error}. Look for a quotation mark that is not closed or not doubled."
        ) from error
