"""Results on disk: a folder of JSON lines that only grows.

Every process appends to a file of its own, so processes never mix their lines, and nothing is appended after
a line that was cut off. If two processes complete the same run, the results are equal and the earlier record
counts. So any number of processes can share a folder, on one machine or over a network. (A process locks its
file only to show that it is alive; the operating system releases the lock when it ends.)

The folder holds
    ``records-ID.jsonl``  one line per run, one file per process;
    ``plan-HASH.json``    the runs that were requested, from which ``peerloss status`` computes progress;
    ``NAME/``             tables and checkpoints of an image experiment. Earlier versions wrote its records
                          there too; they are read as well.
"""

from __future__ import annotations

import json
import uuid
import warnings
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self

from peerloss._files import append_through, lock_file, output_errors
from peerloss.exceptions import InvalidInputError
from peerloss.experiments._load import IMAGE_EXPERIMENTS
from peerloss.experiments._record import FORMAT, Record, parse_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from types import TracebackType

    from peerloss.experiments._experiment import Experiment


class StoreWarning(UserWarning):
    """Lines of a store could not be read; their runs count as not done."""


class Store:
    """A folder of records; :class:`Record` lists their fields.

    Parameters
    ----------
    folder
        Created when the first record or plan is written.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        if self.folder.exists() and not self.folder.is_dir():
            raise InvalidInputError(f"`folder` must be a folder of results; {self.folder} is a file.")
        self._records: dict[str, Record] = {}
        self._read_up_to: dict[Path, int] = {}
        self._out: IO[bytes] | None = None

    def refresh(self) -> None:
        """Read what any process has written since the last call."""
        for path in self._files():
            start = self._read_up_to.get(path, 0)
            with path.open("rb") as stream:
                stream.seek(start)
                complete, newline, _ = stream.read().rpartition(b"\n")
            self._read_up_to[path] = start + len(complete) + len(newline)
            lines = [line for line in complete.split(b"\n") if line.strip()]
            skipped = sum(not self._add(line) for line in lines)
            if skipped:
                _warn(path, f"{skipped} of its {len(lines)} lines cannot be read as records and are skipped")

    def records(self) -> list[Record]:
        """Return one record per run, in the order of their keys.

        Lines that are not complete records are counted in a :class:`StoreWarning` and skipped; so is a last
        line without its end, which a killed process leaves behind.
        """
        self.refresh()
        for path, end in self._read_up_to.items():
            if path.stat().st_size > end:
                _warn(
                    path,
                    "its last line is incomplete (a run was stopped there, or is writing it now), skipped",
                )
        return [self._records[key] for key in sorted(self._records)]

    def records_of(self, experiment: Experiment) -> list[Record]:
        """Return all records of an experiment under its protocol, with any method, seed and settings."""
        wanted = (experiment.name, experiment.protocol)
        return [record for record in self.records() if (record["experiment"], record.protocol) == wanted]

    def done(self) -> set[str]:
        """Return the keys of the runs that are done."""
        self.refresh()
        return set(self._records)

    def repair(self) -> None:
        """Remove, with a warning, the incomplete last lines that killed processes left behind.

        They would be skipped in any case. Files of living processes are not changed.
        """
        for path in self._files():
            with path.open("rb+") as stream:
                content = stream.read()
                complete = content.rfind(b"\n") + 1
                if complete < len(content) and lock_file(stream):
                    stream.truncate(complete)
                    _warn(path, "repaired: its last line was incomplete (a run was stopped there), removed")

    def append(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Write records to the file of this process and flush them to disk; all of them or none."""
        lines = [json.dumps(dict(record), allow_nan=False) + "\n" for record in records]
        if self._out is None:
            path = self.folder / f"records-{uuid.uuid4().hex}.jsonl"
            with output_errors([path]):
                self.folder.mkdir(parents=True, exist_ok=True)
                self._out = path.open("xb", buffering=0)
            lock_file(self._out)
        append_through(
            self._out,
            "".join(lines).encode(),
            advice="All earlier records are kept. Free some space, then run the same command again.",
        )

    def _files(self) -> list[Path]:
        folders = (self.folder, *(self.folder / name for name in IMAGE_EXPERIMENTS))
        return [path for folder in folders for path in sorted(folder.glob("records-*.jsonl"))]

    def _add(self, line: bytes) -> bool:
        """Add the record of a line; return whether it is a record, possibly of another version."""
        try:
            record = Record(parse_line(line))
        except ValueError:
            return False
        if record.get("format") != FORMAT:
            return isinstance(record.get("format"), int)
        key, finished = record.get("key"), record.get("finished")
        if not (isinstance(key, str) and isinstance(finished, str) and record.is_usable):
            return False
        other = self._records.get(key)
        if other is None or finished < other["finished"]:
            self._records[key] = record
        return True

    def close(self) -> None:
        """Close the file that this store appends to."""
        if self._out is not None:
            self._out.close()
            self._out = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _warn(path: Path, what: str) -> None:
    warnings.warn(f"{path.name}: {what}; what it held counts as not done.", StoreWarning, stacklevel=4)
