"""Labels from several annotators: combine them, score and pay the annotators, find copiers.

Peer prediction in practice; the mechanisms themselves are in :mod:`peerloss.peer_prediction`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerloss._lazy_names import lazy_names

if TYPE_CHECKING:
    from peerloss.crowd._copies import find_copiers
    from peerloss.crowd._dawid_skene import DawidSkene, dawid_skene
    from peerloss.crowd._label_aggregator import LabelAggregator, aggregate_labels
    from peerloss.crowd._payments import affine_payments, payment_terms, untruthful_split
    from peerloss.crowd.report_tables import read_reports
    from peerloss.crowd.scoring import score_annotators

#: Module → public names that are imported from it.
_NAMES = {
    "_copies": "find_copiers",
    "_dawid_skene": "DawidSkene dawid_skene",
    "_label_aggregator": "LabelAggregator aggregate_labels",
    "_payments": "affine_payments payment_terms untruthful_split",
    "report_tables": "read_reports",
    "scoring": "score_annotators",
}

__all__ = [
    "DawidSkene",
    "LabelAggregator",
    "affine_payments",
    "aggregate_labels",
    "dawid_skene",
    "find_copiers",
    "payment_terms",
    "read_reports",
    "score_annotators",
    "untruthful_split",
]

__getattr__, __dir__ = lazy_names(__name__, _NAMES, modules=("gold_labels", "report_tables", "scoring"))
