"""The suspects of an audit and the decisions on them, apart from the web page that shows them."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from peerloss.audit._audit_page import cell_text
from peerloss.audit.review._decisions_file import ACTIONS, DecisionsFile, latest

if TYPE_CHECKING:
    from peerloss.audit.folder import AuditFolder

#: Suspects per response; the page requests the next ones in advance.
BATCH = 20
#: Longer texts are truncated on the page.
MAX_TEXT = 20_000


class Review:
    """Suspects of an audit and the decisions on them; safe to use from several threads.

    A *place* is the position of a suspect in the order of ranks, from 0.
    """

    def __init__(self, folder: AuditFolder) -> None:
        self.classes = folder.classes
        self.title = str(folder.manifest.get("source", folder.path.name))
        suspects = folder.suspects()
        self._suspects = suspects.to_dict("records")
        self._place = {int(row): place for place, row in enumerate(suspects["row"])}
        features = folder.features()
        self._names = [str(name) for name in features]
        folder.check_rows(suspects["row"], len(features))
        self._features = features.iloc[suspects["row"].to_numpy()].to_numpy(dtype=object)
        self._lock = threading.Lock()
        self._file = DecisionsFile(folder.decisions_path)

    def __len__(self) -> int:
        return len(self._suspects)

    def batch(self, start: int) -> list[dict[str, Any]]:
        """Return up to ``BATCH`` suspects as text, in the order of their rank."""
        found = []
        for place in range(start, min(start + BATCH, len(self))):
            suspect = self._suspects[place]
            cells = [cell_text(value)[:MAX_TEXT] for value in self._features[place]]
            found.append(
                {
                    "place": place,
                    "name": str(suspect["name"]),
                    "given": str(suspect["given"]),
                    "suggested": str(suspect["suggested"]),
                    "p_error": round(float(suspect["p_error"]), 4),
                    "features": list(zip(self._names, cells, strict=True)),
                }
            )
        return found

    def state(self) -> dict[str, Any]:
        """Return the number of decisions of each kind and the place of the next suspect."""
        with self._lock:
            return self._state()

    def _state(self) -> dict[str, Any]:
        decided = latest(self._file.decisions)
        counts = {action: 0 for action in ACTIONS if action != "undo"}
        for decision in decided.values():
            counts[decision.action] += 1
        undecided = (place for row, place in self._place.items() if row not in decided)
        return {"total": len(self), "next": min(undecided, default=len(self)), **counts}

    def decide(self, action: str, place: int | None, label: str | None) -> dict[str, Any]:
        """Write a decision, or undo the last one, and return the new state.

        Raises
        ------
        ValueError
            If there is no such suspect or label.
        OutputError
            If the decision cannot be written.
        """
        with self._lock:
            if action == "undo":
                if self._file.decisions:
                    last = self._file.decisions[-1]
                    self._file.append(last.row, "undo")
                    return self._state() | {"next": self._place.get(last.row, 0)}
                return self._state()
            if place is None or not 0 <= place < len(self):
                raise ValueError("no such suspect")
            if (action == "change") != (label in self.classes):
                raise ValueError("no such label")
            self._file.append(int(self._suspects[place]["row"]), action, label)
            return self._state()

    def close(self) -> None:
        """Close the file of decisions."""
        self._file.close()
