"""Data sets: the paper's benchmarks, ready to be made noisy."""

from peerloss.datasets._registry import Dataset, list_datasets, load_dataset
from peerloss.datasets._splits import Split, make_encoder, split_and_flip
from peerloss.datasets._synthetic import make_twonorm, make_waveform

__all__ = [
    "Dataset",
    "Split",
    "list_datasets",
    "load_dataset",
    "make_encoder",
    "make_twonorm",
    "make_waveform",
    "split_and_flip",
]
