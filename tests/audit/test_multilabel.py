"""Audits of several binary labels per example."""

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csc_array, csr_matrix
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from peerloss import find_label_issues
from peerloss.audit import find_multilabel_issues
from peerloss.exceptions import IdentifiabilityWarning, InvalidInputError

NAMES = ["news", "sport", "opinion"]


def example(n=600, seed=0):
    """Return features, clean labels, noisy labels with other rates for each label, and P(noisy = 1)."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3)) * 2
    clean_proba = 1 / (1 + np.exp(-(X * 2 - [0.0, 2.0, 1.0])))
    clean = (rng.random((n, 3)) < clean_proba).astype(int)
    e_neg, e_pos = np.array([0.02, 0.05, 0.1]), np.array([0.25, 0.1, 0.1])
    flip = rng.random((n, 3)) < np.where(clean == 1, e_pos, e_neg)
    proba = e_neg + (1 - e_neg - e_pos) * clean_proba
    return X, clean, np.where(flip, 1 - clean, clean), proba


def frame(labels, index=None):
    return pd.DataFrame(labels, columns=NAMES, index=index)


def test_each_label_is_audited_alone():
    """Entries of a label are those of find_label_issues on its column, with its own noise."""
    _, _, noisy, proba = example()
    index = [f"row {i}" for i in range(len(noisy))]
    audit = find_multilabel_issues(labels=frame(noisy, index), pred_proba=proba)
    for place, name in enumerate(NAMES):
        p = proba[:, place]
        alone = find_label_issues(
            labels=pd.Series(noisy[:, place], index=index), pred_proba=np.column_stack([1 - p, p])
        )
        entries = audit.table[audit.table["label"] == name].set_index("row")
        for column in ("given", "suggested", "p_error"):
            assert (entries[column] == alone.table[column]).all()
        np.testing.assert_array_equal(audit.audits[name].noise.transition, alone.noise.transition)


def test_one_ranking_and_one_set_of_flags_for_all_labels():
    """Ranks are 1..n·L by p_error, flags are the first ranks, and wrong entries come first."""
    _, clean, noisy, proba = example()
    audit = find_multilabel_issues(labels=frame(noisy), pred_proba=proba)
    table = audit.table
    assert len(table) == noisy.size
    by_rank = table.sort_values("rank")
    assert by_rank["rank"].tolist() == list(range(1, noisy.size + 1))
    assert by_rank["p_error"].is_monotonic_decreasing
    assert by_rank["flagged"].is_monotonic_decreasing
    assert audit.suspects["rank"].tolist() == list(range(1, int(table["flagged"].sum()) + 1))
    wrong = (noisy != clean).reshape(-1)
    assert roc_auc_score(wrong, table["p_error"]) > 0.85
    assert audit.expected_errors == pytest.approx(wrong.sum(), rel=0.5)


def test_examples_have_the_probability_of_any_error():
    """1 − Π(1 − p) over the labels of a row, its rank, and the sum of p_error."""
    _, _, noisy, proba = example(n=200)
    audit = find_multilabel_issues(labels=frame(noisy), pred_proba=proba)
    p = audit.table["p_error"].to_numpy().reshape(-1, 3)
    np.testing.assert_allclose(audit.examples["p_any_error"], 1 - np.prod(1 - p, axis=1), atol=1e-12)
    np.testing.assert_allclose(audit.examples["expected_errors"], p.sum(axis=1))
    assert (audit.examples["labels"] == 3).all()
    assert audit.examples["flagged"].sum() == audit.table["flagged"].sum()
    ranked = audit.examples.sort_values("rank")
    assert ranked["p_any_error"].is_monotonic_decreasing


def test_rates_by_label():
    """Each label has its own rates: the label whose ones are lost has the larger e_pos."""
    _, _, noisy, proba = example(n=3000)
    by_label = find_multilabel_issues(labels=frame(noisy), pred_proba=proba).by_label
    assert by_label.index.tolist() == NAMES
    assert by_label.loc["news", "e_pos"] > by_label.loc["news", "e_neg"] + 0.05
    np.testing.assert_allclose(by_label["given_share"], noisy.mean(axis=0))


def test_relabel_and_files(tmp_path):
    """Labels more probably wrong than right are replaced; the table is written as CSV."""
    _, clean, noisy, proba = example()
    audit = find_multilabel_issues(labels=frame(noisy), pred_proba=proba)
    better = audit.relabel()
    assert (better.to_numpy() != clean).mean() < (noisy != clean).mean()
    audit.to_csv(tmp_path / "entries.csv")
    assert pd.read_csv(tmp_path / "entries.csv").shape == audit.table.shape
    assert "labels in" in str(audit)


def test_features_and_an_estimator():
    """Without probabilities, one model per label is cross-fitted; the columns of an array are 0, 1, 2."""
    X, clean, noisy, _ = example(n=400)
    audit = find_multilabel_issues(X, noisy, estimator=LogisticRegression())
    assert audit.table["label"].unique().tolist() == [0, 1, 2]
    assert roc_auc_score((noisy != clean).reshape(-1), audit.table["p_error"]) > 0.8


def test_labels_whose_rates_are_unknown_warn_once():
    """A label that never occurs and one at chance are ranked by confidence; one warning names the first."""
    _, _, noisy, proba = example(n=300)
    noisy[:, 1], proba[:, 1], proba[:, 2] = 0, 0.1, 0.3
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        audit = find_multilabel_issues(labels=frame(noisy), pred_proba=proba)
    assert [w.category for w in caught] == [IdentifiabilityWarning]
    assert "2 label(s) cannot be estimated, such as 'sport'" in str(caught[0].message)
    sport = audit.table[audit.table["label"] == "sport"]
    np.testing.assert_allclose(sport["p_error"], 0.1)
    assert audit.by_label["e_neg"].isna().tolist() == [False, True, True]


@pytest.mark.parametrize(
    ("labels", "options", "message"),
    [
        (None, {}, "`labels` must have one row per example and one column"),
        ([0, 1], {}, r"`labels` must have one row.*shape \(2,\)"),
        (np.zeros((3, 0)), {}, r"shape \(3, 0\)"),
        ([[0, 1], [1, 2]], {}, "`labels` must be 0 or 1; found 2 in column 1, row 1"),
        ([[0.0, np.nan], [1.0, 0.0]], {}, "`labels` must hold a label for each row; 1 have none"),
        ([[0, 1], [1, 0]], {}, "pass `X` or `pred_proba`"),
        ([[0, 1], [1, 0]], {"pred_proba": [[0.5, 0.5]]}, r"`pred_proba` must have the shape of `labels`"),
        ([[0, 1], [1, 0]], {"pred_proba": [[0.5, 0.5], [0.5, 1.5]]}, "found 1.5 in row 1, label 1"),
        ([[0, 1], [1, 0]], {"pred_proba": [["a", "b"]] * 2}, "`pred_proba` must hold numbers"),
        ([[0, 1], [1, 0]], {"X": np.zeros((3, 1))}, "equally long; got 3 and 2"),
        ([[0, 1], [0, 0]], {"X": np.eye(2)}, "column 0 is 0 in every row"),
    ],
)
def test_bad_input_is_named(labels, options, message):
    """The message names the argument, the place and what to do."""
    with pytest.raises(InvalidInputError, match=message):
        find_multilabel_issues(labels=labels, **options)


def test_names_and_rows_must_match():
    """Columns have unique names; a frame of labels has the index of the features."""
    labels = pd.DataFrame([[0, 1], [1, 0]], columns=["a", "a"])
    with pytest.raises(InvalidInputError, match="'a' occurs twice"):
        find_multilabel_issues(labels=labels, pred_proba=np.full((2, 2), 0.5))
    labels.columns = ["a", "b"]
    with pytest.raises(InvalidInputError, match="must have the same index"):
        find_multilabel_issues(pd.DataFrame({"x": [1, 2]}, index=[5, 6]), labels)


@pytest.mark.parametrize("kind", [csr_matrix, csc_array, "pandas"])
def test_sparse_labels_are_those_of_the_dense_matrix(kind):
    """Entries that are not stored are labels 0, as in the result of MultiLabelBinarizer."""
    _, _, noisy, proba = example(n=300)
    expected = find_multilabel_issues(labels=noisy, pred_proba=proba)
    labels = pd.DataFrame(noisy).astype(pd.SparseDtype(int, 0)) if kind == "pandas" else kind(noisy)
    found = find_multilabel_issues(labels=labels, pred_proba=proba)
    pd.testing.assert_frame_equal(found.table, expected.table)
    pd.testing.assert_frame_equal(found.relabel(), expected.relabel())
