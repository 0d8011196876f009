"""Read the table that somebody has: CSV, Parquet or ARFF, whole or in chunks, with errors that say where."""

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

#: How names of readable files end.
TABLE_SUFFIXES = (".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz", ".parquet", ".pq", ".arff", ".arff.gz")


def read_table(path: str | Path) -> pd.DataFrame:
    """Read a table; each column comes as numbers or as text, with NaN where a value is missing.

    CSV has one header line; commas, semicolons or tabs; UTF-8; plain or gzipped. Empty fields, ``?``, ``NA``
    and their like are missing. A nameless first column is the row index that pandas writes: it is left out.
    Truth values and dates are text.

    Parameters
    ----------
    path
        A file whose name ends in .csv, .tsv, .txt, .parquet, .pq or .arff.

    Raises
    ------
    InvalidInputError
        If there is no such file, it is empty, column names repeat, or it cannot be read; the message has
        the number of the line.
    """
    return _open_table(path).read()


def iter_table(
    path: str | Path, *, chunk_rows: int = 50_000, kinds: Mapping[str, Kind] | None = None
) -> Iterator[pd.DataFrame]:
    """Read a table in chunks of rows, in memory that does not grow with the file.

    Every record of a CSV is checked at once, columns when the first chunk is asked for. The index goes on
    from chunk to chunk.

    Parameters
    ----------
    path
        As for :func:`read_table`.
    chunk_rows
        Rows a chunk.
    kinds
        Column → ``"number"`` or ``"text"``, as :func:`column_kinds` tells of the table that a model was
        trained on. These columns must be there; others come as they are. Without it the first chunk decides.

    Raises
    ------
    InvalidInputError
        As for :func:`read_table`; also, while reading, if a column of numbers holds something else.
    """
    check_count(chunk_rows, "chunk_rows")
    return _open_table(path).chunks(chunk_rows, kinds)


def _open_table(path: str | Path) -> CsvFile | ParquetFile | ArffFile:
    path = Path(path)
    if not path.is_file():
        what = "is a folder, not a file" if path.is_dir() else "does not exist"
        raise InvalidInputError(f"{path} {what}. Pass a file that ends in {', '.join(TABLE_SUFFIXES)}.")
    name = path.name.lower()
    if not name.endswith(TABLE_SUFFIXES):
        raise InvalidInputError(
            f"{path}: the name of a table must end in {', '.join(TABLE_SUFFIXES)}, which tells how to read "
            "it. Save the table as CSV, or rename the file."
        )
    if path.stat().st_size == 0:
        raise InvalidInputError(f"{path} is empty; expected a header line and rows.")
    if name.endswith((".parquet", ".pq")):
        return ParquetFile(path)
    if name.endswith((".arff", ".arff.gz")):
        return ArffFile(path)
    return check_csv(path)
