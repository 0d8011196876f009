"""Spellings of one class, and classes with very few rows."""

import tracemalloc

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from peerloss.datasets import find_rare_labels, find_spellings, tidy_labels
from peerloss.datasets.label_spelling import describe_change, prepare_labels
from peerloss.exceptions import InvalidInputError

ALIKE = "(some look the same, but are stored as different characters)"


def test_spellings_are_named_with_quotes_that_show_spaces():
    """Case, spaces, hyphens, underscores and Unicode forms do not make a class."""
    labels = ["Yes", "Yes", "YES", "yes ", "no", "type_1", "type-1", "café", "cafe\u0301"]
    assert [str(group) for group in find_spellings(labels)] == [
        "'Yes', 'YES', 'yes ' look like one class",
        f"'cafe\u0301', 'café' look like one class {ALIKE}",
        "'type-1', 'type_1' look like one class",
    ]
    assert find_spellings(labels)[0].rows == {"Yes": 2, "YES": 1, "yes ": 1}


@pytest.mark.parametrize(
    "labels",
    [
        ["A+", "A-", "AB+"],
        ["1", "-1", "-1.5", "1.5"],
        [1, 2, 1.0],
        ["a", "b", "a.0"],
        ["12", "1-2"],
        ["1", "01", "01.0"],
        ["1.1", "1.10"],
        ["1.0", "10", "1.0.0"],
        [None, np.nan],
    ],
)
def test_different_classes_are_not_spellings(labels):
    """Signs at the ends of a label have a meaning, and numbers are compared as numbers."""
    assert find_spellings(labels) == []


def test_a_whole_number_has_one_class_with_and_without_a_decimal_point():
    """A column is text if one of its labels is a word, so 1 and 1.0 are compared as text."""
    labels = ["1", "1", "1.0", "1.00", "-3.0", "-3", "0.0", "0", "10", "oops"]
    assert [set(group.rows) for group in find_spellings(labels)] == [
        {"1", "1.0", "1.00"},
        {"-3.0", "-3"},
        {"0.0", "0"},
    ]
    assert tidy_labels(labels).tolist() == ["1"] * 4 + ["-3"] * 2 + ["0"] * 2 + ["10", "oops"]


def test_tidy_labels_merges_into_the_most_frequent_spelling():
    """Spaces around labels go; index, name, missing labels and other types stay; the input is unchanged."""
    given_labels = pd.Series(["yes ", "yes ", "Yes", None, " no", 3], index=list("abcdef"), name="label")
    before = given_labels.copy()
    tidy = tidy_labels(given_labels)
    assert tidy.tolist()[:3] == ["yes", "yes", "yes"]
    assert tidy.isna().tolist() == [False, False, False, True, False, False]
    assert tidy.tolist()[4:] == ["no", 3]
    assert (list(tidy.index), tidy.name) == (list("abcdef"), "label")
    pd.testing.assert_series_equal(given_labels, before)


def test_invisible_characters_do_not_make_a_class():
    """A zero-width space and a byte order mark are found, and are not part of the tidy label."""
    labels = ["tea\u200b", "tea\u200b", "tea", "\ufefftea \u200b", "te\u00ada"]
    (group,) = find_spellings(labels)
    assert (group.tidy, len(group.rows)) == ("tea", 4)
    assert tidy_labels(labels).tolist() == ["tea"] * 5


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("yes ", "yes", "'yes ' is read as 'yes'"),
        (
            "cafe\u0301",
            "café",
            "is read as 'café', which looks the same but is stored as different characters",
        ),
    ],
)
def test_changes_that_cannot_be_seen_are_explained(old, new, text):
    """Two spellings that look the same in the terminal need a word."""
    assert describe_change(old, new).endswith(text)


@given(st.lists(st.text(alphabet="aAbB10. _-é\u200b\u00ad", max_size=5), max_size=20))
def test_tidy_labels_are_tidy(labels):
    """No spellings are left, and tidying again changes nothing."""
    tidy = tidy_labels(labels)
    assert find_spellings(tidy) == []
    assert tidy_labels(tidy).tolist() == tidy.tolist()


def test_rare_labels_have_fewer_rows_than_folds():
    """Two stray labels in 3,000 are rare; in a small table, or with too many such rows, nothing is."""
    labels = pd.Series(["yes"] * 1500 + ["no"] * 1498 + ["maybe"] * 2)
    assert find_rare_labels(labels) == {"maybe": 2}
    assert find_rare_labels(pd.Series(["a", "a", "b"])) == {}
    assert find_rare_labels(pd.Series(["a"] * 20 + ["b"] * 20 + ["c"] * 4)) == {}
    assert find_rare_labels(pd.Series(["a"] * 99 + ["b"])) == {}, "one class would remain"


def test_the_number_of_rows_can_be_chosen():
    """It holds for every class, and must leave two of them."""
    labels = pd.Series(["a"] * 20 + ["b"] * 20 + ["c"] * 4)
    assert find_rare_labels(labels, 5) == {"c": 4}
    assert find_rare_labels(labels, 4) == {}
    with pytest.raises(
        InvalidInputError, match="`min_class_rows` must leave at least two classes; with 30 rows, 0"
    ):
        find_rare_labels(labels, 30)
    with pytest.raises(InvalidInputError, match="`min_class_rows` must be"):
        find_rare_labels(labels, 0)


def test_labels_are_merged_before_classes_are_counted():
    """Rare spellings of a frequent class are not set aside; labels of several annotators never are."""
    column = pd.DataFrame({"label": ["yes"] * 60 + ["no"] * 60 + ["YES", "maybe"]})
    prepared = prepare_labels(column, tidy=True)
    assert (prepared.tidied, prepared.rare) == ({"YES": "yes"}, {"maybe": 1})
    assert prepared.labels["label"].isna().sum() == 1
    assert prepare_labels(column, keep_rare=True).rare == {}
    several = prepare_labels(
        pd.DataFrame({"u": ["a", "b "] * 50, "v": ["A", "b"] * 49 + ["a", "b"]}), tidy=True
    )
    assert several.rare == {}
    assert set(several.labels.to_numpy().ravel()) == {"a", "b"}


@pytest.mark.parametrize(
    ("labels", "missing"),
    [
        ([-1, 0, 1, -1], 2),
        ([-1, 0, 2, None], 1),
        ([-1, 1, 1, None], 0),
        ([-1, -2, 0, 1], 0),
        (["-1", "0", "1", "-1"], 0),
        ([0, 1, 0, 1], 0),
    ],
)
def test_minus_one_is_missing_if_the_caller_says_so(labels, missing):
    """The rule is that of the classifiers, over all columns; without it, -1 is a label."""
    columns = pd.DataFrame({"u": labels, "v": labels}, dtype=object)
    prepared = prepare_labels(columns, minus_one=True)
    assert prepared.minus_one == 2 * missing
    assert prepared.labels.isna().sum().tolist() == [missing + columns["u"].isna().sum()] * 2
    assert prepare_labels(columns).labels.equals(columns)


def test_a_long_label_does_not_take_its_length_in_every_row():
    """Memory grows with the text of the distinct labels, not with rows times the longest label."""
    labels = pd.DataFrame({"label": ["yes", "no"] * 1000 + ["x" * 10_000]}, dtype=object)
    tracemalloc.start()
    prepare_labels(labels, minus_one=True)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.1 * np.dtype("<U10000").itemsize * len(labels)


def test_labels_without_a_visible_character_do_not_become_empty():
    """An empty cell of a corrected table would be a missing label."""
    assert tidy_labels(["\u200b", "\u200b", " ", "yes "]).tolist() == ["\u200b", "\u200b", "\u200b", "yes"]
