"""Read Parquet files in batches of rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from peerloss.datasets._size_limits import check_unpacked
from peerloss.datasets.tables._column_kinds import as_kinds, quoted, require_columns
from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from peerloss.datasets.tables._column_kinds import Kind


@dataclass(frozen=True)
class ParquetFile:
    """A Parquet file; its schema defines which columns are numbers."""

    path: Path

    def read(self) -> pd.DataFrame:
        """Read the entire file."""
        return pd.concat(self._frames(2**16, {}, check_size=True))

    def chunks(self, chunk_rows: int, kinds: Mapping[str, Kind] | None) -> Iterator[pd.DataFrame]:
        """Read chunks of rows."""
        return self._frames(chunk_rows, kinds or {})

    def _frames(
        self, chunk_rows: int, kinds: Mapping[str, Kind], *, check_size: bool = False
    ) -> Iterator[pd.DataFrame]:
        arrow, parquet = _import_arrow()
        try:
            with parquet.ParquetFile(self.path) as content:
                columns = self._columns(content)
                if check_size:  # a few bytes can encode any number of equal rows
                    check_unpacked(self.path, content.metadata.num_rows * len(columns) * 8)
                require_columns(columns, kinds, where=str(self.path))
                start = 0
                for batch in content.iter_batches(batch_size=chunk_rows, columns=columns):
                    # Without the metadata of pandas, names stay text and no column becomes an index.
                    table = batch.to_pandas(ignore_metadata=True)
                    table.index = pd.RangeIndex(start, start + len(table))
                    yield as_kinds(table, kinds, locate=self._locate)
                    start = table.index.stop
        except (arrow.ArrowException, OSError) as error:
            raise InvalidInputError(f"{self.path} is not a readable Parquet file: {error}") from error
        if not start:
            raise InvalidInputError(f"{self.path} has columns but no rows.")

    def _columns(self, content: Any) -> list[str]:
        names = [name for name in content.schema_arrow.names if not name.startswith("__index_level_")]
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise InvalidInputError(
                f"{self.path}: column names must be unique; {quoted(repeated)} occurs more than "
                "once. Rename the columns."
            )
        return names

    def _locate(self, row: int) -> str:
        return f"{self.path}, row {row + 1}"


def _import_arrow() -> tuple[Any, Any]:
    try:
        import pyarrow as pa  # noqa: PLC0415 - an optional package
        from pyarrow import parquet  # noqa: PLC0415
    except ImportError as error:
        raise InvalidInputError(
            'Reading Parquet needs pyarrow: pip install "peerloss[tables]". Or save the table as CSV.'
        ) from error
    return pa, parquet
