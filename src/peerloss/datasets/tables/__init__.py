"""Read and write tables: CSV, Parquet and ARFF files, entirely or in chunks of rows."""

from peerloss.datasets._open_limited import open_text, text_encoding
from peerloss.datasets.tables._columns import Kind, as_kinds, column_kinds, require_columns
from peerloss.datasets.tables._csv import (
    append_field,
    check_csv,
    neutralise,
    read_records,
    replace_field,
    write_table,
)
from peerloss.datasets.tables._read_table import TABLE_SUFFIXES, iter_table, read_table

__all__ = [
    "TABLE_SUFFIXES",
    "Kind",
    "append_field",
    "as_kinds",
    "check_csv",
    "column_kinds",
    "iter_table",
    "neutralise",
    "open_text",
    "read_records",
    "read_table",
    "replace_field",
    "require_columns",
    "text_encoding",
    "write_table",
]
