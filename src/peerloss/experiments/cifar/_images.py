"""CIFAR-10 in its parts, so that the test set stays unread until somebody asks for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from peerloss.datasets._cifar import _TRAIN_FILES, HUMAN_LABELS, _read_batch, _read_human, find_cifar10
from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from peerloss._validation import IntArray

    Rows: TypeAlias = tuple[NDArray[np.uint8], IntArray]


def read_training(data_dir: str | Path | None) -> Rows:
    """Return the training images and their clean labels; the file of the test set is not opened."""
    folder = find_cifar10(data_dir)
    parts = [_read_batch(folder / name) for name in _TRAIN_FILES]
    return np.concatenate([images for images, _ in parts]), np.concatenate([labels for _, labels in parts])


def read_test(data_dir: str | Path | None) -> Rows:
    """Return the test images and their labels."""
    return _read_batch(find_cifar10(data_dir) / "test_batch")


def read_human_labels(kind: str, clean: IntArray, data_dir: str | Path | None) -> IntArray:
    """Return the labels of CIFAR-10N for training images whose clean labels are ``clean``."""
    tables = _read_human(data_dir)
    labels = np.asarray(tables.get(HUMAN_LABELS[kind], []))
    if not np.array_equal(tables.get("clean_label", []), clean) or labels.shape != clean.shape:
        raise InvalidInputError(
            f"the labels of CIFAR-10N must hold {HUMAN_LABELS[kind]!r} and a 'clean_label' that goes with "
            f"these images; found {sorted(tables)}, with other labels or lengths. Use the files data_batch_1 "
            "to data_batch_5 in their original order."
        )
    if labels.min() < 0 or labels.max() >= 10:
        raise InvalidInputError(f"{HUMAN_LABELS[kind]!r} must hold labels in 0..9; got others.")
    return labels.astype(np.int64)
