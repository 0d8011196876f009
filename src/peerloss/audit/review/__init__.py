"""Review the suspects of an audit in the browser, and apply the decisions to the table.

The files:

* ``_decisions_file``: where decisions are written, :class:`DecisionsFile` (``decisions.jsonl``)
* ``_review_session``: :class:`Review`, the suspects of an audit and the decisions on them
* ``_server``: :class:`ReviewServer`, the local web page on which a person decides
* ``_apply_decisions``: write the cleaned table, :func:`plan_cleaning` and :func:`write_cleaned`
* ``templates``: the page with its style and script
"""

from peerloss.audit.review._apply_decisions import UNDECIDED_POLICIES, Cleaning, plan_cleaning, write_cleaned
from peerloss.audit.review._decisions_file import (
    Decision,
    DecisionsFile,
    DecisionsFileWarning,
    read_decisions,
)
from peerloss.audit.review._review_session import Review
from peerloss.audit.review._server import ReviewServer

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
