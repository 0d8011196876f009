"""Turn a clean data set into a learning task: encode, split, flip the training labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.impute import SimpleImputer
from sklearn.model_selection import train_test_split
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from peerloss.noise import NoiseModel, flip_labels

if TYPE_CHECKING:
    from peerloss._validation import FloatArray, IntArray
    from peerloss.datasets._dataset import Dataset


@dataclass(frozen=True)
class Split:
    """Noisy training rows and clean test rows."""

    X_train: FloatArray
    y_train: IntArray
    """Noisy labels: all that a method may look at."""
    X_test: FloatArray
    y_test: IntArray
    """Clean labels, for the final figure only."""


def split_and_flip(
    dataset: Dataset,
    noise: NoiseModel,
    *,
    equalize: bool = False,
    test_size: float = 0.15,
    seed: int = 0,
) -> Split:
    """Split a data set, flip exact numbers of training labels, and encode the columns, as the paper does.

    Text columns are one-hot encoded, then every column is standardised, both fitted on the training rows.
    Missing numbers become the commonest value; a missing category is a category of its own.

    Parameters
    ----------
    dataset
        Clean data.
    noise
        What happens to the training labels.
    equalize
        Downsample the larger *clean* class of the whole set first, so that P(Y = 1) = ½.
    test_size
        Share of the rows kept for the test, with clean labels.
    seed
        Decides the rows, the split and which labels flip.
    """
    rows = np.arange(len(dataset.y))
    if equalize:
        rows = _equalized(dataset.y, np.random.default_rng([seed, 1]))
    train, test = train_test_split(rows, test_size=test_size, random_state=seed)
    encoder = make_encoder()
    return Split(
        X_train=np.asarray(encoder.fit_transform(dataset.X.iloc[train]), dtype=np.float64),
        y_train=flip_labels(
            dataset.y[train], noise, exact=True, random_state=np.random.default_rng([seed, 2])
        ),
        X_test=np.asarray(encoder.transform(dataset.X.iloc[test]), dtype=np.float64),
        y_test=dataset.y[test],
    )


def make_encoder() -> Pipeline:
    """Return the column handling: impute, one-hot encode text, standardise everything."""
    numbers = SimpleImputer(strategy="most_frequent", keep_empty_features=True)
    categories = make_pipeline(
        SimpleImputer(strategy="constant", fill_value="missing"),
        OneHotEncoder(handle_unknown="ignore", sparse_output=False),
    )
    columns = ColumnTransformer(
        [
            ("numbers", numbers, make_column_selector(dtype_include="number")),
            ("categories", categories, make_column_selector(dtype_exclude="number")),
        ]
    )
    return make_pipeline(columns, StandardScaler())


def _equalized(y: IntArray, rng: np.random.Generator) -> IntArray:
    """Choose rows with as many of each class as the rarest has."""
    count = np.bincount(y).min()
    chosen = [rng.choice(np.flatnonzero(y == label), count, replace=False) for label in np.unique(y)]
    return np.sort(np.concatenate(chosen))
