"""Labels from several annotators: combine them, score and pay the annotators, find copiers.

Peer prediction in practice; the mechanisms themselves are in :mod:`peerloss.peer_prediction`. The files:

* ``_read_reports``: read a table of tasks, workers and labels from a file
* ``task_matching``: match the tasks of a table of reports with the rows of a data table
* ``_dawid_skene``: estimate true labels and each worker's confusion matrix by EM
* ``_aggregate``: one label per task, from Dawid–Skene and from the majority
* ``scoring``: :func:`score_annotators`, the table with one row per worker
* ``_intervals``: bootstrap intervals of the scores
* ``_uninformative``: the test that flags workers who seem to guess
* ``_payments``: turn scores into money
* ``_copies``: find pairs of workers of whom one seems to copy
"""

from peerloss.crowd._aggregate import aggregate_labels
from peerloss.crowd._copies import find_copiers
from peerloss.crowd._dawid_skene import DawidSkene, dawid_skene
from peerloss.crowd._payments import affine_payments, payment_terms, untruthful_split
from peerloss.crowd._read_reports import read_reports
from peerloss.crowd.scoring import score_annotators

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
