"""Embedded data."""

import numpy as np
import pytest

from peerloss import NoiseModel, list_datasets, load_dataset
from peerloss.datasets import split_and_flip
from peerloss.exceptions import InvalidInputError

#: name → features, positives, negatives, as in the sources of the data.
COUNTS = {
    "heart": (13, 165, 138),
    "diabetes": (8, 268, 500),
    "breast": (9, 85, 201),
    "german": (20, 300, 700),
    "splice": (60, 1527, 1648),
    "thyroid": (5, 65, 150),
    "image": (18, 1320, 990),
    "breast2": (30, 212, 357),
    "twonorm": (20, 3703, 3697),
    "waveform": (21, 1647, 3353),
}


@pytest.mark.parametrize("name", COUNTS)
def test_sets_have_the_counts_of_their_sources(name):
    """Features, positives and negatives; each set tells where it comes from."""
    data = load_dataset(name)
    assert (data.X.shape[1], int(data.y.sum()), int((1 - data.y).sum())) == COUNTS[name]
    assert data.feature_names == tuple(data.X.columns)
    assert len(data.target_names) == 2
    assert data.citation


def test_the_list_is_complete():
    """Every name listed loads, and an unknown one is answered with the list."""
    assert list_datasets() == sorted(COUNTS)
    with pytest.raises(InvalidInputError, match=r"`name` must be one of breast, breast2, diabetes.*'iris'"):
        load_dataset("iris")


@pytest.mark.parametrize("name", COUNTS)
def test_a_split_is_encoded_flipped_and_repeatable(name):
    """Numbers only, exact counts of flips in training, clean test labels, the same for the same seed."""
    data, noise = load_dataset(name), NoiseModel.binary(0.2, 0.4)
    split, again = (split_and_flip(data, noise, seed=3) for _ in range(2))
    clean = split_and_flip(data, NoiseModel.binary(0.0, 0.0), seed=3)
    assert np.isfinite(split.X_train).all()
    assert np.isfinite(split.X_test).all()
    assert np.array_equal(split.y_train, again.y_train)
    assert np.array_equal(split.y_test, clean.y_test)
    assert len(split.y_test) == np.ceil(0.15 * len(data.y))
    flipped = split.y_train != clean.y_train
    for label, rate in ((0, 0.2), (1, 0.4)):
        rows = clean.y_train == label
        assert flipped[rows].sum() == int(rows.sum() * rate + 1e-9)


@pytest.mark.parametrize("name", ["heart", "diabetes"])
def test_equalisation_balances_the_clean_classes(name):
    """As many of each class, counted over training and test together, before anything flips."""
    split = split_and_flip(load_dataset(name), NoiseModel.binary(0.0, 0.0), equalize=True, seed=1)
    labels = np.concatenate([split.y_train, split.y_test])
    rarest = np.bincount(load_dataset(name).y).min()
    assert np.bincount(labels).tolist() == [rarest, rarest]


def test_training_columns_are_standardised():
    """Mean 0 and variance 1 on the training rows, also for one-hot columns."""
    split = split_and_flip(load_dataset("german"), NoiseModel.binary(0.1, 0.1))
    np.testing.assert_allclose(split.X_train.mean(axis=0), 0, atol=1e-9)
    spread = split.X_train.std(axis=0)
    np.testing.assert_allclose(spread[spread > 0], 1, atol=1e-9)
