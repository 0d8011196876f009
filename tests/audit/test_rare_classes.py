"""Classes with too few rows are left out of an audit that trains a model, with a warning."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold

from peerloss import find_label_issues
from peerloss.audit import _issues
from peerloss.exceptions import IdentifiabilityWarning, InvalidInputError

N = 300


@pytest.fixture(scope="module")
def task():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(N, 2)), columns=["a", "b"], index=[f"r{i}" for i in range(N)])
    y = pd.Series(np.where((X["a"] > 0) ^ (rng.random(N) < 0.1), "yes", "no"), index=X.index)
    return X, y


def with_strays(y):
    stray = y.copy()
    stray.iloc[[7, 50]] = "maybe"
    return stray


def find(X, y, **options):
    return find_label_issues(X, y, estimator=LogisticRegression(), **options)


def test_rare_classes_are_set_aside_by_name_count_and_option(task):
    """The other rows are audited as if the rare ones did not exist; `drop` and `relabel` fit together."""
    X, y = task
    message = r"1 class has too few rows to learn from: 'maybe' \(2 rows\).*Pass `min_class_rows`=2 to keep"
    with pytest.warns(UserWarning, match=message):
        found = find(X, with_strays(y), groups=np.arange(N), gold={"r7": "yes", "r9": "no"})
    kept = X.index.drop(["r7", "r50"])
    expected = find(X.loc[kept], y[kept], groups=np.delete(np.arange(N), [7, 50]), gold={"r9": "no"})
    pd.testing.assert_frame_equal(found.table, expected.table)
    assert found.set_aside == {"maybe": 2}
    assert "2 rows with the label 'maybe' were left out." in str(found)
    assert len(found.relabel()[0]) == len(found.relabel()[1]) == N - 2
    assert found.update({"r11": "no"}).set_aside == {"maybe": 2}


@pytest.mark.parametrize("kind", ["category", "array of gold labels", "splitter"])
def test_other_inputs_are_selected_alike(task, kind):
    """Categories without rows disappear; arrays with one entry per row and splitters work."""
    X, y = task
    labels, options = with_strays(y), {}
    if kind == "category":
        labels = labels.astype("category")
    elif kind == "splitter":
        options = {"cv": StratifiedKFold(3)}
    else:
        options = {"gold": [None] * 299 + ["no"]}
    with pytest.warns(UserWarning, match="'maybe'"):
        found = find(X, labels, **options)
    assert found.classes.tolist() == ["no", "yes"]
    assert len(found.table) == N - 2


def test_nothing_changes_without_rare_classes(task):
    """The result is that of `min_class_rows=1`, and there is no warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = find(*task)
    pd.testing.assert_frame_equal(found.table, find(*task, min_class_rows=1).table)
    assert found.set_aside == {}


def test_all_classes_can_be_kept(task):
    """With `min_class_rows=1` every row is in the table."""
    X, y = task
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = find(X, with_strays(y), min_class_rows=1)
    assert found.table.index.equals(X.index)
    assert found.classes.tolist() == ["maybe", "no", "yes"]


def test_positions_of_rows_are_not_shifted(task):
    """Folds given as positions keep all rows; an explicit number is refused with them."""
    X, y = task
    folds = list(StratifiedKFold(2).split(X, with_strays(y)))
    assert len(find(X, with_strays(y), cv=folds).table) == N
    with pytest.raises(InvalidInputError, match=r"`min_class_rows`=3 would leave out rows, but `cv` holds"):
        find(X, with_strays(y), cv=folds, min_class_rows=3)


def test_probabilities_keep_all_classes(task):
    """Nothing is trained, so that no class is too small; the option is still checked."""
    y = with_strays(task[1])
    proba = np.full((N, 3), 1 / 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert len(find_label_issues(labels=y, pred_proba=proba).table) == N
    with pytest.raises(InvalidInputError, match="`min_class_rows`"):
        find_label_issues(labels=y, pred_proba=proba, min_class_rows=0)


def test_messages_name_the_label_of_a_small_class(task, monkeypatch):
    """The portfolio is fitted to codes, but messages have the labels."""
    X, y = task
    few = X.iloc[:12], y.iloc[:12].mask(np.arange(12) < 1, "maybe")
    with pytest.raises(InvalidInputError, match=r"at least two rows.*; 'maybe' has one\. Leave such classes"):
        find_label_issues(*few)
    seen = []

    def fake(_X, codes, _estimator, cv, *_):
        seen.append(cv)
        return np.full((len(codes), 3), 1 / 3)

    monkeypatch.setattr(_issues, "out_of_fold", fake)
    few = X.iloc[:12], y.iloc[:12].mask(np.arange(12) < 2, "maybe")
    folds = pytest.warns(UserWarning, match="but the class 'maybe' has only 2 rows; 2 folds are used")
    with folds, pytest.warns(IdentifiabilityWarning):  # these probabilities say nothing
        find_label_issues(*few)
    assert seen == [2]


@pytest.mark.filterwarnings("ignore:1 class has too few rows")
def test_known_labels_of_a_class_that_is_left_out_are_refused_with_the_remedy(task):
    """Otherwise the message would ask to check the spelling."""
    X, y = task
    with pytest.raises(InvalidInputError, match=r"'maybe', but its class .* Pass `min_class_rows`=1"):
        find(X, with_strays(y), gold={"r9": "maybe"})


@pytest.mark.filterwarnings("ignore:1 class has too few rows")
def test_known_labels_need_one_entry_for_each_row_that_was_passed(task):
    """An array that fits the remaining rows would be matched to the wrong rows."""
    X, y = task
    with pytest.raises(InvalidInputError, match=rf"`gold` must have one entry per row, {N} in all"):
        find(X, with_strays(y), gold=[None] * (N - 2))


@pytest.mark.filterwarnings("ignore:1 class has too few rows")
@pytest.mark.parametrize("form", ["list with NaN", "series with repeated names"])
def test_known_labels_row_by_row_are_those_of_the_same_row(task, form):
    """NaN beside text is missing, and names of rows may repeat if there is one entry per row."""
    X, y = task
    labels, gold = with_strays(y), [float("nan")] * N
    gold[9] = "no" if y.iloc[9] == "yes" else "yes"
    if form == "series with repeated names":
        labels = labels.set_axis(["r"] * N)
        gold = pd.Series(gold, index=labels.index)
    table = find(X.to_numpy(), labels, gold=gold).table
    assert table["p_error"].iloc[8] == 1.0  # row 7 is left out
