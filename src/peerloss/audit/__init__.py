"""Find labels that are probably wrong, review them, and write a corrected table."""

from peerloss import crowd
from peerloss._deprecation import renamed
from peerloss.audit._issues import find_label_issues
from peerloss.audit._label_audit import LabelAudit
from peerloss.audit._multilabel import MultilabelAudit, find_multilabel_issues
from peerloss.audit._tokens import TokenAudit, find_token_issues
from peerloss.audit.table_summary import ColumnSummary, TableSummary, describe_table

__all__ = [
    "ColumnSummary",
    "LabelAudit",
    "MultilabelAudit",
    "TableSummary",
    "TokenAudit",
    "describe_table",
    "find_label_issues",
    "find_multilabel_issues",
    "find_token_issues",
]

__getattr__ = renamed(
    __name__,
    {name: f"peerloss.crowd.{name}" for name in crowd.__all__}
    | {"split_budget": "peerloss.crowd.untruthful_split"},
)
