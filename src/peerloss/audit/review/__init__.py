"""Review the suspects of an audit in the browser, and apply the decisions to the table.

Decisions are written to ``decisions.jsonl`` by :class:`DecisionsFile`.
"""

from peerloss.audit.review._apply_decisions import (
    MAX_CHANGE,
    UNDECIDED_POLICIES,
    Cleaning,
    check_automatic_changes,
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
    "plan_cleaning",
    "read_decisions",
    "rerank",
    "write_cleaned",
]
