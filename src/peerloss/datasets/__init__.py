"""Data sets: the paper's benchmarks, ready to be made noisy."""

from peerloss.datasets._registry import Dataset, list_datasets, load_dataset
from peerloss.datasets._splits import Split, split_and_flip

__all__ = ["Dataset", "Split", "list_datasets", "load_dataset", "split_and_flip"]
