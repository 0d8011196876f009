"""Split a data set and flip its training labels."""

import numpy as np
import pytest

from peerloss import NoiseModel, list_datasets, load_dataset
from peerloss.datasets import split_and_flip


def test_tables_with_missing_values_can_be_split(tmp_path):
    """Text, booleans and entirely empty columns are encoded like those of the built-in data sets."""
    path = tmp_path / "t.csv"
    path.write_text("x,kind,flag,empty,label\n" + "1,u,true,,a\n,,false,,b\n3,v,,,a\n4,u,true,,b\n" * 5)
    split = split_and_flip(load_dataset(path, target="label"), NoiseModel.binary(0.0, 0.0))
    assert split.X_train.shape == (17, 1 + 1 + 3 + 3)
    assert np.isfinite(split.X_train).all()


@pytest.mark.parametrize("name", list_datasets())
def test_a_split_is_encoded_flipped_and_repeatable(name):
    """Finite numbers, exact counts of flipped training labels, clean test labels, equal for equal seeds."""
    data, noise = load_dataset(name), NoiseModel.binary(0.2, 0.4)
    split, again = (split_and_flip(data, noise, random_state=3) for _ in range(2))
    clean = split_and_flip(data, NoiseModel.binary(0.0, 0.0), random_state=3)
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
    """Both classes have the same size over training and test rows together, before labels are flipped."""
    split = split_and_flip(load_dataset(name), NoiseModel.binary(0.0, 0.0), equalize=True, random_state=1)
    labels = np.concatenate([split.y_train, split.y_test])
    rarest = np.bincount(load_dataset(name).y).min()
    assert np.bincount(labels).tolist() == [rarest, rarest]


def test_training_columns_are_standardised():
    """Mean 0 and variance 1 on the training rows, including one-hot columns."""
    split = split_and_flip(load_dataset("german"), NoiseModel.binary(0.1, 0.1))
    np.testing.assert_allclose(split.X_train.mean(axis=0), 0, atol=1e-9)
    spread = split.X_train.std(axis=0)
    np.testing.assert_allclose(spread[spread > 0], 1, atol=1e-9)


def test_the_deprecated_name_of_random_state_works():
    """`seed` warns with the new name and gives the same split."""
    heart, noise = load_dataset("heart"), NoiseModel.binary(0.2, 0.4)
    with pytest.warns(DeprecationWarning, match="`seed` is deprecated.*Use `random_state`"):
        old = split_and_flip(heart, noise, seed=5)
    new = split_and_flip(heart, noise, random_state=5)
    assert np.array_equal(old.X_train, new.X_train)
    assert np.array_equal(old.y_train, new.y_train)
