"""Read CSV, Parquet and ARFF files, entirely or in chunks of rows."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import pandas as pd

from peerloss._installing import import_extra
from peerloss._validation import check_count
from peerloss.datasets._open_limited import check_unpacked, open_text
from peerloss.datasets.tables._columns import as_kinds, check_unique, require_columns
from peerloss.datasets.tables._csv import check_csv
from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from peerloss.datasets.tables._columns import Kind

#: Endings of the names of readable files.
TABLE_SUFFIXES = (".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz", ".parquet", ".pq", ".arff", ".arff.gz")


def read_table(path: str | Path) -> pd.DataFrame:
    """Read a table with columns of numbers and of text; missing values are NaN.

    CSV files have one header line, commas, semicolons or tabs as delimiter, and UTF-8 text, plain or gzipped.
    Empty fields, ``?``, ``NA`` and similar values are missing. A first column without a name is the index
    that pandas writes, and is left out. Booleans and dates are text.

    Parameters
    ----------
    path
        A file whose name ends in .csv, .tsv, .txt, .parquet, .pq or .arff; .csv, .tsv and .arff may be
        followed by .gz.

    Raises
    ------
    InvalidInputError
        If the file does not exist, is empty, repeats column names, or cannot be read. If a line of a text
        file is invalid, the message contains its number.
    """
    frames = list(_frames(Path(path), None, None))
    return frames[0] if len(frames) == 1 else pd.concat(frames)


def iter_table(
    path: str | Path, *, chunk_rows: int = 50_000, kinds: Mapping[str, Kind] | None = None
) -> Iterator[pd.DataFrame]:
    """Read a table in chunks of rows with constant memory.

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

    Raises
    ------
    InvalidInputError
        As for :func:`read_table`; also, while reading, if a column of numbers contains text.
    """
    check_count(chunk_rows, "chunk_rows")
    return _frames(Path(path), chunk_rows, kinds)


def _frames(path: Path, chunk_rows: int | None, kinds: Mapping[str, Kind] | None) -> Iterator[pd.DataFrame]:
    """Check the path and the records of a CSV file now; without ``chunk_rows``, read the entire file."""
    if not path.is_file():
        what = "is a folder, not a file" if path.is_dir() else "does not exist"
        raise InvalidInputError(f"{path} {what}. Pass a file whose name ends in {', '.join(TABLE_SUFFIXES)}.")
    name = path.name.lower()
    if not name.endswith(TABLE_SUFFIXES):
        raise InvalidInputError(
            f"{path}: the name of a table must end in {', '.join(TABLE_SUFFIXES)}. Save the table "
            "as CSV, or rename the file."
        )
    if path.stat().st_size == 0:
        raise InvalidInputError(f"{path} is empty; expected a header line and rows.")
    if name.endswith((".parquet", ".pq")):
        return _parquet_frames(path, chunk_rows, kinds or {})
    if name.endswith((".arff", ".arff.gz")):
        return _arff_frames(path, chunk_rows, kinds or {})
    found = check_csv(path)
    return iter([found.read()]) if chunk_rows is None else found.chunks(chunk_rows, kinds)


def _parquet_frames(path: Path, chunk_rows: int | None, kinds: Mapping[str, Kind]) -> Iterator[pd.DataFrame]:
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
                table = batch.to_pandas(ignore_metadata=True)
                table.index = pd.RangeIndex(start, start + len(table))
                yield as_kinds(table, kinds, locate=lambda row: f"{path}, row {row + 1}")
                start = table.index.stop
    except (arrow.ArrowException, OSError) as error:
        raise InvalidInputError(f"{path} is not a readable Parquet file: {error}") from error
    if not start:
        raise InvalidInputError(f"{path} has columns but no rows.")


def _arff_frames(path: Path, chunk_rows: int | None, kinds: Mapping[str, Kind]) -> Iterator[pd.DataFrame]:
    """Read an ARFF file; its declarations define which columns are numbers."""
    arff = _import_optional("arff", "ARFF")
    line = start = 0

    def numbered(stream: IO[str]) -> Iterator[str]:
        nonlocal line
        for line, text in enumerate(stream, start=1):  # noqa: B007 - read by the handler below
            yield text

    try:
        with open_text(path) as stream:
            content = arff.load(numbered(stream), return_type=arff.DENSE_GEN)
            declared: dict[str, Kind] = {
                name: "number" if kind in ("NUMERIC", "REAL", "INTEGER") else "text"
                for name, kind in content["attributes"]
            }
            require_columns(declared, kinds, where=str(path))
            while rows := list(islice(content["data"], chunk_rows)):
                index = pd.RangeIndex(start, start + len(rows))
                table = pd.DataFrame(rows, columns=list(declared), index=index)
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
