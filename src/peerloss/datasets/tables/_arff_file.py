"""Read ARFF files (Weka, OpenML); errors contain the line number."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import pandas as pd

from peerloss.datasets.tables._column_kinds import as_kinds, require_columns
from peerloss.datasets.tables._open_text import open_text
from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from peerloss.datasets.tables._column_kinds import Kind

_NUMBERS = ("NUMERIC", "REAL", "INTEGER")


@dataclass(frozen=True)
class ArffFile:
    """An ARFF file; its declarations define which columns are numbers."""

    path: Path

    def read(self) -> pd.DataFrame:
        """Read the entire file."""
        return next(self._frames(None, {}))

    def chunks(self, chunk_rows: int, kinds: Mapping[str, Kind] | None) -> Iterator[pd.DataFrame]:
        """Read chunks of rows."""
        return self._frames(chunk_rows, kinds or {})

    def _frames(self, chunk_rows: int | None, kinds: Mapping[str, Kind]) -> Iterator[pd.DataFrame]:
        arff = _import_arff()
        line = 0

        def numbered(stream: Any) -> Iterator[str]:
            nonlocal line
            for line, text in enumerate(stream, start=1):  # noqa: B007 - read by the handler below
                yield text

        try:
            with open_text(self.path) as stream:
                content = arff.load(numbered(stream), return_type=arff.DENSE_GEN)
                names = [name for name, _ in content["attributes"]]
                require_columns(names, kinds, where=str(self.path))
                declared: dict[str, Kind] = {
                    name: "number" if kind in _NUMBERS else "text" for name, kind in content["attributes"]
                }
                start = 0
                while rows := list(islice(content["data"], chunk_rows)):
                    index = pd.RangeIndex(start, start + len(rows))
                    table = pd.DataFrame(rows, columns=names, index=index)
                    yield as_kinds(table, declared | dict(kinds), locate=self._locate)
                    start = index.stop
        except arff.ArffException as error:
            # Line numbers of the parser are wrong for errors in the data part.
            reason = str(error).split(", at line")[0]
            raise InvalidInputError(f"{self.path}, line {line}: {reason}. Correct that line.") from error
        if not start:
            raise InvalidInputError(f"{self.path} has a header but no rows.")

    def _locate(self, row: int) -> str:
        return f"{self.path}, row {row + 1} of @data"


def _import_arff() -> Any:
    try:
        import arff  # noqa: PLC0415 - an optional package
    except ImportError as error:
        raise InvalidInputError(
            'Reading ARFF needs liac-arff: pip install "peerloss[tables]". Or save the table as CSV.'
        ) from error
    return arff
