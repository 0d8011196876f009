"""Review the suspects of an audit in the browser, and apply the decisions to the table.

Decisions are written to ``decisions.jsonl`` by :class:`DecisionsFile`.
"""

from peerloss.audit.review._apply_decisions import UNDECIDED_POLICIES, Cleaning, plan_cleaning, write_cleaned
from peerloss.audit.review._decisions_file import (
    Decision,
    DecisionsFile,
    DecisionsFileWarning,
    read_decisions,
)
from peerloss.audit.review._server import Review, ReviewServer

__all__ = [
    "UNDECIDED_POLICIES",
    "Cleaning",
    "Decision",
    "DecisionsFile",
    "DecisionsFileWarning",
    "Review",
    "ReviewServer",
    "plan_cleaning",
    "read_decisions",
    "write_cleaned",
]
