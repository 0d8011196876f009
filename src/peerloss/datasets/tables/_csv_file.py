"""Read CSV files: check every record first, then let pandas read the file.

pandas silently fills short records with missing values and renames repeated columns. A first pass with the
reader of the standard library detects both, with the line number and in constant memory.
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
    """A CSV file in which every record has as many fields as the header."""

    path: Path
    delimiter: str
    header: tuple[str, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are read. A first column without a name is the index that pandas writes."""
        return self.header if self.header[0] else self.header[1:]

    def read(self) -> pd.DataFrame:
        """Read the entire file; a column with any text value is text."""
        return self._guess(rows=None)

    def chunks(self, chunk_rows: int, kinds: Mapping[str, Kind] | None) -> Iterator[pd.DataFrame]:
        """Read chunks of rows; without ``kinds`` the first chunk determines them."""
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
        # Booleans are read as text, so that "true" stays "true".
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
            "na_values": ["?"],  # as in the data sets of UCI
            "skipinitialspace": True,
            "low_memory": False,
        }

    def _locate(self, row: int) -> str:
        for number, record in enumerate(_rows(self.path, self.delimiter)):
            if number == row + 1:  # the header is record 0
                return f"{self.path}, line {record.line}"
        return f"{self.path}, row {row + 1}"


def check_csv(path: Path) -> CsvFile:
    """Refuse a CSV file with an incomplete record, naming its line; otherwise return it ready to read."""
    # The comma comes first and wins ties.
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
            f"{path}: the header line contains a NUL character, so the file is damaged or not text. "
            "Save the table as CSV in UTF-8."
        )
    repeated = sorted({name for name in header if name and header.count(name) > 1})
    if repeated:
        raise InvalidInputError(
            f"{path}: column names must be unique; {quoted(repeated)} occurs more than once. "
            "Rename the columns in the header line."
        )
    nameless = [position for position, name in enumerate(header, start=1) if not name and position > 1]
    if nameless or header == [""]:
        raise InvalidInputError(
            f"{path}: column {nameless[0] if nameless else 1} has no name in the header line. "
            "Name it, or remove the column (often caused by an extra delimiter at the end of each line)."
        )


def _columns(path: Path, delimiter: str) -> tuple[bool, int]:
    """Return whether all quotation marks of the header enclose fields, and its number of fields."""
    try:
        header = next(_rows(path, delimiter), None)
    except InvalidInputError:  # raised again for the chosen delimiter
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
                    raise InvalidInputError(  # pandas would drop the empty field
                        f"{path}, line {record.line}: an empty first field after an empty line, in a file "
                        "whose lines end in a carriage return only. Remove the empty line, or save the file "
                        "with other line ends."
                    )
                yield record
            before = record.source if record.is_blank else ""
