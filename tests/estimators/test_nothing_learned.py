"""Columns from which nothing can be learned: PeerClassifier and the audit say so and claim nothing."""

import numpy as np
import pandas as pd
import pytest

from peerloss import PeerClassifier, find_label_issues
from peerloss._probabilities import explain_nothing_learned
from peerloss.exceptions import IdentifiabilityWarning, InvalidInputError
from peerloss.persistence import load_model, save_model

pytestmark = pytest.mark.usefixtures("small_portfolio")
ROWS = 600


@pytest.fixture(scope="module")
def useless():
    """Return a table whose columns have nothing to do with the labels of four unequal classes."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"size": rng.normal(size=ROWS), "colour": rng.choice(["red", "blue"], ROWS)})
    return table, rng.choice(list("abcd"), ROWS, p=[0.4, 0.3, 0.2, 0.1])


@pytest.mark.parametrize("metric", ["accuracy", "balanced_accuracy"])
def test_the_classifier_says_so(useless, metric, tmp_path):
    """It warns, the report has the reason, and the estimate is at most that of a constant prediction."""
    X, y = useless
    with pytest.warns(IdentifiabilityWarning, match="nothing can be learned from these columns"):
        model = PeerClassifier(metric=metric, random_state=0).fit(X, y)
    report = model.report_
    limit = (y == "a").mean() if metric == "accuracy" else 0.25
    assert report.accuracy <= limit + 1e-12
    assert (report.accuracy_low, report.accuracy_high) == (0.0, 1.0)
    assert report.doubts[0].startswith("Nothing can be learned from these columns: predictions of held-out")
    assert report.doubts[0] in str(report)
    assert load_model(save_model(model, tmp_path / "model")).report_.doubts == report.doubts


@pytest.mark.filterwarnings("ignore::peerloss.exceptions.IdentifiabilityWarning")
def test_noise_can_hide_what_is_learned():
    """With few rows and many wrong labels, a model can be right without any sign of it in the labels."""
    rng, hidden = np.random.default_rng(0), []
    for seed in range(12):
        X = rng.normal(size=(1080, 2))
        y = (X[:, 0] > 0).astype(int)
        noisy = np.where(rng.random(80) < 0.4, 1 - y[:80], y[:80])
        model = PeerClassifier(random_state=seed).fit(X[:80], noisy)
        if model.report_.nothing_learned:
            hidden.append((model.predict(X[80:]) == y[80:]).mean())
    assert max(hidden) > 0.8


def test_the_audit_flags_nothing(useless):
    """No row is flagged, no label is changed, and the reason is in the summary and the headline."""
    X, y = useless
    with pytest.warns(IdentifiabilityWarning, match="No row is flagged"):
        audit = find_label_issues(X, y)
    assert audit.reason.startswith("nothing can be learned from these columns")
    assert not audit.table["flagged"].any()
    assert audit.summary()["flagged"] == 0
    assert audit.summary()["reason"] == audit.reason
    assert audit.reason in audit.headline
    np.testing.assert_array_equal(audit.relabel()[1], y)


def test_a_table_without_useful_columns_is_refused(useless):
    """Identifiers and constants alone: every column is named with its reason."""
    _, y = useless
    X = pd.DataFrame({"id": np.arange(ROWS), "unit": "cm"})
    for call in (lambda: find_label_issues(X, y), lambda: PeerClassifier().fit(X.assign(note=None), y)):
        with pytest.raises(InvalidInputError, match=r"'id' numbers the rows; 'unit' has the same value"):
            call()


def test_calibrated_probabilities_are_compared_with_the_frequencies():
    """The exact posterior of an informative feature passes; the frequencies and shuffled rows do not."""
    rng = np.random.default_rng(0)
    p = rng.choice([0.2, 0.8], 1000)
    y = (rng.random(1000) < p).astype(int)
    proba = np.column_stack([1.0 - p, p])
    assert explain_nothing_learned(proba, y) == ""
    assert "difference 0.0000 ± 0.0000" in explain_nothing_learned(
        np.tile(np.bincount(y) / 1000, (1000, 1)), y
    )
    found = explain_nothing_learned(rng.permutation(proba), y)
    share = y.mean()
    assert f"of the frequencies {2 * share * (1 - share):.3f}" in found


def test_few_rows_with_a_clear_gain_count_as_learned():
    """Eight rows cannot be certain by three standard errors, but a twentieth of the score is enough."""
    y = np.array([0, 0, 0, 1, 1, 1, 0, 1])
    p = np.array([0.1, 0.2, 0.1, 0.9, 0.8, 0.9, 0.9, 0.8])
    assert explain_nothing_learned(np.column_stack([1 - p, p]), y) == ""


def test_weights_count():
    """Rows of weight zero do not change the result."""
    rng = np.random.default_rng(1)
    y = rng.integers(2, size=400)
    proba = np.where(np.eye(2)[y] == 1, 0.7, 0.3)
    proba[200:] = proba[200:, ::-1]
    assert explain_nothing_learned(proba, y)
    assert explain_nothing_learned(proba, y, np.r_[np.ones(200), np.zeros(200)]) == ""


def test_the_classes_of_a_soft_label_are_one_observation():
    """Votes of 60 to 40 in the direction of the features are a certain gain: it is equal in all rows."""
    direction = np.arange(100) % 2
    rows = np.repeat(np.arange(100), 2)
    codes = np.tile([0, 1], 100)
    weight = np.where(codes == direction[rows], 0.6, 0.4)
    proba = np.where(np.eye(2)[direction] == 1, 0.6, 0.4)[rows]
    assert explain_nothing_learned(proba, codes, weight, rows=rows) == ""
    assert explain_nothing_learned(proba, codes, weight)
