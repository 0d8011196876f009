"""Data sets: the paper's benchmarks, ready to be made noisy, and tables from anywhere."""

from peerloss.datasets._cifar import CifarImages, load_cifar10, load_cifar10n
from peerloss.datasets._dataset import Dataset
from peerloss.datasets._files import split_target
from peerloss.datasets._kinds import column_kinds, require_columns
from peerloss.datasets._real_noise import RealNoise, list_real_noise, load_real_noise
from peerloss.datasets._registry import OTHER_DATASETS, list_datasets, load_dataset
from peerloss.datasets._splits import Split, make_encoder, split_and_flip
from peerloss.datasets._synthetic import make_two_circles, make_twonorm, make_waveform
from peerloss.datasets._tables import iter_table, read_table

__all__ = [
    "OTHER_DATASETS",
    "CifarImages",
    "Dataset",
    "RealNoise",
    "Split",
    "column_kinds",
    "iter_table",
    "list_datasets",
    "list_real_noise",
    "load_cifar10",
    "load_cifar10n",
    "load_dataset",
    "load_real_noise",
    "make_encoder",
    "make_two_circles",
    "make_twonorm",
    "make_waveform",
    "read_table",
    "require_columns",
    "split_and_flip",
    "split_target",
]
