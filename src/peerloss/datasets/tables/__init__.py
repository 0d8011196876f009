"""Read and write tables: CSV, Parquet, ARFF, JSON lines and Excel, entirely or in chunks of rows."""

from peerloss.datasets._open_limited import open_text, text_encoding
from peerloss.datasets.label_spelling import WordUse
from peerloss.datasets.tables._columns import (
    Kind,
    as_kinds,
    column_kinds,
    free_names,
    quoted,
    require_columns,
)
from peerloss.datasets.tables._csv import (
    CsvFile,
    check_csv,
    csv_rows,
    neutralise,
    read_records,
    write_table,
)
from peerloss.datasets.tables._csv_edits import append_field, replace_field, strip_field
from peerloss.datasets.tables._json_lines import value_places
from peerloss.datasets.tables._number_text import ColumnNote
from peerloss.datasets.tables._other_file import options_for_other
from peerloss.datasets.tables._read_table import (
    find_row_numbers,
    iter_table,
    read_table,
    read_with_notes,
)
from peerloss.datasets.tables._reading import (
    JSON_SUFFIXES,
    TABLE_SUFFIXES,
    TEXT_SUFFIXES,
    Reading,
    ReadOptions,
    RowNumbers,
)
from peerloss.datasets.tables._write_chunks import OUTPUT_SUFFIXES, check_output_format, write_chunks

__all__ = [
    "JSON_SUFFIXES",
    "OUTPUT_SUFFIXES",
    "TABLE_SUFFIXES",
    "TEXT_SUFFIXES",
    "ColumnNote",
    "CsvFile",
    "Kind",
    "ReadOptions",
    "Reading",
    "RowNumbers",
    "WordUse",
    "append_field",
    "as_kinds",
    "check_csv",
    "check_output_format",
    "column_kinds",
    "csv_rows",
    "find_row_numbers",
    "free_names",
    "iter_table",
    "neutralise",
    "open_text",
    "options_for_other",
    "quoted",
    "read_records",
    "read_table",
    "read_with_notes",
    "replace_field",
    "require_columns",
    "strip_field",
    "text_encoding",
    "value_places",
    "write_chunks",
    "write_table",
]
