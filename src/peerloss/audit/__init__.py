"""Find labels that are probably wrong, review them, and write a corrected table."""

from peerloss._deprecation import renamed
from peerloss.audit._issues import find_label_issues
from peerloss.audit._label_audit import LabelAudit

__all__ = ["LabelAudit", "find_label_issues"]

__getattr__ = renamed(
    __name__,
    {
        "DawidSkene": "peerloss.crowd.DawidSkene",
        "affine_payments": "peerloss.crowd.affine_payments",
        "aggregate_labels": "peerloss.crowd.aggregate_labels",
        "dawid_skene": "peerloss.crowd.dawid_skene",
        "find_copiers": "peerloss.crowd.find_copiers",
        "payment_terms": "peerloss.crowd.payment_terms",
        "read_reports": "peerloss.crowd.read_reports",
        "score_annotators": "peerloss.crowd.score_annotators",
        "split_budget": "peerloss.crowd.untruthful_split",
        "untruthful_split": "peerloss.crowd.untruthful_split",
    },
)
