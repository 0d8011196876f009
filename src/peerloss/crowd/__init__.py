"""Labels from several annotators: aggregate them, score the annotators, pay them, find copiers."""

from peerloss.crowd._aggregate import aggregate_labels
from peerloss.crowd._copies import find_copiers
from peerloss.crowd._dawid_skene import DawidSkene, dawid_skene
from peerloss.crowd._payments import affine_payments, payment_terms, untruthful_split
from peerloss.crowd._read_reports import read_reports
from peerloss.crowd._scoring import score_annotators

__all__ = [
    "DawidSkene",
    "affine_payments",
    "aggregate_labels",
    "dawid_skene",
    "find_copiers",
    "payment_terms",
    "read_reports",
    "score_annotators",
    "untruthful_split",
]
