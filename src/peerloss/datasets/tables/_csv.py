"""CSV files: check and read them, edit single fields, write tables.

pandas silently fills short records with missing values and renames repeated columns. A first pass with the
reader of the standard library detects both, with the line number and in constant memory. Written cells can be
read back unchanged: those with a delimiter, a quotation mark, a line end or a leading space are quoted.
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import pandas as pd

from peerloss._pages import counted
from peerloss.datasets._open_limited import MAX_LINE, decoding, open_text
from peerloss.datasets.label_spelling import read_label_words
from peerloss.datasets.tables._columns import as_kinds, check_unique, column_kinds, require_columns
from peerloss.datasets.tables._number_text import has_decimal_commas, interpret_text
from peerloss.datasets.tables._reading import Reading, ReadOptions, RowNumbers
from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from peerloss.datasets.tables._columns import Kind

DELIMITERS = (",", ";", "\t")
#: Recognised only if the others do not divide the header, because it occurs in names.
RARE_DELIMITER = "|"
_NEEDS_QUOTES = re.compile('[",;\t\r\n]|^[ \ufeff]')  # a leading byte order mark would be removed
#: Labels such as 01, which are not the number 1.
_PADDED = re.compile(r"\s*[+-]?0\d")
#: First characters that a spreadsheet interprets as a formula, except in numbers.
_FORMULA = re.compile(r"[=+\-@\t\r\n']")
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")


@dataclass(frozen=True)
class CsvFile:
    """A CSV file in which every record has as many fields as the header."""

    path: Path
    delimiter: str
    header: tuple[str, ...]
    options: ReadOptions
    row_numbers: RowNumbers

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are read. A first column without a name is the index that pandas writes."""
        return self.header if self.header[0] else self.header[1:]

    def chunks(self, chunk_rows: int, kinds: Mapping[str, Kind] | None) -> Iterator[pd.DataFrame]:
        """Read chunks of rows; without ``kinds`` the first chunk determines them."""
        if kinds is not None:
            require_columns(self.columns, kinds, where=str(self.path))
        mark, doubts = self.options.decimal, []
        if kinds is None or (mark is None and self.delimiter != ","):
            first = self.read(rows=chunk_rows)
            kinds = column_kinds(first.table) if kinds is None else kinds
            mark = first.decimal
            doubts = [n for n in first.notes if not n.to_numbers and kinds.get(n.column) == "number"]
        mark = mark or "."
        text: dict[Any, Any] = {name: str for name, kind in kinds.items() if kind == "text"}
        with pd.read_csv(self.path, chunksize=chunk_rows, dtype=text, **self._options(mark)) as reader:
            for chunk in reader:
                table = as_kinds(chunk, kinds, locate=self._locate, decimal=mark)
                if doubts:  # not stray words, which were refused with their line
                    raise InvalidInputError(
                        f"{self.path}: column {doubts[0].column!r} must hold numbers, but {doubts[0].text}."
                    )
                yield table

    def read(self, *, rows: int | None = None, labels: Sequence[str] = ()) -> Reading:
        """Read the entire file or its first rows; a column with any text value is text.

        Text that is meant as numbers becomes numbers, except in the columns ``labels``. In these, frequent
        words such as NA are labels, and all labels are text if one of them is written like 01.
        """
        mark = self.options.decimal
        table = self._frame(rows, mark or ".")
        commas = self.delimiter != ","
        if mark is None and commas and has_decimal_commas(table, skip=labels):
            mark = ","
            table = self._frame(rows, mark)
        table, notes = interpret_text(
            table,
            decimal=self.options.decimal,
            usual=mark or ("." if _has_fractions(table) else None),
            commas=commas,
            skip=labels,
        )
        words = []
        if labels:
            raw = self._label_cells(labels, rows)
            # All columns alike: the 10 of one annotator is the 10 of another one, who also wrote 01.
            has_codes = any(
                pd.api.types.is_numeric_dtype(table[name]) and raw[name].str.match(_PADDED).any()
                for name in labels
            )
            for name in labels:
                column = table[name]
                if has_codes and pd.api.types.is_numeric_dtype(column):
                    column = raw[name].where(column.notna())
                table[name], found = read_label_words(column, raw[name], missing=self.options.na_values)
                words.extend(found)
        return Reading(table, tuple(notes), tuple(words), mark, self.row_numbers)

    def _frame(self, rows: int | None, decimal: str) -> pd.DataFrame:
        table: pd.DataFrame = pd.read_csv(self.path, nrows=rows, **self._options(decimal))
        # Booleans are read as text, so that "true" stays "true".
        types = {str(name): pd.api.types.infer_dtype(table[name], skipna=True) for name in table}
        flags = [name for name, kind in types.items() if kind == "boolean"]
        if flags:
            options = self._options(decimal) | {"usecols": flags}
            table[flags] = pd.read_csv(self.path, nrows=rows, dtype=str, **options)
        return table

    def _label_cells(self, labels: Sequence[str], rows: int | None) -> pd.DataFrame:
        options = self._options(".") | {"usecols": list(labels), "keep_default_na": False}
        cells: pd.DataFrame = pd.read_csv(self.path, nrows=rows, dtype=str, **options)
        return cells

    def _options(self, decimal: str) -> dict[str, Any]:
        return {
            "sep": self.delimiter,
            "usecols": list(self.columns),
            "index_col": False,
            "encoding": decoding(self.options.encoding),
            "na_values": self.options.missing_texts,
            "skipinitialspace": True,
            "low_memory": False,
            "decimal": decimal,
        }

    def _locate(self, row: int) -> str:
        for number, record in enumerate(csv_rows(self.path, self.delimiter, self.options.encoding)):
            if number == row + 1:  # the header is record 0
                return f"{self.path}, line {record.line}"
        return f"{self.path}, row {row + 1}"


def _has_fractions(table: pd.DataFrame) -> bool:
    """Return whether a column has numbers with a decimal point."""
    return any(bool((column.dropna() % 1 != 0).any()) for _, column in table.select_dtypes("float").items())


def check_csv(path: Path, options: ReadOptions | None = None) -> CsvFile:
    """Refuse a CSV file with an incomplete record, naming its line; otherwise return it ready to read."""
    options = options or ReadOptions()
    delimiter = options.sep
    if delimiter is None:
        delimiter = recognise_delimiter(path, options.encoding)
    records = csv_rows(path, delimiter, options.encoding)
    first = next(records, None)
    if first is None:
        raise InvalidInputError(f"{path} is empty; expected a header line with the names of the columns.")
    _check_header(first, path)
    numbers = RowNumbers.of(_checked_numbers(records, first, path, delimiter))
    if not numbers.starts:
        raise InvalidInputError(f"{path} has a header but no rows.")
    return CsvFile(path, delimiter, tuple(first.fields), options, numbers)


def _checked_numbers(records: Iterable[Record], header: Record, path: Path, delimiter: str) -> Iterator[int]:
    """Yield the numbers of the records; refuse one that does not have as many fields as the header."""
    expected = len(header.fields)
    for found in records:
        if len(found.fields) != expected:
            title = f"If line {header.line} is a title or a comment, delete the lines above the header. "
            raise InvalidInputError(
                f"{path}, line {found.line}: expected {counted(expected, 'field')}, as in the header, but "
                f"found {len(found.fields)}. {title if expected == 1 else ''}Look for a missing, an extra or "
                f"an unquoted {delimiter!r}."
            )
        yield found.number


def _check_header(first: Record, path: Path) -> None:
    header = first.fields
    if any("\0" in name for name in header):
        raise InvalidInputError(
            f"{path}: the header line contains a NUL character, so the file is damaged or not UTF-8 text. If "
            "it is UTF-16 without a byte order mark, pass --encoding utf-16-le or --encoding utf-16-be; "
            "otherwise save the table as CSV in UTF-8."
        )
    check_unique(filter(None, header), path, advice="Rename the columns in the header line.")
    nameless = [position for position, name in enumerate(header, start=1) if not name and position > 1]
    if nameless or header == [""]:
        raise InvalidInputError(
            f"{path}: column {nameless[0] if nameless else 1} has no name in the header line, line "
            f"{first.line}. Name it, or remove the column (often caused by an extra delimiter at the end of "
            "each line). If that line is a title, delete the lines above the header."
        )


class Record(NamedTuple):
    """A record of a CSV file."""

    line: int
    """Number of its first line, counted from 1."""
    source: str
    """Its text, including the line end."""
    fields: list[str]
    number: int
    """Its number in a spreadsheet: records are counted from 1, blank ones too."""

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

    # The limit holds for the whole process, so it is only raised. Its default is less than a long text.
    csv.field_size_limit(max(csv.field_size_limit(), MAX_LINE))
    reader = csv.reader(lines(), delimiter=delimiter, skipinitialspace=True, strict=True)
    line = 1
    try:
        for number, fields in enumerate(reader, start=1):
            yield Record(line, "".join(source), fields, number)
            source.clear()
            line = reader.line_num + 1
    except csv.Error as error:
        raise InvalidInputError(
            f"{path}, line {line}: {error}. Check for a quotation mark that is not closed or not doubled."
        ) from error


def csv_rows(path: Path, delimiter: str, encoding: str | None) -> Iterator[Record]:
    """Yield the records that are not blank, the header first."""
    before = ""
    with open_text(path, encoding) as stream:
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


def recognise_delimiter(path: Path, encoding: str | None) -> str:
    """Return the delimiter that divides the header line into most fields; the comma wins ties."""
    counts = {each: count_fields(path, each, encoding) for each in DELIMITERS}
    best = max(DELIMITERS, key=counts.__getitem__)
    if counts[best][1] <= 1 and count_fields(path, RARE_DELIMITER, encoding) > (True, 1):
        return RARE_DELIMITER
    return best


def count_fields(path: Path, delimiter: str, encoding: str | None) -> tuple[bool, int]:
    """Return whether all quotation marks of the header enclose fields, and its number of fields."""
    try:
        header = next(csv_rows(path, delimiter, encoding))
    except (InvalidInputError, StopIteration):  # raised again for the chosen delimiter
        return False, 0
    unquoted = re.sub(rf'(^|{re.escape(delimiter)}) *"[^"]*(?:""[^"]*)*"', r"\1", header.source)
    return '"' not in unquoted, len(header.fields)


def quote_field(text: str, delimiter: str = ",", *, always: bool = False) -> str:
    """Return a field, quoted if necessary, or ``always``."""
    needs_quotes = always or delimiter in text or _NEEDS_QUOTES.search(text)
    return '"' + text.replace('"', '""') + '"' if needs_quotes else text


def neutralise(text: str) -> str:
    """Prefix text that a spreadsheet would interpret as a formula with an apostrophe.

    A leading apostrophe is doubled, so that removing one restores the text.

    >>> [neutralise(text) for text in ("=1+1", "-3.5", "'quoted'", "plain")]
    ["'=1+1", '-3.5', "''quoted'", 'plain']
    """
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


def write_table(
    stream: IO[str],
    table: pd.DataFrame,
    *,
    header: bool = True,
    spreadsheet_safe: bool = False,
    delimiter: str = ",",
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
    delimiter
        A comma, a semicolon or a tab.
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
        stream.write(_joined(written(map(str, table.columns)), delimiter))
    stream.writelines(_joined(fields, delimiter) for fields in zip(*columns, strict=True))


def _joined(fields: list[str] | tuple[str, ...], delimiter: str) -> str:
    return (delimiter.join(fields) or '""') + "\n"  # an empty line is not a row
