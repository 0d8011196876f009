"""Options for a second table of a command, which may have been written by another program."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from peerloss.datasets._open_limited import is_utf8_text
from peerloss.datasets.tables._csv import count_fields, recognise_delimiter
from peerloss.datasets.tables._excel import sheet_names
from peerloss.datasets.tables._read_table import read_with_notes
from peerloss.datasets.tables._reading import EXCEL_SUFFIXES, TEXT_SUFFIXES, ReadOptions, applies_to

if TYPE_CHECKING:
    from pathlib import Path


def options_for_other(path: Path, options: ReadOptions | None) -> ReadOptions:
    """Return those options of the main table that another table needs.

    The encoding is used if the other file is not UTF-8, the separator if it divides the header into at least
    as many columns as the usual ones, the decimal mark if numbers cannot be read without it, and the sheet if
    the file has it. ``na_values`` are always used.

    Parameters
    ----------
    path
        The other table.
    options
        The options of the main table.
    """
    if options is None or not path.is_file():  # reading it reports that there is no such file
        return ReadOptions()
    kept = ReadOptions(na_values=options.na_values)
    name = path.name.lower()
    if options.encoding is not None and name.endswith(applies_to("encoding")) and not is_utf8_text(path):
        kept = replace(kept, encoding=options.encoding)
    if options.sep is not None and name.endswith(TEXT_SUFFIXES):
        usual = count_fields(path, recognise_delimiter(path, kept.encoding), kept.encoding)
        if count_fields(path, options.sep, kept.encoding) >= usual:
            kept = replace(kept, sep=options.sep)
    if options.sheet is not None and name.endswith(EXCEL_SUFFIXES) and options.sheet in sheet_names(path):
        kept = replace(kept, sheet=options.sheet)
    if options.decimal not in (None, kept.sep) and name.endswith(applies_to("decimal")):
        with_mark = replace(kept, decimal=options.decimal)
        unread = _unread_columns(path, kept)
        # Other columns may stay text for another reason, and the mark could turn 1.234 into a thousand.
        if unread and _unread_columns(path, with_mark) < unread:
            kept = with_mark
    return kept


def _unread_columns(path: Path, options: ReadOptions) -> int:
    """Return the number of columns that seem to be meant as numbers but stay text."""
    return sum(not note.to_numbers for note in read_with_notes(path, options=options).notes)
