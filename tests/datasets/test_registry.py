"""Embedded data."""

import os
from pathlib import Path

import numpy as np
import pandas as pd
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


#: name → repeated (row, label) pairs, missing values, as SOURCES tells.
QUIRKS = {"heart": (1, 7), "breast": (14, 9), "splice": (184, 0), "image": (224, 0)}


@pytest.mark.parametrize("name", COUNTS)
def test_repeats_and_gaps_are_as_told(name):
    """What the notes say of repeated rows and missing values is what the data hold."""
    data = load_dataset(name)
    repeats, missing = QUIRKS.get(name, (0, 0))
    assert data.X.assign(target=data.y).duplicated().sum() == repeats
    assert data.X.isna().sum().sum() == missing
    assert ("repeat" in " ".join(data.notes)) == (repeats > 0)


@pytest.mark.parametrize("name", sorted(set(COUNTS) - {"breast2", "twonorm", "waveform"}))
def test_embedded_copies_equal_their_sources(name):
    """Value for value."""
    folder = os.environ.get("PEERLOSS_DATA")
    path = Path(folder or ".", "uci", f"{name}.csv")
    if folder is None or not path.exists():
        pytest.skip("needs the folder of source data in PEERLOSS_DATA")
    source, data = pd.read_csv(path, na_values="?"), load_dataset(name)
    pd.testing.assert_frame_equal(source.drop(columns="target"), data.X)
    assert np.array_equal(source["target"], data.y)


def test_german_tells_of_the_reversal():
    """Positive is bad credit, as in the paper's table; the note says what the authors' code does."""
    german = load_dataset("german")
    assert german.target_names[1] == "bad"
    assert german.y.sum() == 300
    assert any("authors' code has it reversed" in note for note in german.notes)


def test_circles_load_by_name_but_are_not_in_the_tables():
    """They belong to the figures; a benchmark over the list keeps the ten sets of the tables."""
    circles = load_dataset("circles")
    assert circles.X.shape == (2000, 2)
    assert circles.target_names == ("outer", "inner")
    assert "circles" not in list_datasets()


def test_heart_as_released_is_heart_with_the_healthy_first():
    """The same rows; each class keeps its order, so that a seed cuts the test rows of the authors' file."""
    heart, released = load_dataset("heart"), load_dataset("heart-as-released")
    assert released.y.tolist() == [1] * 165 + [0] * 138
    for label in (0, 1):
        pd.testing.assert_frame_equal(
            heart.X[heart.y == label].reset_index(drop=True),
            released.X[released.y == label].reset_index(drop=True),
        )
    assert "heart-as-released" not in list_datasets()


def test_a_target_is_for_tables_only(tmp_path):
    """A file may be given as a path or as text, relative to data_dir."""
    (tmp_path / "t.csv").write_text("x,label\n1,yes\n2,no\n")
    for data in (
        load_dataset(tmp_path / "t.csv", target="label"),
        load_dataset("t.csv", data_dir=tmp_path, target="label"),
    ):
        assert data.target_names == ("no", "yes")
        assert data.y.tolist() == [1, 0]
    with pytest.raises(InvalidInputError, match=r"`target` names a column of a file.*'heart'"):
        load_dataset("heart", target="label")


def test_tables_with_gaps_can_be_split(tmp_path):
    """Text, truth values and columns without a single value are encoded like the paper's sets."""
    path = tmp_path / "t.csv"
    path.write_text("x,kind,flag,empty,label\n" + "1,u,true,,a\n,,false,,b\n3,v,,,a\n4,u,true,,b\n" * 5)
    split = split_and_flip(load_dataset(path, target="label"), NoiseModel.binary(0.0, 0.0))
    assert split.X_train.shape == (17, 1 + 1 + 3 + 3)
    assert np.isfinite(split.X_train).all()


def test_the_list_is_complete():
    """Every name listed loads, and an unknown one is answered with the list."""
    assert list_datasets() == sorted(COUNTS)
    with pytest.raises(
        InvalidInputError,
        match=r"`name` must be one of heart, diabetes.*circles.*openml.*csv.*'iris'",
    ):
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
