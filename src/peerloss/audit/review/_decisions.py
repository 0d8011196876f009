"""What a person decided about suspects: a file of JSON lines that only grows and survives a crash.

Each line is on the disk before the page is told that it was accepted; if it cannot be written, it is not in
the file either. A line that a crash cut off is removed, with a warning, when the file is opened again;
nothing else is ever changed. ``undo`` is a line of its own, which takes back the decision on the row it
names.
"""

from __future__ import annotations

import json
import warnings
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Self

from peerloss._files import append_through, lock_file
from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

ACTIONS = ("keep", "change", "skip", "undo")


class JournalWarning(UserWarning):
    """A line of decisions could not be read."""


@dataclass(frozen=True)
class Decision:
    """What was decided about a row."""

    row: int
    """Position of the row in the data, from 0."""
    action: str
    """``"keep"``, ``"change"`` or ``"skip"``."""
    label: str | None = None
    """The new label, of a change."""


def replay(lines: list[dict[str, Any]]) -> list[Decision]:
    """Return the decisions that stand, in the order in which they were made."""
    standing: list[Decision] = []
    for line in lines:
        if line["action"] == "undo":
            last = next((i for i in reversed(range(len(standing))) if standing[i].row == line["row"]), None)
            if last is not None:
                del standing[last]
        else:
            standing.append(Decision(line["row"], line["action"], line.get("label")))
    return standing


def latest(decisions: list[Decision]) -> dict[int, Decision]:
    """Return the decision that counts for each row."""
    return {decision.row: decision for decision in decisions}


def read_journal(path: Path) -> list[Decision]:
    """Read the decisions that stand, without changing the file."""
    return replay(_parse(path.read_bytes(), path)[0]) if path.exists() else []


class Journal:
    """The file of decisions, open for one writer at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._out = path.open("ab+")
        try:
            self._lock()
            self._out.seek(0)
            lines, complete = _parse(self._out.read(), path)
            if complete < path.stat().st_size:
                self._out.truncate(complete)
            self.decisions = replay(lines)
        except BaseException:
            self._out.close()
            raise

    def append(self, row: int, action: str, label: str | None = None) -> None:
        """Write a decision to the disk, then count it; a decision that cannot be written does not count."""
        line: dict[str, Any] = {"row": row, "action": action}
        if label is not None:
            line["label"] = label
        line["time"] = datetime.now(UTC).isoformat(timespec="seconds")
        append_through(
            self._out,
            json.dumps(line, ensure_ascii=True).encode("ascii") + b"\n",
            advice="This decision does not count; all before it do. Free some space, then decide again, or "
            "start the review again.",
        )
        if action == "undo":
            self.decisions = replay([*map(_as_line, self.decisions), line])
        else:
            self.decisions.append(Decision(row, action, label))

    def close(self) -> None:
        """Close the file."""
        self._out.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _lock(self) -> None:
        if lock_file(self._out) is False:  # None: a system, or a file system, without locks
            raise InvalidInputError(
                f"{self.path} is open in another review; two at once would mix their decisions. Close "
                "the other one."
            )


def _as_line(decision: Decision) -> dict[str, Any]:
    return {"row": decision.row, "action": decision.action, "label": decision.label}


def _parse(content: bytes, path: Path) -> tuple[list[dict[str, Any]], int]:
    """Return the lines that are decisions and where the last whole line ends."""
    complete = content.rfind(b"\n") + 1
    if complete < len(content):
        warnings.warn(
            f"{path.name}: the last line was cut off, as a crash leaves it; it is left out. All before it "
            "is kept.",
            JournalWarning,
            stacklevel=4,
        )
    lines = []
    for number, text in enumerate(content[:complete].splitlines(), start=1):
        try:
            line = json.loads(text)
            usable = isinstance(line["row"], int) and not isinstance(line["row"], bool) and line["row"] >= 0
            usable &= line["action"] in ACTIONS
            usable &= (line["action"] == "change") == isinstance(line.get("label"), str)
        except (ValueError, KeyError, TypeError, RecursionError):
            usable = False
        if usable:
            lines.append(line)
        else:
            warnings.warn(
                f"{path.name}, line {number} is no decision; it is left out.", JournalWarning, stacklevel=4
            )
    return lines, complete
