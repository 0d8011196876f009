"""Results on disk: a folder of JSON lines that only grows.

Every runner appends to a file of its own, so that runners never mix their lines, and nobody appends behind a
line that was cut off. Two runners may find the same cell; its figures are the same, and the earlier record
counts. Nothing else is needed for any number of runners to share a folder, on one machine or over a network.
(A runner locks its file only to show that it lives; the system takes the lock back however it ends.)

The folder holds
    ``records-ID.jsonl``  one line a cell, one file a runner;
    ``plan-HASH.json``    what a runner was asked for: ``peerloss status`` counts against it.
"""

from __future__ import annotations

import json
import uuid
import warnings
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self

from peerloss._files import append_through, lock_file, output_errors
from peerloss.exceptions import InvalidInputError
from peerloss.experiments._cells import FORMAT
from peerloss.experiments._records import is_cell_record, parse_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType

Record = dict[str, Any]


class StoreWarning(UserWarning):
    """Lines of a store could not be read; their cells count as not done."""


class Store:
    """A folder of results.

    A record is a JSON object with these fields:

    ``format``, ``key``
        Version of this format; unique name of the cell.
    ``experiment``, ``protocol``, ``data_set``, ``e_neg``, ``e_pos``, ``prior``, ``method``, ``seed``
        Which cell it is.
    ``spec``, ``split``
        Hash of all settings; hash of rows, features and labels.
    ``n_train``, ``n_validation``, ``n_test``
        Numbers of rows.
    ``choose``, ``scoring_alpha``, ``settings``
        Of the recipe; settings are those that all trials have in common.
    ``trials``
        ``settings`` {name: one value a trial}, empty without a search; ``noisy_validation`` and
        ``test_accuracy``, one figure a trial, ``null`` where training diverged or, with ``choose`` "seed",
        where the test stayed closed.
    ``chosen``, ``noisy_validation``, ``test_accuracy``, ``test_balanced_accuracy``
        Number of the trial that is best on this seed's noisy validation, and its figures (``null`` if every
        trial diverged).
    ``diverged``
        How many trials diverged.
    ``curve``
        ``null``, or lists over the training of the chosen trial: ``step``, and as the spec asks
        ``noisy_validation``, ``test_accuracy``; ``train_noisy_peer_loss``, ``train_clean_peer_loss`` and the
        same of ``validation`` (α = 1, on the noisy and on the clean labels of the same rows).
    ``plane``
        ``null``, or the decision of the chosen trial over two standardised features: ``x``, ``y`` and
        ``probability[i][j]`` of class 1 at ``x[j]``, ``y[i]``; ``points`` and ``noisy_labels`` of training.
    ``seconds``, ``finished``
        Training time of all trials; time of day (UTC, ISO).
    ``versions``, ``machine``
        Of packages; system, architecture and cores.

    With ``choose`` "row" the result is not that of ``chosen`` but of the trial that is best on average over
    the seeds of a row: read results through :func:`final_results`, which knows.

    Parameters
    ----------
    folder
        Made when the first record or plan is written.
    is_usable
        Which records count; the others are skipped with a warning, like damaged lines.
    """

    def __init__(self, folder: str | Path, *, is_usable: Callable[[Record], bool] = is_cell_record) -> None:
        self.folder = Path(folder)
        if self.folder.exists() and not self.folder.is_dir():
            raise InvalidInputError(f"`folder` must be a folder of results; {self.folder} is a file.")
        self._is_usable = is_usable
        self._records: dict[str, Record] = {}
        self._read_up_to: dict[Path, int] = {}
        self._out: IO[bytes] | None = None

    def refresh(self) -> None:
        """Take in what has been written, by anybody, since the last time."""
        for path in sorted(self.folder.glob("records-*.jsonl")):
            start = self._read_up_to.get(path, 0)
            with path.open("rb") as stream:
                stream.seek(start)
                complete, newline, _ = stream.read().rpartition(b"\n")
            self._read_up_to[path] = start + len(complete) + len(newline)
            lines = [line for line in complete.split(b"\n") if line.strip()]
            skipped = sum(not self._take_in(line) for line in lines)
            if skipped:
                _warn(path, f"{skipped} of its {len(lines)} lines cannot be read as records and are skipped")

    def records(self) -> list[Record]:
        """Return one record a cell, in the order of their keys.

        Lines that are not whole records are counted in a :class:`StoreWarning` and skipped; so is a last line
        without its end, which a runner that was killed leaves behind.
        """
        self.refresh()
        for path, end in self._read_up_to.items():
            if path.stat().st_size > end:
                _warn(
                    path,
                    "its last line is incomplete (a run was stopped there, or is writing it now), skipped",
                )
        return [self._records[key] for key in sorted(self._records)]

    def done(self) -> set[str]:
        """Return the keys of the cells that need not be run again."""
        self.refresh()
        return set(self._records)

    def repair(self) -> None:
        """Cut off, with a warning, the incomplete last lines that runners left when they were killed.

        Without this they would be left out all the same. Files of runners that live are not touched.
        """
        for path in sorted(self.folder.glob("records-*.jsonl")):
            with path.open("rb+") as stream:
                content = stream.read()
                complete = content.rfind(b"\n") + 1
                if complete < len(content) and lock_file(stream):
                    stream.truncate(complete)
                    _warn(path, "repaired: its last line was incomplete (a run was stopped there), removed")

    def append(self, records: Iterable[Record]) -> None:
        """Write records to this runner's own file, at once and to the disk; all of them or none."""
        lines = [json.dumps(record, allow_nan=False) + "\n" for record in records]
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

    def _take_in(self, line: bytes) -> bool:
        """Take in a line; return whether it is a record, be it of another version."""
        try:
            record = parse_line(line)
        except ValueError:
            return False
        if record.get("format") != FORMAT:
            return isinstance(record.get("format"), int)
        key, finished = record.get("key"), record.get("finished")
        if not (isinstance(key, str) and isinstance(finished, str) and self._is_usable(record)):
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
