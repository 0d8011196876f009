"""Load data sets by name or from a file."""

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from peerloss import list_datasets, load_dataset
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
def test_counts_equal_those_of_the_sources(name):
    """Features, positives and negatives; each data set has a citation."""
    data = load_dataset(name)
    assert (data.X.shape[1], int(data.y.sum()), int((1 - data.y).sum())) == COUNTS[name]
    assert data.feature_names == tuple(data.X.columns)
    assert len(data.target_names) == 2
    assert data.citation


#: name → repeated (row, label) pairs, missing values, as in the sources.
QUIRKS = {"heart": (1, 7), "breast": (14, 9), "splice": (184, 0), "image": (224, 0)}


@pytest.mark.parametrize("name", COUNTS)
def test_notes_match_repeated_rows_and_missing_values(name):
    """The notes mention repeated rows exactly if the data have some; missing values are counted."""
    data = load_dataset(name)
    repeats, missing = QUIRKS.get(name, (0, 0))
    assert data.X.assign(target=data.y).duplicated().sum() == repeats
    assert data.X.isna().sum().sum() == missing
    assert ("repeat" in " ".join(data.notes)) == (repeats > 0)


@pytest.mark.parametrize("name", sorted(set(COUNTS) - {"breast2", "twonorm", "waveform"}))
def test_embedded_copies_equal_their_sources(name):
    """All values are equal to those of the source files."""
    folder = os.environ.get("PEERLOSS_DATA")
    path = Path(folder or ".", "uci", f"{name}.csv")
    if folder is None or not path.exists():
        pytest.skip("needs the folder of source data in PEERLOSS_DATA")
    source, data = pd.read_csv(path, na_values="?"), load_dataset(name)
    pd.testing.assert_frame_equal(source.drop(columns="target"), data.X)
    assert np.array_equal(source["target"], data.y)


def test_german_documents_the_reversed_label():
    """Positive is bad credit, as in the paper's table; the note describes the authors' code."""
    german = load_dataset("german")
    assert german.target_names[1] == "bad"
    assert german.y.sum() == 300
    assert any("authors' code has it reversed" in note for note in german.notes)


def test_circles_load_by_name_but_are_not_in_the_tables():
    """They belong to the figures; `list_datasets` returns the ten data sets of the tables only."""
    circles = load_dataset("circles")
    assert circles.X.shape == (2000, 2)
    assert circles.target_names == ("outer", "inner")
    assert "circles" not in list_datasets()


def test_heart_as_released_is_heart_with_the_healthy_first():
    """The same rows, each class in its order: a seed then selects the test rows of the authors' code."""
    heart, released = load_dataset("heart"), load_dataset("heart-as-released")
    assert released.y.tolist() == [1] * 165 + [0] * 138
    for label in (0, 1):
        pd.testing.assert_frame_equal(
            heart.X[heart.y == label].reset_index(drop=True),
            released.X[released.y == label].reset_index(drop=True),
        )
    assert "heart-as-released" not in list_datasets()


def test_target_is_for_tables_only(tmp_path):
    """A file is a path or a string, relative to data_dir; a built-in data set refuses `target`."""
    (tmp_path / "t.csv").write_text("x,label\n1,yes\n2,no\n")
    for data in (
        load_dataset(tmp_path / "t.csv", target="label"),
        load_dataset("t.csv", data_dir=tmp_path, target="label"),
    ):
        assert data.target_names == ("no", "yes")
        assert data.y.tolist() == [1, 0]
    with pytest.raises(InvalidInputError, match=r"`target` names a column of a file.*'heart'"):
        load_dataset("heart", target="label")


def test_the_list_is_complete():
    """Every listed name loads; the error for an unknown name contains the list."""
    assert list_datasets() == sorted(COUNTS)
    with pytest.raises(
        InvalidInputError,
        match=r"`name` must be one of heart, diabetes.*circles.*openml.*csv.*'iris'",
    ):
        load_dataset("iris")
