"""Find labels that are probably wrong, review them, and write a corrected table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerloss import crowd
from peerloss._deprecation import renamed
from peerloss._lazy_names import lazy_names

if TYPE_CHECKING:
    from peerloss.audit._explanations import Explanation
    from peerloss.audit._issues import find_label_issues
    from peerloss.audit._label_audit import LabelAudit
    from peerloss.audit._multilabel import MultilabelAudit, find_multilabel_issues
    from peerloss.audit._next_labels import rank_next_labels
    from peerloss.audit._tokens import TokenAudit, find_token_issues
    from peerloss.audit.table_summary import ColumnSummary, TableSummary, describe_table

#: Module → public names that are imported from it.
_NAMES = {
    "_explanations": "Explanation",
    "_issues": "find_label_issues",
    "_label_audit": "LabelAudit",
    "_multilabel": "MultilabelAudit find_multilabel_issues",
    "_next_labels": "rank_next_labels",
    "_tokens": "TokenAudit find_token_issues",
    "table_summary": "ColumnSummary TableSummary describe_table",
}

__all__ = [
    "ColumnSummary",
    "Explanation",
    "LabelAudit",
    "MultilabelAudit",
    "TableSummary",
    "TokenAudit",
    "describe_table",
    "find_label_issues",
    "find_multilabel_issues",
    "find_token_issues",
    "rank_next_labels",
]

_get_name, __dir__ = lazy_names(__name__, _NAMES)
__getattr__ = renamed(
    __name__,
    {name: f"peerloss.crowd.{name}" for name in crowd.__all__}
    | {"split_budget": "peerloss.crowd.untruthful_split"},
    otherwise=_get_name,
)
