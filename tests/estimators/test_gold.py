"""Gold labels and missing labels: which rows they belong to, and what counts as unknown."""

import numpy as np
import pandas as pd
import pytest

from peerloss.estimators import PeerClassifier
from peerloss.estimators.folds import replace_by_gold
from peerloss.exceptions import InvalidInputError
from tests.estimators.blobs import blobs
from tests.estimators.test_weight_unit import Checked

NAMES = [40, 10, 30, 20, 60, 50]
TABLE = pd.DataFrame({"x": np.arange(6.0)}, index=NAMES)
NOISY = np.array(["a", "a", "b", "b", "a", "b"])
GOLD = pd.Series(["b", "a", None, "b", "a", "b"], index=NAMES)


def codes_with(gold, X=TABLE):
    """Return the codes of the labels after gold labels were used, and the mask of gold rows."""
    data, _, known = replace_by_gold(Checked().fit(TABLE, NOISY).data_, gold, X)
    return data.codes.tolist(), known.tolist()


def test_a_series_is_matched_by_the_index():
    """The order of a Series does not matter if ``X`` is a DataFrame; rows that it omits are unknown."""
    expected = codes_with(GOLD)
    assert expected == ([1, 0, 1, 1, 0, 1], [True, True, False, True, True, True])
    assert codes_with(GOLD[::-1]) == expected
    assert codes_with(GOLD.dropna().sort_index()) == expected
    assert codes_with(GOLD.to_numpy()) == expected
    assert codes_with(GOLD.reset_index(drop=True), X=TABLE.to_numpy()) == expected


def test_a_mask_is_matched_by_the_index():
    """A Series of truth values in another order marks the rows that it names."""
    mask = pd.Series([True, False, False, False, True, False], index=NAMES)
    expected = [True, False, False, False, True, False]
    assert codes_with(mask)[1] == expected
    assert codes_with(mask.sort_index())[1] == expected
    assert codes_with(mask[mask])[1] == expected


def test_the_classifier_matches_gold_by_the_index(small_portfolio):  # noqa: ARG001 (a fixture)
    """A reversed Series of gold labels gives the same fit as the Series in the order of the rows."""
    X, y = blobs(80)
    table, gold = pd.DataFrame(X), pd.Series(y)
    noisy = np.where(np.arange(80) % 4 == 0, 1 - y, y)
    first, second = (
        PeerClassifier(random_state=0).fit(table, noisy, gold=series).predict_proba(table)
        for series in (gold, gold[::-1])
    )
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize(
    ("gold", "message"),
    [
        (
            pd.Series(["a"], index=[99]),
            "`gold` must have index labels that occur in the index of `X`.*found 99",
        ),
        (pd.Series(["a", "b"], index=[40, 40]), "indexes without duplicates.*`gold` repeats 40"),
        (["a", None, None, None, None, "c"], r"`gold` must contain labels that occur in `y`.*found 'c'\."),
        ([["a"]] * 6, r"`gold` must have one entry per row, 6 in all; got shape \(6, 1\)"),
    ],
    ids=["absent", "repeated", "unknown", "nested"],
)
def test_wrong_gold_is_refused(gold, message):
    """The message names what is wrong with the index, the labels or the shape."""
    with pytest.raises(InvalidInputError, match=message):
        codes_with(gold)


def test_repeated_names_of_rows_are_refused():
    """Rows with the same name cannot be matched."""
    table = TABLE.set_axis([1, 1, 2, 3, 4, 5])
    with pytest.raises(InvalidInputError, match="that of `X` repeats 1"):
        codes_with(GOLD, X=table)


@pytest.mark.parametrize("unknown", [None, np.nan, pd.NA, pd.NaT], ids=str)
def test_lists_of_gold_labels_may_be_incomplete(unknown):
    """None and NaN in a list mean that the label is not known, also beside text."""
    assert codes_with([unknown, unknown, "a", unknown, "b", unknown]) == (
        [0, 0, 0, 1, 1, 1],
        [False, False, True, False, True, False],
    )


def test_a_list_of_truth_values_is_a_mask():
    """True in a list marks a label as correct."""
    assert codes_with([True, False, False, False, False, True]) == (
        [0, 0, 1, 1, 0, 1],
        [True, False, False, False, False, True],
    )


@pytest.mark.parametrize("kind", ["datetime64[ns]", "timedelta64[ns]"])
def test_missing_dates_are_missing_labels(kind, small_portfolio):  # noqa: ARG001 (a fixture)
    """NaT is not a class."""
    X, y = blobs(90)
    labels = pd.Series((y + 1) * 10**15).astype(kind)
    known = np.arange(90) % 3 > 0
    model = PeerClassifier(random_state=0).fit(X, labels.where(known))
    assert model.classes_.tolist() == np.unique(labels.to_numpy()).tolist()
    assert model.report_.n_unlabelled == 30
    found = model.predict_proba(X)
    np.testing.assert_array_equal(
        found, PeerClassifier(random_state=0).fit(X, np.where(known, y, np.nan)).predict_proba(X)
    )


@pytest.mark.parametrize(
    "labels",
    [[None] * 90, ["a", None, "b"] * 30, pd.to_datetime(["2020-01-01", None, "2020-01-02"] * 30)],
    ids=["all", "text", "dates"],
)
def test_classifiers_without_partial_labels_refuse_missing_ones(labels):
    """The message counts the missing labels and says what to do."""
    missing = 90 if labels[0] is None else 30
    with pytest.raises(
        InvalidInputError, match=f"missing labels .* is {missing} of 90. Leave these rows out"
    ):
        Checked().fit(blobs(90)[0], labels)
