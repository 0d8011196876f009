"""Read CSV, Parquet and ARFF files, entirely or in chunks of rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from peerloss._validation import check_count
from peerloss.datasets.tables._arff_file import ArffFile
from peerloss.datasets.tables._csv_file import check_csv
from peerloss.datasets.tables._parquet_file import ParquetFile
from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pandas as pd

    from peerloss.datasets.tables._column_kinds import Kind
    from peerloss.datasets.tables._csv_file import CsvFile

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
        A file whose name ends in .csv, .tsv, .txt, .parquet, .pq or .arff.

    Raises
    ------
    InvalidInputError
        If the file does not exist, is empty, repeats column names, or cannot be read. The message contains
        the line number.
    """
    return _open_table(path).read()


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
    return _open_table(path).chunks(chunk_rows, kinds)


def _open_table(path: str | Path) -> CsvFile | ParquetFile | ArffFile:
    path = Path(path)
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
        return ParquetFile(path)
    if name.endswith((".arff", ".arff.gz")):
        return ArffFile(path)
    return check_csv(path)
