"""Read and write tables: CSV, Parquet and ARFF files, entirely or in chunks of rows."""

from peerloss.datasets.tables._column_kinds import Kind, as_kinds, column_kinds, quoted, require_columns
from peerloss.datasets.tables._csv_file import CsvFile, check_csv
from peerloss.datasets.tables._csv_text import (
    Record,
    append_field,
    neutralise,
    read_records,
    replace_field,
    write_table,
)
from peerloss.datasets.tables._open_text import open_text, text_encoding
from peerloss.datasets.tables._read_table import TABLE_SUFFIXES, iter_table, read_table

__all__ = [
    "TABLE_SUFFIXES",
    "CsvFile",
    "Kind",
    "Record",
    "append_field",
    "as_kinds",
    "check_csv",
    "column_kinds",
    "iter_table",
    "neutralise",
    "open_text",
    "quoted",
    "read_records",
    "read_table",
    "replace_field",
    "require_columns",
    "text_encoding",
    "write_table",
]
