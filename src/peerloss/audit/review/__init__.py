"""Review the suspects of an audit in the browser, and apply the decisions to the table.

Decisions are written to ``decisions.jsonl`` by :class:`DecisionsFile`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerloss._lazy_names import lazy_names

if TYPE_CHECKING:
    from peerloss.audit.review._apply_decisions import (
        MAX_CHANGE,
        UNDECIDED_POLICIES,
        Cleaning,
        check_automatic_changes,
        new_label_column,
        plan_cleaning,
        write_cleaned,
    )
    from peerloss.audit.review._decisions_file import (
        Decision,
        DecisionsFile,
        DecisionsFileWarning,
        read_decisions,
    )
    from peerloss.audit.review._rerank import gold_from_decisions, rerank
    from peerloss.audit.review._review_session import Review, View
    from peerloss.audit.review._server import ReviewServer

#: Module → public names that are imported from it.
_NAMES = {
    "_apply_decisions": (
        "MAX_CHANGE UNDECIDED_POLICIES Cleaning check_automatic_changes new_label_column plan_cleaning "
        "write_cleaned"
    ),
    "_decisions_file": "Decision DecisionsFile DecisionsFileWarning read_decisions",
    "_rerank": "gold_from_decisions rerank",
    "_review_session": "Review View",
    "_server": "ReviewServer",
}

__all__ = [
    "MAX_CHANGE",
    "UNDECIDED_POLICIES",
    "Cleaning",
    "Decision",
    "DecisionsFile",
    "DecisionsFileWarning",
    "Review",
    "ReviewServer",
    "View",
    "check_automatic_changes",
    "gold_from_decisions",
    "new_label_column",
    "plan_cleaning",
    "read_decisions",
    "rerank",
    "write_cleaned",
]

__getattr__, __dir__ = lazy_names(__name__, _NAMES)
