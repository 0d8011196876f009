"""Data sets: the paper's benchmarks, ready to be made noisy."""

from peerloss.datasets._kinds import column_kinds, require_columns
from peerloss.datasets._registry import Dataset, list_datasets, load_dataset
from peerloss.datasets._splits import Split, make_encoder, split_and_flip
from peerloss.datasets._synthetic import make_twonorm, make_waveform
from peerloss.datasets._tables import iter_table, read_table

__all__ = [
    "Dataset",
    "Split",
    "column_kinds",
    "iter_table",
    "list_datasets",
    "load_dataset",
    "make_encoder",
    "make_twonorm",
    "make_waveform",
    "read_table",
    "require_columns",
    "split_and_flip",
]
