"""Write tables as CSV, TSV, Parquet, JSON lines or Excel, by the ending of the file name."""

from __future__ import annotations

import json
import math
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pandas as pd

from peerloss._installing import import_extra
from peerloss.datasets.tables._csv import write_table
from peerloss.datasets.tables._excel import MAX_ROWS, import_excel
from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

#: Endings of the names of files that can be written.
OUTPUT_SUFFIXES = (".csv", ".tsv", ".parquet", ".pq", ".jsonl", ".ndjson", ".xlsx")
#: Longest text of a cell of Excel; openpyxl would cut longer ones.
_MAX_CELL = 32_767


def check_output_format(path: Path, argument: str) -> str:
    """Return the ending of a table to write; refuse unknown ones, and formats whose package is missing.

    ``argument`` is the name of the argument in the message.
    """
    suffix = path.suffix.lower()
    if suffix not in OUTPUT_SUFFIXES:
        raise InvalidInputError(
            f"{argument} must be a file whose name ends in {', '.join(OUTPUT_SUFFIXES)}; got {path}."
        )
    if suffix == ".xlsx":
        import_excel()
    elif suffix in {".parquet", ".pq"}:
        _import_arrow()
    return suffix


def write_chunks(
    path: Path, chunks: Iterable[pd.DataFrame], *, suffix: str, spreadsheet_safe: bool = False
) -> None:
    """Write chunks of a table, without their index, to a new file.

    Parameters
    ----------
    path
        A file that does not exist.
    chunks
        Tables with the same columns.
    suffix
        The format, one of those that :func:`check_output_format` returns.
    spreadsheet_safe
        Whether to apply :func:`neutralise` to text of CSV and TSV files. Text of Excel files never is a
        formula.

    Raises
    ------
    InvalidInputError
        If a table is too long, or a text is not valid, for Excel.
    """
    if suffix in {".parquet", ".pq"}:
        _write_parquet(path, chunks)
    elif suffix == ".xlsx":
        _write_excel(path, chunks)
    else:
        with path.open("x", encoding="utf-8", newline="") as stream:
            for number, chunk in enumerate(chunks):
                if suffix in {".jsonl", ".ndjson"}:
                    stream.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in _records(chunk))
                else:
                    write_table(
                        stream,
                        chunk,
                        header=number == 0,
                        spreadsheet_safe=spreadsheet_safe,
                        delimiter="\t" if suffix == ".tsv" else ",",
                    )


def _records(chunk: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield rows whose values are numbers, text or ``None``."""
    names = [str(name) for name in chunk]
    columns = [chunk.iloc[:, place].astype(object).tolist() for place in range(chunk.shape[1])]
    for row in zip(*columns, strict=True):
        yield dict(zip(names, map(_plain, row), strict=True))


def _plain(value: Any) -> Any:
    if value is None or value is pd.NA or (isinstance(value, float) and not math.isfinite(value)):
        return None
    return value if isinstance(value, bool | int | float | str) else str(value)


def _import_arrow() -> Any:
    for module in ("pyarrow.parquet", "pyarrow"):
        found = import_extra(module, "tables", "Parquet files", advice="Or choose a name ending in .csv.")
    return found


def _write_parquet(path: Path, chunks: Iterable[pd.DataFrame]) -> None:
    arrow = _import_arrow()
    writer, schema = None, None
    try:
        for chunk in chunks:
            texts: dict[str, pd.Series] = {
                str(name): chunk[name].astype(object).map(str, na_action="ignore")
                for name in chunk
                if not pd.api.types.is_numeric_dtype(chunk[name])
            }
            table = arrow.Table.from_pandas(chunk.assign(**texts), schema=schema, preserve_index=False)
            if writer is None:
                fields = [arrow.field(f.name, arrow.string()) if f.name in texts else f for f in table.schema]
                schema = arrow.schema(fields)
                writer = arrow.parquet.ParquetWriter(path, schema)
            writer.write_table(table.cast(schema))
    finally:
        if writer is not None:
            writer.close()


def _write_excel(path: Path, chunks: Iterable[pd.DataFrame]) -> None:
    openpyxl = import_excel()
    book = openpyxl.Workbook(write_only=True)
    sheet = book.create_sheet("table")
    try:
        _fill_sheet(sheet, chunks)
    except BaseException:
        sheet.close()
        raise
    book.save(path)


def _fill_sheet(sheet: Any, chunks: Iterable[pd.DataFrame]) -> None:
    rows = 0
    for chunk in chunks:
        if not rows:
            sheet.append([_text_cell(sheet, str(name)) for name in chunk])
            rows = 1
        rows += len(chunk)
        if rows > MAX_ROWS:
            raise InvalidInputError(
                f"Excel files have at most {MAX_ROWS:,} rows. Choose a name that ends in .csv or .parquet."
            )
        for row in _records(chunk):
            sheet.append(
                [_text_cell(sheet, value) if isinstance(value, str) else value for value in row.values()]
            )


def _text_cell(sheet: Any, text: str) -> Any:
    """Return a cell that is text, also if the text looks like a formula or an error."""
    openpyxl_cell = import_module("openpyxl.cell")
    if len(text) > _MAX_CELL or openpyxl_cell.cell.ILLEGAL_CHARACTERS_RE.search(text):
        raise InvalidInputError(
            f"a cell of an Excel file must have at most {_MAX_CELL:,} characters and no control characters; "
            f"got {text[:40]!r}. Choose a name that ends in .csv or .parquet."
        )
    cell = openpyxl_cell.WriteOnlyCell(sheet, value=text)
    cell.data_type = "s"
    return cell
