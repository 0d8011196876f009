"""Read CSV, Parquet, ARFF, JSON lines and Excel files, entirely or in chunks of rows."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import pandas as pd

from peerloss._installing import import_extra
from peerloss._validation import check_count
from peerloss.datasets._open_limited import check_unpacked, open_text
from peerloss.datasets.label_spelling import MARKERS, WORDS, read_label_words
from peerloss.datasets.tables._columns import as_kinds, check_unique, column_kinds, require_columns
from peerloss.datasets.tables._csv import check_csv
from peerloss.datasets.tables._excel import read_sheet
from peerloss.datasets.tables._json_lines import json_frames, json_row_numbers
from peerloss.datasets.tables._number_text import interpret_text
from peerloss.datasets.tables._reading import (
    ARFF_SUFFIXES,
    EXCEL_SUFFIXES,
    JSON_SUFFIXES,
    TABLE_SUFFIXES,
    TEXT_SUFFIXES,
    Reading,
    ReadOptions,
    RowNumbers,
)
from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from peerloss.datasets.tables._columns import Kind


def read_table(path: str | Path, *, options: ReadOptions | None = None) -> pd.DataFrame:
    """Read a table with columns of numbers and of text; missing values are NaN.

    CSV files have one header line, commas, semicolons, tabs or bars as delimiter, and UTF-8 text, plain or
    gzipped; ``options`` names other encodings and separators. Empty fields, ``?``, ``NA`` and similar values
    are missing. A first column without a name is the index that pandas writes, and is left out. Booleans and
    dates are text. Text such as ``$1,234.00``, ``12 %`` or, in files without commas between fields, ``1,5``
    is read as numbers if all values of a column are.

    Parameters
    ----------
    path
        A file whose name ends in .csv, .tsv, .txt, .parquet, .pq, .arff, .jsonl, .ndjson or .xlsx; .csv,
        .tsv, .arff, .jsonl and .ndjson may be followed by .gz.
    options
        What the file itself does not say: encoding, separator, decimal mark, missing values, sheet.

    Raises
    ------
    InvalidInputError
        If the file does not exist, is empty, repeats column names, or cannot be read. If a line of a text
        file is invalid, the message contains its number.
    """
    return read_with_notes(path, options=options).table


def read_with_notes(
    path: str | Path, *, options: ReadOptions | None = None, labels: Sequence[str] = ()
) -> Reading:
    """Read a table, and report how its columns were read.

    Parameters
    ----------
    path, options
        As for :func:`read_table`.
    labels
        Columns of labels. They are not converted to other numbers, and words such as ``NA`` and ``None`` in
        columns of text are labels if at least 5 % of the rows and at least 10 rows have them.

    Raises
    ------
    InvalidInputError
        As for :func:`read_table`; also if there is no such column.
    """
    path, options = _check_path(Path(path), options)
    found = _read(path, options, labels)
    return replace(found, table=_mark_infinite(found.table, options.na_values))


def _read(path: Path, options: ReadOptions, labels: Sequence[str]) -> Reading:
    name = path.name.lower()
    if name.endswith(TEXT_SUFFIXES):
        found = check_csv(path, options)
        require_columns(found.columns, labels, where=str(path))
        return found.read(labels=labels)
    if name.endswith(EXCEL_SUFFIXES):
        return _read_excel(path, options, labels)
    frames = list(_frames(path, None, {}, options))
    table = frames[0] if len(frames) == 1 else pd.concat(frames)
    require_columns(table.columns, labels, where=str(path))
    if not name.endswith(JSON_SUFFIXES):
        return Reading(table)
    table, notes = interpret_text(table, decimal=options.decimal, usual=None, commas=True, skip=labels)
    numbers = json_row_numbers(path, options.encoding)
    return Reading(table, tuple(notes), decimal=options.decimal, row_numbers=numbers)


def iter_table(
    path: str | Path,
    *,
    chunk_rows: int = 50_000,
    kinds: Mapping[str, Kind] | None = None,
    options: ReadOptions | None = None,
) -> Iterator[pd.DataFrame]:
    """Read a table in chunks of rows with constant memory (Excel files are read entirely).

    All records of a CSV file are checked immediately, columns when the first chunk is read. The index
    continues from chunk to chunk.

    Parameters
    ----------
    path
        As for :func:`read_table`.
    chunk_rows
        Rows per chunk.
    kinds
        Column → ``"number"`` or ``"text"``, as :func:`column_kinds` returns for the table that a model was
        trained on. These columns are required. The kinds of other columns are inferred. If ``None``, the
        first chunk determines the kinds.
    options
        As for :func:`read_table`. The first chunk determines the decimal mark if it is not named.

    Raises
    ------
    InvalidInputError
        As for :func:`read_table`; also, while reading, if a column of numbers contains text.
    """
    check_count(chunk_rows, "chunk_rows")
    path, options = _check_path(Path(path), options)
    if path.name.lower().endswith(TEXT_SUFFIXES):
        chunks = check_csv(path, options).chunks(chunk_rows, kinds)
    else:
        chunks = _frames(path, chunk_rows, kinds or {}, options)
    return (_mark_infinite(chunk, options.na_values) for chunk in chunks)


def find_row_numbers(path: Path, options: ReadOptions) -> RowNumbers:
    """Return the numbers of the rows in a file that :func:`iter_table` reads; for messages.

    Parameters
    ----------
    path, options
        As for :func:`read_table`.
    """
    name = path.name.lower()
    if name.endswith(TEXT_SUFFIXES):
        return check_csv(path, options).row_numbers
    if name.endswith(EXCEL_SUFFIXES):
        return read_sheet(path, options.sheet).row_numbers
    if name.endswith(JSON_SUFFIXES):
        return json_row_numbers(path, options.encoding)
    return RowNumbers.usual(name)


def _check_path(path: Path, options: ReadOptions | None) -> tuple[Path, ReadOptions]:
    """Refuse what is not a file of a known format, and options that do not apply to it."""
    if not path.is_file():
        what = "is a folder, not a file" if path.is_dir() else "does not exist"
        raise InvalidInputError(f"{path} {what}. Pass a file whose name ends in {', '.join(TABLE_SUFFIXES)}.")
    if not path.name.lower().endswith(TABLE_SUFFIXES):
        raise InvalidInputError(
            f"{path}: the name of a table must end in {', '.join(TABLE_SUFFIXES)}. Save the table "
            "as CSV, or rename the file."
        )
    if path.stat().st_size == 0:
        raise InvalidInputError(f"{path} is empty; expected a header line and rows.")
    options = options or ReadOptions()
    options.check_applies(path)
    return path, options


def _frames(
    path: Path, chunk_rows: int | None, kinds: Mapping[str, Kind], options: ReadOptions
) -> Iterator[pd.DataFrame]:
    """Read a file that is not delimited text; without ``chunk_rows``, as few frames as possible."""
    name = path.name.lower()
    if name.endswith(EXCEL_SUFFIXES):
        return _excel_chunks(path, chunk_rows or 2**16, kinds, options)
    if name.endswith(JSON_SUFFIXES):
        return _json_chunks(path, chunk_rows, kinds, options)
    read = _arff_frames if name.endswith(ARFF_SUFFIXES) else _parquet_frames
    return read(path, chunk_rows, kinds, options)


def _read_excel(
    path: Path, options: ReadOptions, labels: Sequence[str], *, texts: Sequence[str] = ()
) -> Reading:
    """Read a sheet; the columns ``labels`` and ``texts`` do not become numbers."""
    raw, numbers, where = read_sheet(path, options.sheet)
    require_columns(raw.columns, (*labels, *texts), where=where)
    table = mark_missing(raw, (*MARKERS, *WORDS, *options.missing_texts))
    skip = (*labels, *texts)
    table, notes = interpret_text(table, decimal=options.decimal, usual=None, commas=True, skip=skip)
    table = as_kinds(table, {}, locate=lambda row: f"{where}, row {numbers[row]}")
    words = []
    for name in labels:
        table[name], found = read_label_words(table[name], raw[name], missing=options.na_values)
        words.extend(found)
    return Reading(table, tuple(notes), tuple(words), options.decimal, numbers)


def _excel_chunks(
    path: Path, chunk_rows: int, kinds: Mapping[str, Kind], options: ReadOptions
) -> Iterator[pd.DataFrame]:
    texts = [name for name, kind in kinds.items() if kind == "text"]
    found = _read_excel(path, options, (), texts=texts)
    require_columns(found.table.columns, kinds, where=str(path))
    table = as_kinds(
        found.table,
        kinds,
        locate=lambda row: f"{path}, row {found.row_numbers[row]}",
        decimal=options.decimal or ".",
    )
    for start in range(0, len(table), chunk_rows):
        yield table.iloc[start : start + chunk_rows]


def _json_chunks(
    path: Path, chunk_rows: int | None, kinds: Mapping[str, Kind], options: ReadOptions
) -> Iterator[pd.DataFrame]:
    """Read JSON lines; the first chunk determines the columns and, where ``kinds`` does not, their kinds."""
    wanted: dict[str, Kind] = {}
    for number, chunk in enumerate(json_frames(path, chunk_rows, options.encoding)):
        table = mark_missing(chunk, options.na_values)
        if number == 0:
            require_columns(table.columns, kinds, where=str(path))
            wanted = column_kinds(table) | dict(kinds)
        yield as_kinds(
            table.reindex(columns=list(wanted)),
            wanted,
            locate=lambda row: f"{path}, line {json_row_numbers(path, options.encoding)[row]}",
            decimal=options.decimal or ".",
        )


def mark_missing(table: pd.DataFrame, texts: Sequence[str]) -> pd.DataFrame:
    """Replace cells that mean a missing value by NaN, in columns of text and of numbers."""
    if not texts:
        return table
    numbers = [number for text in texts if (number := _as_number(text)) is not None]
    marked: dict[str, pd.Series] = {}
    for name in table:
        column = table[name]
        missing = column.isin(numbers if pd.api.types.is_numeric_dtype(column) else list(texts))
        if missing.any():
            marked[str(name)] = column.mask(missing)
    return table.assign(**marked).infer_objects() if marked else table


def _mark_infinite(table: pd.DataFrame, texts: Sequence[str]) -> pd.DataFrame:
    """Replace infinity by NaN if ``texts`` has it, also if it was text, such as Infinity beside $1.00."""
    infinite = [number for text in texts if (number := _as_number(text)) is not None and math.isinf(number)]
    if not infinite:
        return table
    found = {str(name): column.isin(infinite) for name, column in table.items() if column.dtype.kind == "f"}
    marked = {name: table[name].mask(missing) for name, missing in found.items() if missing.any()}
    return table.assign(**marked) if marked else table


def _as_number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _parquet_frames(
    path: Path, chunk_rows: int | None, kinds: Mapping[str, Kind], options: ReadOptions
) -> Iterator[pd.DataFrame]:
    """Read a Parquet file; its schema defines which columns are numbers."""
    parquet, arrow = (_import_optional(name, "Parquet") for name in ("pyarrow.parquet", "pyarrow"))
    start = 0
    try:
        with parquet.ParquetFile(path) as content:
            columns = [n for n in content.schema_arrow.names if not n.startswith("__index_level_")]
            check_unique(columns, path, advice="Rename the columns.")
            if chunk_rows is None:  # a few bytes can encode any number of equal rows
                check_unpacked(path, content.metadata.num_rows * len(columns) * 8)
            require_columns(columns, kinds, where=str(path))
            for batch in content.iter_batches(batch_size=chunk_rows or 2**16, columns=columns):
                # Without the metadata of pandas, names stay text and no column becomes an index.
                table = _without_decimals(batch, arrow).to_pandas(ignore_metadata=True)
                table.index = pd.RangeIndex(start, start + len(table))
                start += len(table)
                table = mark_missing(table, options.na_values)
                yield as_kinds(table, kinds, locate=lambda row: f"{path}, row {row + 1}")
    except (arrow.ArrowException, OSError) as error:
        raise InvalidInputError(f"{path} is not a readable Parquet file: {error}") from error
    if not start:
        raise InvalidInputError(f"{path} has columns but no rows.")


def _without_decimals(batch: Any, arrow: Any) -> Any:
    """Convert decimal numbers to floats; pandas would return objects, which are read as text."""
    fields = [
        arrow.field(field.name, arrow.float64()) if arrow.types.is_decimal(field.type) else field
        for field in batch.schema
    ]
    return arrow.Table.from_batches([batch]).cast(arrow.schema(fields))


def _arff_frames(
    path: Path, chunk_rows: int | None, kinds: Mapping[str, Kind], options: ReadOptions
) -> Iterator[pd.DataFrame]:
    """Read an ARFF file; its declarations define which columns are numbers."""
    arff = _import_optional("arff", "ARFF")
    line = start = 0

    def numbered(stream: IO[str]) -> Iterator[str]:
        nonlocal line
        for line, text in enumerate(stream, start=1):  # noqa: B007 - read by the handler below
            yield text

    try:
        with open_text(path, options.encoding) as stream:
            content = arff.load(numbered(stream), return_type=arff.DENSE_GEN)
            declared: dict[str, Kind] = {
                name: "number" if kind in ("NUMERIC", "REAL", "INTEGER") else "text"
                for name, kind in content["attributes"]
            }
            require_columns(declared, kinds, where=str(path))
            while rows := list(islice(content["data"], chunk_rows)):
                index = pd.RangeIndex(start, start + len(rows))
                table = pd.DataFrame(rows, columns=list(declared), index=index)
                table = mark_missing(table, options.na_values)
                yield as_kinds(
                    table, declared | dict(kinds), locate=lambda row: f"{path}, row {row + 1} of @data"
                )
                start = index.stop
    except arff.ArffException as error:
        # Line numbers of the parser are wrong for errors in the data part.
        reason = str(error).split(", at line")[0]
        raise InvalidInputError(f"{path}, line {line}: {reason}. Correct that line.") from error
    if not start:
        raise InvalidInputError(f"{path} has a header but no rows.")


def _import_optional(module: str, kind: str) -> Any:
    return import_extra(module, "tables", f"{kind} files", advice="Or save the table as CSV.")
