"""Add label noise to a clean data set: split, flip the training labels, encode the columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from sklearn.model_selection import train_test_split

from peerloss._deprecation import renamed_parameters
from peerloss.datasets.tables._columns import make_encoder
from peerloss.noise import NoiseModel, flip_labels

if TYPE_CHECKING:
    from peerloss._validation import FloatArray, IntArray
    from peerloss.datasets._load_dataset import Dataset


@dataclass(frozen=True)
class Split:
    """Training rows with noisy labels and test rows with clean ones."""

    X_train: FloatArray
    y_train: IntArray
    """Noisy labels, the only labels that a method may use."""
    X_test: FloatArray
    y_test: IntArray
    """Clean labels, for the final score only."""


@renamed_parameters(seed="random_state")
def split_and_flip(
    dataset: Dataset,
    noise: NoiseModel,
    *,
    equalize: bool = False,
    test_size: float = 0.15,
    random_state: int = 0,
) -> Split:
    """Split a data set, flip exact numbers of training labels, and encode the columns, as the paper does.

    Text columns are one-hot encoded, then all columns are standardised. Both are fitted on the training rows.
    Missing numbers are replaced by the most frequent value; a missing category is a category of its own.

    Parameters
    ----------
    dataset
        Clean data.
    noise
        Noise applied to the training labels.
    equalize
        Downsample the larger *clean* class of the entire data set first, so that P(Y = 1) = ½.
    test_size
        Share of the rows kept for testing, with clean labels.
    random_state
        Seed of the downsampling, the split and the flipped labels.
    """
    rows = np.arange(len(dataset.y))
    if equalize:
        rows = _equalized(dataset.y, np.random.default_rng([random_state, 1]))
    train, test = train_test_split(rows, test_size=test_size, random_state=random_state)
    encoder = make_encoder()
    return Split(
        X_train=np.asarray(encoder.fit_transform(dataset.X.iloc[train]), dtype=np.float64),
        y_train=flip_labels(
            dataset.y[train], noise, exact=True, random_state=np.random.default_rng([random_state, 2])
        ),
        X_test=np.asarray(encoder.transform(dataset.X.iloc[test]), dtype=np.float64),
        y_test=dataset.y[test],
    )


def _equalized(y: IntArray, rng: np.random.Generator) -> IntArray:
    """Return rows in which every class has the size of the rarest one."""
    count = np.bincount(y).min()
    chosen = [rng.choice(np.flatnonzero(y == label), count, replace=False) for label in np.unique(y)]
    return np.sort(np.concatenate(chosen))
