"""For people with a table: which annotators to trust, what to pay them, which labels to take."""

from peerloss.audit._aggregate import aggregate_labels
from peerloss.audit._annotators import score_annotators
from peerloss.audit._copies import find_copiers
from peerloss.audit._dawid_skene import DawidSkene, dawid_skene
from peerloss.audit._payments import split_budget
from peerloss.audit._read_reports import read_reports

__all__ = [
    "DawidSkene",
    "aggregate_labels",
    "dawid_skene",
    "find_copiers",
    "read_reports",
    "score_annotators",
    "split_budget",
]
