"""Duplicates with different labels: counted by hand, and rates by enumeration."""

import itertools

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from peerloss import find_label_issues
from peerloss.audit._contradictions import find_contradictions, group_equal_rows, uniform_rate


def found_in(X, labels, k=None):
    codes, names = pd.factorize(np.asarray(labels), sort=True)
    return find_contradictions(X, pd.Series(labels), codes, k or len(names))


def test_small_table_by_hand():
    """Two groups, of three and of two rows; one contradicts itself, so at least one label is wrong."""
    X = pd.DataFrame({"a": [1, 1, 1, 2, 2, 3], "b": ["x", "x", "x", "y", "y", "y"]})
    found = found_in(X, ["cat", "dog", "cat", "dog", "dog", "cat"])
    assert (found.n_rows, found.n_groups, found.n_contradicting, found.min_wrong) == (5, 2, 1, 1)
    assert found.table.index.tolist() == [0, 1, 2]
    assert found.table["exact"].all()
    assert "1 of 2 groups" in str(found)
    assert "at least 1 label is wrong" in str(found)


def test_the_bound_never_exceeds_the_number_of_wrong_labels():
    """Whatever the noise, if the class is a function of the features."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        x = rng.integers(30, size=100)
        clean = rng.integers(4, size=30)[x]
        noisy = np.where(rng.random(100) < rng.random(), rng.integers(4, size=100), clean)
        found = found_in(pd.DataFrame({"x": x}), noisy, 4)
        grouped = group_equal_rows(pd.DataFrame({"x": x})) >= 0
        assert found.min_wrong <= (noisy != clean)[grouped].sum()


@pytest.mark.parametrize("k", [2, 3, 7])
@pytest.mark.parametrize("rate", [0.0, 0.1, 0.3])
def test_uniform_rate_by_enumeration(k, rate):
    """All pairs of labels of one class, weighted by their probability, give D; the formula inverts it."""
    label = np.full(k, rate / (k - 1))
    label[0] = 1.0 - rate
    differ = sum(label[i] * label[j] for i, j in itertools.product(range(k), repeat=2) if i != j)
    assert uniform_rate(differ, k) == pytest.approx(rate)


def test_labels_that_say_nothing_have_the_largest_rate():
    """D cannot exceed (K − 1)/K in expectation; a larger sample value gives the largest rate."""
    assert uniform_rate(1.0, 4) == pytest.approx(0.75)


@pytest.mark.parametrize("size", [2, 4])
def test_intervals_contain_the_rate(size):
    """The 90 % interval of the uniform rate holds, and the lower bound for any noise, in most draws."""
    rate, held, bounded = 0.15, 0, 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        x = np.repeat(np.arange(60), size)
        clean = rng.integers(3, size=60)[x]
        flip = rng.random(len(x)) < rate
        noisy = np.where(flip, (clean + rng.integers(1, 3, size=len(x))) % 3, clean)
        found = found_in(pd.DataFrame({"x": x}), noisy, 3)
        low, high = found.uniform_rate_interval
        held += low <= rate <= high
        bounded += found.least_rate <= rate
        assert low <= found.uniform_rate <= high
    assert held >= 82
    assert bounded >= 95


def test_near_duplicates():
    """Texts with the same words, and numbers that are equal after rounding, are near duplicates."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"text": [f"Row {i}" for i in range(20)], "size": rng.normal(size=20)})
    X.loc[1] = ["  row: 0!", X["size"][0] + 1e-6]
    labels = ["a", "b", *["a"] * 18]
    found = found_in(X, labels)
    assert (found.n_contradicting, found.n_near, found.min_wrong) == (0, 1, 0)
    assert found.table.index.tolist() == [0, 1]
    assert not found.table["exact"].any()
    assert str(found) == "Near duplicates with different labels: 1 group."


def test_exact_duplicates_are_not_counted_twice():
    """A group of exact duplicates is not a group of near duplicates as well."""
    X = pd.DataFrame({"text": ["A b", "A b", "c", "d"]})
    found = found_in(X, [0, 1, 0, 1])
    assert (found.n_contradicting, found.n_near) == (1, 0)


def test_few_numbers_are_compared_exactly_only():
    """Rounded values of one or two columns are equal by chance."""
    x = np.random.default_rng(0).normal(size=5000)
    assert found_in(x[:, None], np.arange(5000) % 2).n_near == 0


def test_values_of_any_kind_are_compared():
    """Missing values are equal to each other; lists are compared by their text."""
    X = pd.DataFrame(
        {"a": [None, None, "x", "x"], "b": [[1], [1], [1], [2]], "c": [np.nan, np.nan, 1.0, 1.0]}
    )
    assert group_equal_rows(X).tolist() == [0, 0, -1, -1]


@pytest.mark.parametrize("X", [None, sparse.eye(4).tocsr(), pd.DataFrame(index=range(4))])
def test_without_comparable_features_nothing_is_claimed(X):
    """Sparse matrices and empty tables are not compared."""
    assert found_in(X, [0, 1, 0, 1]) is None


def test_tables_without_duplicates():
    """There is nothing to say, and no rate."""
    found = found_in(np.arange(12.0).reshape(4, 3), [0, 1, 0, 1])
    assert str(found) == ""
    assert found.summary()["least_rate"] is None
    assert found.table.empty


def test_the_audit_reports_them(tmp_path):
    """The audit has them as an attribute, in its summary, its text and its page."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"x": np.repeat(rng.normal(size=100), 2)})
    y = np.where(rng.random(200) < 0.1, "<b>", "dog")
    proba = np.column_stack([np.full(200, 0.1), np.full(200, 0.9)])
    with pytest.warns(UserWarning, match="cannot be estimated"):
        audit = find_label_issues(X, y, pred_proba=proba)
    assert audit.contradictions.n_groups == 100
    assert audit.summary()["contradictions"]["min_wrong"] == audit.contradictions.min_wrong > 0
    assert str(audit.contradictions) in str(audit)
    audit.to_html(tmp_path / "audit.html")
    assert "Same features, different labels" in (tmp_path / "audit.html").read_text(encoding="utf-8")


def page_of(X, labels, path):
    """Return the words of the audit page."""
    proba = np.column_stack([np.full(len(X), 0.1), np.full(len(X), 0.9)])
    with pytest.warns(UserWarning, match="cannot be estimated"):
        find_label_issues(X, labels, pred_proba=proba).to_html(path)
    return " ".join(path.read_text(encoding="utf-8").split())


def test_the_page_counts_one_label_and_its_share(tmp_path):
    """One wrong label is in the singular; its share is certain, and the lower rate is about other labels."""
    X = pd.DataFrame({"x": np.repeat(np.arange(20), 2)})
    page = page_of(X, np.array(["a"] + ["b"] * 39), tmp_path / "page.html")
    assert "1 of 20 groups of rows with the same features have different labels." in page
    assert "at least 1 label is wrong (2.5% of these rows). For further labels of such rows" in page
    assert "near duplicates" not in page


def test_the_page_counts_no_groups_if_there_are_only_near_duplicates(tmp_path):
    """Without exact duplicates that contradict each other nothing is said about them."""
    X = pd.DataFrame({"text": ["Good day", "good day!", *(f"row {i}" for i in range(38))]})
    page = page_of(X, np.array(["a"] + ["b"] * 39), tmp_path / "page.html")
    assert "<p>Groups of near duplicates with different labels, such as" in page
    assert "0 of 0" not in page
