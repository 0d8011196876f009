"""Errors that were planted in tables of several kinds are found, counted and corrected."""

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_digits, make_classification
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics import roc_auc_score

from peerloss import find_label_issues

TOPICS = {
    "delivery": ["delivery", "parcel", "courier", "late", "tracking", "address", "shipped", "arrived"],
    "payment": ["refund", "card", "charged", "invoice", "payment", "price", "bank", "paid"],
    "device": ["screen", "battery", "crash", "update", "broken", "restart", "button", "sound"],
}
COMMON = ["the", "my", "it", "was", "and", "please", "can", "you", "have", "not", "with", "again", "today"]


def digits():
    """Return 500 digits as 64 numbers."""
    found = load_digits(as_frame=True)
    return found.data[:500], found.target.to_numpy()[:500]


def imbalanced():
    """Return two classes, one of them with 5 % of the rows."""
    X, y = make_classification(
        1000, 10, n_informative=6, weights=[0.95], class_sep=1.0, flip_y=0.0, random_state=0
    )
    return pd.DataFrame(X).add_prefix("x"), y


def sentences(rows=500):
    """Return messages of 8 to 15 words about three topics, each with a few words of its own."""
    rng = np.random.default_rng(0)
    labels = rng.choice(list(TOPICS), rows)
    texts = [
        " ".join(rng.choice(TOPICS[k] if rng.random() < 0.25 else COMMON) for _ in range(rng.integers(8, 16)))
        for k in labels
    ]
    return pd.DataFrame({"message": texts}), labels


def large(rows=30_000):
    """Return numbers with gaps and categories; three classes."""
    rng = np.random.default_rng(0)
    X, y = make_classification(
        rows, 12, n_informative=8, n_classes=3, class_sep=2.0, flip_y=0.0, random_state=0
    )
    X[rng.random(X.shape) < 0.03] = np.nan
    return pd.DataFrame(X).add_prefix("x").assign(shop=rng.choice(list("abcdef"), rows)), y


def audit(make, share=0.1):
    """Return the audit of a table with planted errors, the clean labels, and which labels are wrong."""
    X, clean = make()
    rng = np.random.default_rng(1)
    classes, codes = np.unique(clean, return_inverse=True)
    other = (codes + rng.integers(1, len(classes), len(codes))) % len(classes)
    noisy = classes[np.where(rng.random(len(codes)) < share, other, codes)]
    return find_label_issues(X, pd.Series(noisy, index=X.index)), clean, noisy != clean


@pytest.mark.parametrize(
    ("make", "share", "least", "countable"),
    [
        pytest.param(digits, 0.1, 0.99, True, id="digits"),
        # Wrong labels of a rare class cannot be told from overlapping classes, so their number is not known.
        pytest.param(imbalanced, 0.05, 0.88, False, id="imbalanced"),
        pytest.param(sentences, 0.1, 0.91, True, id="sentences"),
        pytest.param(large, 0.1, 0.98, True, id="30,000 rows", marks=pytest.mark.slow),
    ],
)
def test_planted_errors_are_found(make, share, least, countable):
    """The ranking is good, most flags and suggestions are right, and the number of errors is estimated."""
    found, clean, wrong = audit(make, share)
    assert roc_auc_score(wrong, found.table["p_error"]) >= least
    flagged = found.table["flagged"].to_numpy()
    assert wrong[flagged].mean() > 0.5
    suggested = found.table["suggested"].to_numpy()
    changed = suggested != found.table["given"].to_numpy()
    assert (suggested == clean)[flagged & wrong & changed].mean() >= 0.85
    if countable:
        assert found.expected_errors == pytest.approx(wrong.sum(), rel=0.2)


def test_a_sparse_matrix_is_audited():
    """Features that are a TF-IDF matrix already need no table."""
    X, clean = sentences(300)
    words = TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 3)).fit_transform(X["message"])
    noisy = clean.copy()
    noisy[::10] = np.where(clean[::10] == "device", "payment", "device")
    table = find_label_issues(words, noisy, cv=3).table
    assert words.shape[1] > 256
    assert roc_auc_score(noisy != clean, table["p_error"]) > 0.9
