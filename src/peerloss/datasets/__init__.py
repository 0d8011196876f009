"""Data sets: the paper's benchmarks, data with real label noise, and the user's own tables.

``tables`` reads and writes files; ``cifar10``, ``cifar100`` and ``real_noise`` read published data from a
local folder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerloss._lazy_names import lazy_names

if TYPE_CHECKING:
    from peerloss.datasets._conll import TaggedSentences, read_conll
    from peerloss.datasets._image_folder import ImageFolder, read_image_folder
    from peerloss.datasets._load_dataset import OTHER_DATASETS, Dataset, list_datasets, load_dataset
    from peerloss.datasets._read_image import read_image
    from peerloss.datasets._splits import Split, split_and_flip
    from peerloss.datasets._synthetic import make_two_circles, make_twonorm, make_waveform
    from peerloss.datasets.cifar10 import load_cifar10, load_cifar10n
    from peerloss.datasets.cifar100 import load_cifar100, load_cifar100n
    from peerloss.datasets.cifar_files import CifarImages
    from peerloss.datasets.label_spelling import Spellings, find_rare_labels, find_spellings, tidy_labels
    from peerloss.datasets.real_noise import RealNoise, list_real_noise, load_real_noise
    from peerloss.datasets.tables import ReadOptions, column_kinds, iter_table, read_table, require_columns
    from peerloss.datasets.tables._columns import check_label_column, make_encoder, split_target

#: Module → public names that are imported from it.
_NAMES = {
    "_conll": "TaggedSentences read_conll",
    "_image_folder": "ImageFolder read_image_folder",
    "_load_dataset": "OTHER_DATASETS Dataset list_datasets load_dataset",
    "_read_image": "read_image",
    "_splits": "Split split_and_flip",
    "_synthetic": "make_two_circles make_twonorm make_waveform",
    "cifar10": "load_cifar10 load_cifar10n",
    "cifar100": "load_cifar100 load_cifar100n",
    "cifar_files": "CifarImages",
    "label_spelling": "Spellings find_rare_labels find_spellings tidy_labels",
    "real_noise": "RealNoise list_real_noise load_real_noise",
    "tables": "ReadOptions column_kinds iter_table read_table require_columns",
    "tables._columns": "check_label_column make_encoder split_target",
}

__all__ = [
    "OTHER_DATASETS",
    "CifarImages",
    "Dataset",
    "ImageFolder",
    "ReadOptions",
    "RealNoise",
    "Spellings",
    "Split",
    "TaggedSentences",
    "check_label_column",
    "column_kinds",
    "find_rare_labels",
    "find_spellings",
    "iter_table",
    "list_datasets",
    "list_real_noise",
    "load_cifar10",
    "load_cifar10n",
    "load_cifar100",
    "load_cifar100n",
    "load_dataset",
    "load_real_noise",
    "make_encoder",
    "make_two_circles",
    "make_twonorm",
    "make_waveform",
    "read_conll",
    "read_image",
    "read_image_folder",
    "read_table",
    "require_columns",
    "split_and_flip",
    "split_target",
    "tidy_labels",
]

__getattr__, __dir__ = lazy_names(__name__, _NAMES, modules=("cifar10", "cifar100", "real_noise", "tables"))
