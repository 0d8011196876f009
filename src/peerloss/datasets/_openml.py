"""Load data sets of openml.org by number; each is downloaded once and cached with a checksum."""

from __future__ import annotations

import gzip
import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
from sklearn.datasets import fetch_openml, get_data_home

from peerloss._files import atomic_stream
from peerloss.datasets._open_limited import open_limited
from peerloss.datasets.tables import as_kinds, column_kinds
from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    from peerloss.datasets.tables import Kind


@dataclass(frozen=True)
class OpenMLRecord:
    """The description that is stored with a cached table."""

    sha256: str
    """Checksum of the file of the table."""
    name: str
    target: str | None
    kinds: dict[str, Kind]
    citation: str


def read_openml(number: str, data_dir: str | Path | None) -> tuple[pd.DataFrame, OpenMLRecord]:
    """Return the table with a number at openml.org and its description, from the cache if possible."""
    if not (number.isascii() and number.isdigit()):
        raise InvalidInputError(
            f"`name` must be 'openml:' and a number, such as 'openml:31'; got {number!r}."
        )
    folder = Path(data_dir or Path(get_data_home(), "peerloss"), "openml")
    table_file, record_file = folder / f"{number}.csv.gz", folder / f"{number}.json"
    if not (table_file.exists() and record_file.exists()):
        _download(int(number), table_file, record_file)
    return _read(table_file, record_file)


def _download(number: int, table_file: Path, record_file: Path) -> None:
    try:
        # The default parser fails on categories that look like numbers.
        bunch = fetch_openml(data_id=number, as_frame=True, cache=False, parser="liac-arff")
    except OSError as error:
        raise InvalidInputError(
            f"OpenML data set {number} is not in the cache {table_file.parent} and cannot be downloaded "
            f"({error}). With a connection, call load_dataset('openml:{number}') once, then copy "
            f"{table_file.name} and {record_file.name} into that folder; or download the table from "
            f"https://www.openml.org/d/{number} and pass its path, and its label column as `target`."
        ) from error
    except ValueError as error:
        raise InvalidInputError(f"OpenML data set {number} cannot be loaded: {error}") from error
    table = as_kinds(bunch.frame, {}, locate=lambda row: f"row {row + 1}")
    packed = gzip.compress(table.to_csv(index=False).encode(), mtime=0)
    targets = list(bunch.target_names)
    record = OpenMLRecord(
        sha256=hashlib.sha256(packed).hexdigest(),
        name=str(bunch.details.get("name", number)),
        target=targets[0] if len(targets) == 1 else None,
        kinds=column_kinds(table),
        citation=str(bunch.details.get("citation") or f"OpenML, https://www.openml.org/d/{number}."),
    )
    try:
        with atomic_stream(table_file) as stream:
            stream.write(packed)
        with atomic_stream(record_file) as stream:  # last: a table without a record is downloaded again
            stream.write(json.dumps(asdict(record), indent=2, ensure_ascii=False).encode())
    except OSError as error:
        raise InvalidInputError(
            f"The cache {table_file.parent} cannot be written: {error}. Pass another folder as `data_dir`."
        ) from error


def _read(table_file: Path, record_file: Path) -> tuple[pd.DataFrame, OpenMLRecord]:
    """Read a cached table and its record, and verify the checksum."""
    advice = f"Delete {table_file} and {record_file} to download the data set again."
    try:
        record = OpenMLRecord(**json.loads(record_file.read_text(encoding="utf-8")))
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"{record_file} is not a valid cache record: {error}. {advice}") from error
    packed = table_file.read_bytes()
    found = hashlib.sha256(packed).hexdigest()
    if found != record.sha256:
        raise InvalidInputError(
            f"{table_file} has changed since it was downloaded: its SHA-256 is {found}, expected "
            f"{record.sha256}. {advice}"
        )
    table = pd.read_csv(
        open_limited(table_file, packed),
        dtype={name: "float64" if kind == "number" else "str" for name, kind in record.kinds.items()},
        keep_default_na=False,  # NA may be a category
        na_values=[""],
    )
    return table, record
