"""The file of review decisions, ``decisions.jsonl``: append-only JSON lines that survive a crash.

Each line is on the disk before the page reports success. If a line cannot be written, nothing of it stays in
the file. An incomplete last line, as a crash leaves it, is removed with a warning when the file is opened
again; nothing else is ever changed. ``undo`` is a separate line that cancels the last decision of its
reviewer on its row. The last decision on a row counts, whoever made it; a skip counts only on a row without
another decision.
"""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from peerloss._files import append_through, lock_file
from peerloss.exceptions import InvalidInputError, warn_caller

if TYPE_CHECKING:
    from pathlib import Path

ACTIONS = ("keep", "change", "drop", "skip", "undo")
#: Longest note and name of a reviewer, in characters.
MAX_NOTE, MAX_NAME = 1000, 100


class DecisionsFileWarning(UserWarning):
    """A line of the decisions file could not be read."""


@dataclass(frozen=True)
class Decision:
    """The decision on a row."""

    row: int
    """Position of the row in the data, from 0."""
    action: str
    """``"keep"``, ``"change"``, ``"drop"`` (the row) or ``"skip"``."""
    label: str | None = None
    """The new label, for ``"change"``."""
    note: str | None = None
    reviewer: str | None = None
    """Who decided; ``None`` if the review had no name."""


def replay(lines: list[dict[str, Any]]) -> list[Decision]:
    """Return the decisions that were not undone, in the order in which they were made."""
    decisions: list[Decision] = []
    for line in lines:
        _carry_out(line, decisions)
    return decisions


def _carry_out(line: dict[str, Any], decisions: list[Decision]) -> None:
    """Add the decision of a line, or remove the reviewer's last one on its row."""
    reviewer = line.get("reviewer")
    if line["action"] != "undo":
        decisions.append(Decision(line["row"], line["action"], line.get("label"), line.get("note"), reviewer))
        return
    own = (line["row"], reviewer)
    last = next(
        (i for i in reversed(range(len(decisions))) if (decisions[i].row, decisions[i].reviewer) == own), None
    )
    if last is not None:
        del decisions[last]


def disagreements(decisions: list[Decision]) -> list[int]:
    """Return the rows on which the last decisions of different reviewers differ; skipping does not count."""
    own = {(d.row, d.reviewer): (d.action, d.label) for d in decisions if d.action != "skip"}
    seen: dict[int, tuple[str, str | None]] = {}
    return sorted({row for (row, _), choice in own.items() if seen.setdefault(row, choice) != choice})


def latest(decisions: list[Decision]) -> dict[int, Decision]:
    """Return the last decision on each row; a skip counts only if nobody decided on the row."""
    found: dict[int, Decision] = {}
    for decision in decisions:
        if decision.action != "skip" or found.get(decision.row, decision).action == "skip":
            found[decision.row] = decision
    return found


def checked_latest(
    decisions: list[Decision], rows: set[int], classes: set[str], path: Path
) -> dict[int, Decision]:
    """Return the last decision on each row; refuse a decision on a row or a label that does not exist."""
    last = latest(decisions)
    for decision in last.values():
        if decision.row not in rows or (decision.label is not None and decision.label not in classes):
            raise InvalidInputError(
                f"{path} has a decision on row {decision.row} ({decision.label!r}), which does not belong to "
                "this audit. Check the path."
            )
    return last


def read_decisions(path: Path) -> list[Decision]:
    """Read the decisions that were not undone, without changing the file."""
    return replay(_parse(path.read_bytes(), path)[0]) if path.exists() else []


class DecisionsFile(AbstractContextManager["DecisionsFile"]):
    """The file of decisions, open for one writer at a time.

    ``decisions`` are those that were not undone.
    """

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

    def append(
        self,
        row: int,
        action: str,
        label: str | None = None,
        *,
        note: str | None = None,
        reviewer: str | None = None,
    ) -> None:
        """Write a decision to the disk, then add it to ``decisions``; if writing fails, it is not added."""
        texts = {"label": label, "note": note, "reviewer": reviewer}
        line: dict[str, Any] = {"row": row, "action": action}
        line |= {name: text for name, text in texts.items() if text is not None}
        line["time"] = datetime.now(UTC).isoformat(timespec="seconds")
        append_through(
            self._out,
            json.dumps(line, ensure_ascii=True).encode("ascii") + b"\n",
            advice="This decision was not saved; all earlier ones were. Free some disk space, then decide "
            "again or restart the review.",
        )
        _carry_out(line, self.decisions)

    def close(self) -> None:
        """Close the file."""
        self._out.close()

    def __exit__(self, *_error: object) -> None:
        self.close()

    def _lock(self) -> None:
        if lock_file(self._out) is False:  # None: the operating system or file system has no locks
            raise InvalidInputError(
                f"{self.path} is open in another review, and two reviews would mix their decisions. Close "
                "the other one."
            )


def _parse(content: bytes, path: Path) -> tuple[list[dict[str, Any]], int]:
    """Return the valid lines and the position where the last complete line ends."""
    complete = content.rfind(b"\n") + 1
    if complete < len(content):
        message = (
            f"{path.name}: the last line is incomplete, as after a crash; skipped. Earlier lines are kept."
        )
        warn_caller(message, DecisionsFileWarning)
    lines = []
    for number, text in enumerate(content[:complete].splitlines(), start=1):
        try:
            line = json.loads(text)
            valid = type(line["row"]) is int and line["row"] >= 0
            valid &= line["action"] in ACTIONS
            valid &= (line["action"] == "change") == isinstance(line.get("label"), str)
            valid &= all(isinstance(line.get(name, ""), str) for name in ("note", "reviewer"))
        except (ValueError, KeyError, TypeError, RecursionError):
            valid = False
        if valid:
            lines.append(line)
        else:
            message = f"{path.name}, line {number} is not a valid decision; skipped."
            warn_caller(message, DecisionsFileWarning)
    return lines, complete
