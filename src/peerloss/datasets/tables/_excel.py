"""Workbooks (.xlsx): one sheet, whose first row names the columns."""

from __future__ import annotations

import zipfile
from contextlib import contextmanager
from datetime import date, datetime, time, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd

from peerloss._installing import import_extra
from peerloss.datasets._open_limited import check_unpacked
from peerloss.datasets.tables._columns import check_unique, quoted
from peerloss.datasets.tables._reading import RowNumbers
from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

#: Limits of Excel itself; a file may claim more.
MAX_ROWS, MAX_COLUMNS = 1_048_576, 16_384
#: Largest size in bytes of the type declaration that a part of a workbook may begin with.
_HEAD = 4096


class Sheet(NamedTuple):
    """The cells of one sheet."""

    table: pd.DataFrame
    row_numbers: RowNumbers
    where: str
    """The file and, if it has several sheets, which one was read, for messages."""


def read_sheet(path: Path, sheet: str | None) -> Sheet:
    """Read one sheet; cells are numbers, text or ``None``, and formulas have their stored values.

    Dates become text such as 2024-12-31, true and false become text, and rows without values are left out.
    """
    with _open_book(path) as book:
        chosen = _choose_sheet(book, sheet, path)
        others = [each.title for each in book.worksheets if each.title != chosen.title]
        where = str(path)
        if others:
            where += f", sheet {chosen.title!r} (--sheet chooses another: {quoted(others)})"
        table, numbers = _table(chosen, where)
        return Sheet(table, numbers, where)


def sheet_names(path: Path) -> list[str]:
    """Return the names of the sheets of a workbook."""
    with _open_book(path) as book:
        return [each.title for each in book.worksheets]


@contextmanager
def _open_book(path: Path) -> Iterator[Any]:
    """Open a workbook; errors in the block are reported as those of the file."""
    openpyxl = import_excel()
    try:
        _check_archive(path)
        book = openpyxl.load_workbook(path, read_only=True, data_only=True, keep_links=False)
        try:
            yield book
        finally:
            book.close()
    except InvalidInputError:
        raise
    except Exception as error:  # parsers may raise anything for hostile bytes
        raise InvalidInputError(
            f"{path} is not a readable workbook: {type(error).__name__}: {error}. Open it in a spreadsheet "
            "program and save it again as .xlsx, or as CSV."
        ) from error


def import_excel() -> Any:
    """Return the module openpyxl."""
    return import_extra("openpyxl", "tables", "Excel files", advice="Or save the table as CSV.")


def _check_archive(path: Path) -> None:
    """Refuse archives that unpack to far more than their size, and XML entities, which can do the same."""
    with zipfile.ZipFile(path) as archive:
        entries = archive.infolist()
        check_unpacked(path, sum(entry.file_size for entry in entries), advice="Save the sheet as CSV.")
        for entry in entries:
            if entry.filename.lower().endswith((".xml", ".rels")):
                with archive.open(entry) as part:
                    head = part.read(_HEAD).replace(b"\0", b"")  # also in UTF-16
                if b"<!DOCTYPE" in head or b"<!ENTITY" in head:
                    raise InvalidInputError(
                        f"{path}: {entry.filename} declares XML entities, which workbooks do not have. Save "
                        "the sheet as CSV."
                    )


def _choose_sheet(book: Any, sheet: str | None, path: Path) -> Any:
    names = [found.title for found in book.worksheets]
    if not names:
        raise InvalidInputError(f"{path} has no sheet with cells.")
    if sheet is None:
        return book[names[0]]
    if sheet not in names:
        raise InvalidInputError(f"`sheet` must be one of {quoted(names)}; got {sheet!r}.")
    return book[sheet]


def _table(sheet: Any, where: str) -> tuple[pd.DataFrame, RowNumbers]:
    sheet.reset_dimensions()  # the declared ones may be wrong
    header, first = _header(sheet, where)
    rows: list[tuple[Any, ...]] = []
    numbers: list[int] = []
    width = len(header)
    for number, row in _rows(sheet, first + 1, min(width + 1, MAX_COLUMNS)):
        if len(row) > width and row[width] is not None:
            title = f"If row {first} is a title, delete the rows above the names of the columns. "
            raise InvalidInputError(
                f"{where}, row {number}: a value to the right of the last column with a name, "
                f"{header[-1]!r}. {title if width == 1 else ''}Name the column, or delete the value."
            )
        rows.append((*map(_cell, row[:width]), *(None,) * (width - len(row))))
        numbers.append(number)
    if not rows:
        raise InvalidInputError(f"{where} has a header but no rows.")
    columns = zip(*rows, strict=True)
    table = pd.DataFrame(
        {name: pd.Series(values, dtype=object) for name, values in zip(header, columns, strict=True)}
    ).infer_objects()
    return table, RowNumbers.of(numbers)


def _header(sheet: Any, where: str) -> tuple[list[str], int]:
    """Return the names in the first row with values, and its number."""
    number, row = next(_rows(sheet, 1, MAX_COLUMNS), (0, ()))
    names = [str(_cell(cell)).strip() if cell is not None else "" for cell in row]
    while names and not names[-1]:
        names.pop()
    if not names:
        raise InvalidInputError(f"{where} is empty; expected a first row with the names of the columns.")
    if "" in names:
        raise InvalidInputError(
            f"{where}: column {names.index('') + 1} has no name in row {number}. Name it, or delete the "
            "column (a title above the table must be deleted, too)."
        )
    check_unique(names, where, advice="Rename the columns in the first row.")
    return names, number


def _rows(sheet: Any, first: int, width: int) -> Iterator[tuple[int, Sequence[Any]]]:
    """Yield the rows that have a value, with their numbers."""
    found = sheet.iter_rows(min_row=first, max_row=MAX_ROWS, max_col=width, values_only=True)
    for number, row in enumerate(found, start=first):
        if any(cell is not None and cell != "" for cell in row):
            yield number, row


def _cell(value: Any) -> Any:
    """Return a cell as a number, text or ``None``."""
    if value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
        return value
    if isinstance(value, bool):
        return str(value).upper()  # as spreadsheets show it
    if isinstance(value, datetime) and value.time() == time():
        return value.date().isoformat()
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return str(value)
    return str(value)
