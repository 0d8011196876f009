"""For people with a table: which labels are wrong, which annotators to trust and what to pay them."""

from peerloss.audit._aggregate import aggregate_labels
from peerloss.audit._annotators import score_annotators
from peerloss.audit._copies import find_copiers
from peerloss.audit._dawid_skene import DawidSkene, dawid_skene
from peerloss.audit._issues import find_label_issues
from peerloss.audit._label_audit import LabelAudit
from peerloss.audit._payments import affine_payments, payment_terms, split_budget, untruthful_split
from peerloss.audit._read_reports import read_reports

__all__ = [
    "DawidSkene",
    "LabelAudit",
    "affine_payments",
    "aggregate_labels",
    "dawid_skene",
    "find_copiers",
    "find_label_issues",
    "payment_terms",
    "read_reports",
    "score_annotators",
    "split_budget",
    "untruthful_split",
]
