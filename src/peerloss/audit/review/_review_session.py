"""The suspects of an audit with the decisions on them, as the review page needs them."""

from __future__ import annotations

import shlex
import threading
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from peerloss.audit._audit_page import cell_text, long_columns, printable
from peerloss.audit.review._decisions_file import (
    ACTIONS,
    MAX_NAME,
    MAX_NOTE,
    DecisionsFile,
    disagreements,
    latest,
)
from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    from pathlib import Path

    from peerloss._validation import BoolArray
    from peerloss.audit.folder import AuditFolder

#: Suspects per response; the page requests the next ones in advance.
BATCH = 20
#: Longer texts are truncated on the page, more so those of similar rows.
MAX_TEXT, MAX_EXAMPLE = 20_000, 600
#: Decisions that the last page lists, and confusions that can be chosen.
MAX_LISTED, MAX_CONFUSIONS = 500, 200
#: Which suspects a view shows.
STATUSES = ("undecided", "skipped", "decided", "all")


@dataclass(frozen=True)
class View:
    """Which suspects to show: by status, and by given and suggested label."""

    status: str = "undecided"
    given: str | None = None
    suggested: str | None = None


class Review:
    """Suspects of an audit and the decisions on them; safe to use from several threads.

    A *place* is the position of a suspect in the order of the review, from 0.

    Parameters
    ----------
    folder
        The audit.
    reviewer
        Name that is written with each decision.
    order
        Column of labels.csv by which to order suspects: ``"rank"``, most probable errors first, or another
        column of numbers, largest first.
    """

    def __init__(self, folder: AuditFolder, *, reviewer: str | None = None, order: str = "rank") -> None:
        if reviewer is not None and not 0 < len(reviewer.strip()) <= MAX_NAME:
            raise InvalidInputError(
                f"`reviewer` must be a name of 1 to {MAX_NAME} characters; got {reviewer[:200]!r}."
            )
        self.classes = folder.classes
        self.reviewer = reviewer
        self.title = str(folder.manifest.get("source", printable(folder.path.name)))
        self.command = f"peerloss apply {shlex.quote(printable(str(folder.path)))} -o cleaned.csv"
        suspects = _ordered(folder, order)
        self._suspects: list[dict[Any, Any]] = suspects.to_dict("records")
        self._given, self._suggested = (suspects[name].to_numpy(dtype=str) for name in ("given", "suggested"))
        self._place = {int(row): place for place, row in enumerate(suspects["row"])}
        features = folder.features()
        folder.check_rows(suspects["row"], len(features))
        self._row_numbers = folder.row_numbers
        self._names = dict(zip(folder.labels["row"].tolist(), folder.labels["name"].tolist(), strict=True))
        self._labels = dict(zip(folder.labels["row"].tolist(), folder.labels["given"].tolist(), strict=True))
        self._long = long_columns(features.iloc[suspects["row"].to_numpy()])
        self._explanations = folder.explanations(len(features))
        self._columns = [str(name) for name in features]
        self._cells = self._needed_cells(features)
        self._pictures = folder.pictures()
        self._lock = threading.RLock()
        self._file = DecisionsFile(folder.decisions_path)

    def _needed_cells(self, features: pd.DataFrame) -> dict[int, Any]:
        """Return row → its cells, of the suspects and of the rows that are shown for comparison."""
        needed = set(self._place)
        for why in self._explanations.values():
            needed.update(why.given_examples, why.suggested_examples, why.nearest)
        rows = sorted(needed)
        return dict(zip(rows, features.iloc[rows].to_numpy(dtype=object), strict=True))

    def __len__(self) -> int:
        return len(self._suspects)

    def settings(self) -> dict[str, Any]:
        """Return what the page needs once: classes, frequent confusions, the command that comes next."""
        pairs = Counter(zip(self._given.tolist(), self._suggested.tolist(), strict=True))
        return {
            "classes": self.classes,
            "batch": BATCH,
            "given": [[label, number] for label, number in Counter(self._given.tolist()).most_common()],
            "confusions": [[*pair, number] for pair, number in pairs.most_common(MAX_CONFUSIONS)],
            "reviewer": self.reviewer,
            "command": self.command,
            "first_row": self._row_numbers[0],
        }

    def picture(self, row: int) -> Path | None:
        """Return the picture of a row of the data."""
        return self._pictures[row] if self._pictures is not None and row < len(self._pictures) else None

    def batch(self, start: int) -> list[dict[str, Any]]:
        """Return up to ``BATCH`` suspects as text, in the order of the review."""
        places = range(start, min(start + BATCH, len(self)))
        return [{"place": place, **self._describe(self._suspects[place])} for place in places]

    def _describe(self, suspect: dict[Any, Any]) -> dict[str, Any]:
        row = int(suspect["row"])
        why = self._explanations.get(row)
        similar = [] if why is None else [*why.given_examples, *why.suggested_examples]
        p_suggested = suspect.get("p_suggested")
        return {
            "name": self._name(row),
            "given": str(suspect["given"]),
            "suggested": str(suspect["suggested"]),
            "p_error": round(float(suspect["p_error"]), 4),
            "p_suggested": None if p_suggested is None else round(float(p_suggested), 4),
            "picture": row if self.picture(row) is not None else None,
            "texts": self._columns_of([row], MAX_TEXT, long=True),
            "features": self._columns_of([row, *similar], MAX_TEXT, long=False),
            "similar": [self._card(other) for other in similar],
            "nearest": [] if why is None else [self._card(other) for other in why.nearest],
            "probabilities": []
            if why is None
            else [(self.classes[place], round(p, 4)) for place, p in why.probabilities],
            "unusual": [] if why is None else why.unusual,
        }

    def _columns_of(self, rows: list[int], limit: int, *, long: bool) -> list[list[str]]:
        """Return each column as its name and the texts of these rows; all but the first are shortened."""
        limits = [limit] + [MAX_EXAMPLE] * (len(rows) - 1)
        return [
            [name, *(self._text(row, place)[:most] for row, most in zip(rows, limits, strict=True))]
            for place, name in enumerate(self._columns)
            if (place in self._long) == long
        ]

    def _text(self, row: int, place: int) -> str:
        return cell_text(self._cells[row][place])

    def _card(self, row: int) -> dict[str, Any]:
        texts = [self._text(row, place)[:MAX_EXAMPLE] for place in sorted(self._long)]
        return {
            "name": self._name(row),
            "label": str(self._labels.get(row, "")),
            "picture": row if self.picture(row) is not None else None,
            "texts": texts,
        }

    def _name(self, row: int) -> str:
        number = f"row {self._row_numbers[row]}"
        name = str(self._names.get(row, row))
        return number if name == str(row) else f"{name} ({number})"

    def state(self, view: View | None = None, after: int = -1) -> dict[str, Any]:
        """Return the number of decisions of each kind and the place of the next suspect of the view.

        Decisions on rows that are no longer suspects, as after a new ranking, are not counted. The
        next suspect has no decision, or, in a view of another status, comes after the place ``after``.
        ``decision`` is the one that it has, if any.
        """
        view = View() if view is None else view
        with self._lock:
            decided = latest(self._file.decisions)
        actions = Counter(decision.action for row, decision in decided.items() if row in self._place)
        matching = self._matching(view, decided)
        places = np.flatnonzero(matching)
        if view.status != "undecided":
            places = places[places > after]
        following = int(places[0]) if len(places) else len(self)
        decision = decided.get(int(self._suspects[following]["row"])) if following < len(self) else None
        return {
            "total": len(self),
            "matching": int(matching.sum()),
            "next": following,
            "decision": None if decision is None else vars(decision),
            **{action: actions[action] for action in ACTIONS if action != "undo"},
        }

    def _matching(self, view: View, decided: dict[int, Any]) -> BoolArray:
        status = np.full(len(self), "undecided", dtype="<U9")
        for row, decision in decided.items():
            if row in self._place:
                status[self._place[row]] = "skipped" if decision.action == "skip" else "decided"
        matching: BoolArray = (status == view.status) | (view.status == "all")
        for label, labels in ((view.given, self._given), (view.suggested, self._suggested)):
            if label is not None:
                matching &= labels == label
        return matching

    def decide(
        self,
        action: str,
        place: int | None,
        label: str | None,
        *,
        note: str | None = None,
        view: View | None = None,
    ) -> dict[str, Any]:
        """Write a decision, or undo the reviewer's last one on a suspect, and return the new state.

        Raise ``ValueError`` if there is no such suspect or label, ``OutputError`` if it cannot be written.
        """
        with self._lock:
            if action == "undo":
                own = (d.row for d in reversed(self._file.decisions) if d.reviewer == self.reviewer)
                row = next((row for row in own if row in self._place), None)
                if row is None:
                    return self.state(view)
                self._file.append(row, "undo", reviewer=self.reviewer)
                return self.state(view) | {"next": self._place[row], "decision": self._decision(row)}
            if place is None or not 0 <= place < len(self):
                raise ValueError("no such suspect")
            if (action == "change") != (label in self.classes):
                raise ValueError("no such label")
            if note is not None and len(note) > MAX_NOTE:
                raise ValueError("the note is too long")
            row = int(self._suspects[place]["row"])
            self._file.append(row, action, label, note=note or None, reviewer=self.reviewer)
            return self.state(view, after=place)

    def _decision(self, row: int) -> dict[str, Any] | None:
        decision = latest(self._file.decisions).get(row)
        return None if decision is None else vars(decision)

    def decisions(self) -> dict[str, Any]:
        """Return the last decisions, newest first, and the rows on which reviewers disagree."""
        with self._lock:
            made = list(self._file.decisions)
        counting = list(latest(made).values())[::-1]
        return {
            "total": len(counting),
            "decisions": [
                vars(d) | {"name": self._name(d.row), "given": str(self._labels.get(d.row, ""))}
                for d in counting[:MAX_LISTED]
            ],
            "disagreements": [self._name(row) for row in disagreements(made)],
        }

    def close(self) -> None:
        """Close the file of decisions."""
        self._file.close()


def _ordered(folder: AuditFolder, order: str) -> pd.DataFrame:
    suspects = folder.suspects()
    if order == "rank":
        return suspects
    numeric = [
        str(name)
        for name in folder.labels
        if pd.api.types.is_numeric_dtype(folder.labels[name]) and name not in {"row", "flagged"}
    ]
    if order not in numeric:
        raise InvalidInputError(
            f"`order` must be a column of numbers in labels.csv: {', '.join(numeric)}; got {order!r}."
        )
    return suspects.sort_values(order, ascending=False, kind="stable")
