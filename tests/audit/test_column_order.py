"""The columns of a DataFrame of probabilities are matched with the classes by their names."""

import numpy as np
import pandas as pd
import pytest

from peerloss import find_label_issues
from peerloss.audit import find_multilabel_issues, rank_next_labels
from peerloss.exceptions import InvalidInputError

N, K = 300, 3


def example(classes, seed=0):
    """Return labels of which some are wrong, and probabilities with columns in the order of the classes."""
    rng = np.random.default_rng(seed)
    clean = rng.integers(K, size=N)
    codes = np.where(rng.random(N) < 0.15, (clean + 1) % K, clean)
    proba = rng.dirichlet(np.ones(K), size=N) * 0.3
    proba[np.arange(N), clean] += 0.7
    return np.array(classes)[codes], proba


@pytest.mark.parametrize(
    ("classes", "names"),
    [
        (["cat", "dog", "eel"], ["dog", "eel", "cat"]),
        ([1, 2, 3], [2, 3, 1]),
        ([1, 2, 3], ["2", "3", "1"]),
        ([0, 1, 2], [1, 2, 0]),
    ],
)
def test_columns_named_after_the_classes_may_be_in_any_order(classes, names):
    """The names are those of the classes, as values or as text; the result is that of sorted columns."""
    y, proba = example(classes)
    expected = find_label_issues(labels=y, pred_proba=proba)
    named = pd.DataFrame(proba[:, [1, 2, 0]], columns=names)
    pd.testing.assert_frame_equal(find_label_issues(labels=y, pred_proba=named).table, expected.table)
    crowd = pd.DataFrame({"ann": y, "bob": np.roll(y, 1), "cy": y})
    both = [find_label_issues(labels=crowd, pred_proba=p).table for p in (proba, named)]
    pd.testing.assert_frame_equal(*both)


@pytest.mark.parametrize(
    ("classes", "names"),
    [
        (["cat", "dog", "eel"], pd.RangeIndex(3)),
        (["cat", "dog", "eel"], ["p1", "p2", "p3"]),
        ([1, 2, 3], pd.RangeIndex(3)),
        ([1, 2, 3], [0, 1, 2]),
        ([0, 1, 2], pd.RangeIndex(3)),
        (["cat", "dog", "eel"], ["cat", "dog", "eel"]),
    ],
)
def test_other_columns_are_used_by_position(classes, names):
    """Positions 0..K-1 and names unrelated to the classes say nothing about the order."""
    y, proba = example(classes)
    expected = find_label_issues(labels=y, pred_proba=proba).table
    found = find_label_issues(labels=y, pred_proba=pd.DataFrame(proba, columns=names)).table
    pd.testing.assert_frame_equal(found, expected)


@pytest.mark.parametrize(
    ("classes", "names", "missing"),
    [
        (["cat", "dog", "eel"], ["dog", "cat", "fox"], "'eel'"),
        (["cat", "dog", "eel"], ["dog", "cat", "cat"], "'eel'"),
        ([1, 2, 3], [3, 4, 2], "1"),
    ],
)
def test_columns_that_name_only_some_classes_are_refused(classes, names, missing):
    """They name other classes, so that their order cannot be known."""
    y, proba = example(classes)
    message = (
        rf"the columns of `pred_proba` must be named after the classes of `labels`, \[.*without a column "
        rf"{missing}. Rename the columns, or pass an array"
    )
    with pytest.raises(InvalidInputError, match=message):
        find_label_issues(labels=y, pred_proba=pd.DataFrame(proba, columns=names))


def test_probabilities_of_several_labels_are_matched_with_the_columns_of_the_labels():
    """`find_multilabel_issues` reorders columns with the names of the labels, and refuses other names."""
    rng = np.random.default_rng(0)
    clean = rng.random((N, K)) < [0.5, 0.3, 0.2]
    labels = pd.DataFrame((clean ^ (rng.random((N, K)) < 0.05)).astype(int), columns=["news", "sport", "art"])
    proba = np.where(clean, 0.85, 0.1)
    expected = find_multilabel_issues(labels=labels, pred_proba=proba).table
    named = pd.DataFrame(proba, columns=labels.columns)[["art", "news", "sport"]]
    pd.testing.assert_frame_equal(find_multilabel_issues(labels=labels, pred_proba=named).table, expected)
    with pytest.raises(
        InvalidInputError, match=r"named after the columns of `labels`.*without a column 'art'"
    ):
        find_multilabel_issues(labels=labels, pred_proba=named.rename(columns={"art": "arts"}))
    array = labels.to_numpy()  # its columns have no names
    by_position = find_multilabel_issues(labels=array, pred_proba=named[labels.columns]).table
    pd.testing.assert_frame_equal(by_position.drop(columns="label"), expected.drop(columns="label"))


def test_rows_without_a_label_are_matched_with_the_classes_of_the_audit():
    """`rank_next_labels` reorders the columns of `unlabelled`, and refuses names of other classes."""
    y, proba = example(["cat", "dog", "eel"])
    audit = find_label_issues(labels=y, pred_proba=proba)
    new = pd.DataFrame([[0.8, 0.1, 0.1], [0.2, 0.1, 0.7]], columns=["cat", "dog", "eel"], index=["p", "q"])
    expected = rank_next_labels(audit, unlabelled=new)
    assert expected.loc[["p", "q"], "suggested"].tolist() == ["cat", "eel"]
    pd.testing.assert_frame_equal(rank_next_labels(audit, unlabelled=new[["eel", "cat", "dog"]]), expected)
    with pytest.raises(
        InvalidInputError, match="the columns of `unlabelled` must be named after the classes of"
    ):
        rank_next_labels(audit, unlabelled=new.rename(columns={"eel": "fox"}))
