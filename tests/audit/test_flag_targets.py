"""Which rows are flagged: the targets of ``find_label_issues``, and labels that look clean."""

import numpy as np
import pytest

from peerloss import find_label_issues
from peerloss.exceptions import IdentifiabilityWarning, InvalidInputError


def test_a_promised_precision_is_reached_where_the_model_is_right():
    """Exact probabilities, 4,000 rows: of the rows flagged at level .8, 75 to 85 % are wrong on average."""
    precisions = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        clean = rng.integers(2, size=4000)
        one = 1 / (1 + np.exp(-2.4 * (rng.normal(size=4000) + 2.4 * clean - 1.2)))
        noisy = np.where(rng.random(4000) < 0.15, 1 - clean, clean)
        proba = np.column_stack([1 - one, one]) @ np.array([[0.85, 0.15], [0.15, 0.85]])
        audits = [
            find_label_issues(labels=noisy, pred_proba=proba, target=target, level=0.8)
            for target in ("auto", "precision")
        ]
        best_f1, promised = (audit.table["flagged"].to_numpy() for audit in audits)
        assert 0 < promised.sum() < best_f1.sum()
        precisions.append((noisy != clean)[promised].mean())
        low, high = audits[0].expected_errors_interval
        assert low <= (noisy != clean).sum() <= high
    assert np.mean(precisions) == pytest.approx(0.8, abs=0.05)


@pytest.mark.parametrize(
    ("settings", "match"),
    [({"target": "recall"}, "`target`"), ({"target": "precision", "level": 1.2}, "`level`")],
)
def test_bad_targets_are_named(settings, match):
    """Unknown targets and levels above 1 are refused by name, before any training."""
    with pytest.raises(InvalidInputError, match=match):
        find_label_issues(np.zeros((4, 1)), [0, 1, 0, 1], **settings)


def test_labels_that_look_clean_are_said_to():
    """The headline and the summary have the probability that no label is wrong; nothing is flagged."""
    rng = np.random.default_rng(0)
    codes = rng.integers(2, size=500)
    one = np.clip(codes + rng.normal(scale=0.1, size=500), 0.01, 0.99)
    audit = find_label_issues(labels=codes, pred_proba=np.column_stack([1 - one, one]))
    assert "The labels look clean" in str(audit)
    assert audit.summary()["no_noise"] > 0.5
    assert not audit.table["flagged"].any()
    known = find_label_issues(labels=codes, pred_proba=np.column_stack([1 - one, one]), target="f1")
    assert known.table["flagged"].any()


def test_the_target_f1_flags_rows_although_nothing_can_be_learned():
    """Without a model that helps, "f1" flags by the model's confidence and says so; "auto" flags nothing."""
    rng = np.random.default_rng(1)
    proba, labels = rng.dirichlet([1, 1, 1], size=300), rng.integers(3, size=300)
    with pytest.warns(IdentifiabilityWarning, match="ranked and flagged by the model's confidence"):
        flagged = find_label_issues(labels=labels, pred_proba=proba, target="f1")
    with pytest.warns(IdentifiabilityWarning, match="No row is flagged"):
        silent = find_label_issues(labels=labels, pred_proba=proba)
    assert flagged.table["flagged"].any()
    assert "flagged by the model's confidence alone" in flagged.headline
    assert not silent.table["flagged"].any()
    np.testing.assert_array_equal(flagged.table["p_error"], silent.table["p_error"])
