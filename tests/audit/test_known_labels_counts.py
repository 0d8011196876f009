"""Numbers of an audit with known labels: known errors are counted, and the other rows are judged alone."""

import numpy as np
import pytest

from peerloss import find_label_issues


def separable(k, n=300):
    """Return exact probabilities of k well separated classes, and their labels."""
    rng = np.random.default_rng(0)
    clean = rng.integers(k, size=n)
    score = rng.normal(scale=0.5, size=(n, k))
    score[np.arange(n), clean] += 6.0
    proba = np.exp(score) / np.exp(score).sum(axis=1, keepdims=True)
    return proba, clean


@pytest.mark.parametrize("k", [2, 3])
def test_expected_errors_are_at_least_the_known_ones(k):
    """If all labels are known, the number of errors and both ends of its interval are exact."""
    proba, clean = separable(k)
    given = clean.copy()
    given[:30] = (given[:30] + 1) % k
    audit = find_label_issues(labels=given, pred_proba=proba, gold=clean)
    assert audit.expected_errors == pytest.approx(30)
    assert audit.expected_errors_interval == (pytest.approx(30), pytest.approx(30))
    assert audit.table["flagged"].sum() == 30


@pytest.mark.parametrize("k", [2, 3])
def test_a_known_error_does_not_make_other_rows_suspect(k):
    """Labels that look clean stay without flags, except the one that is known to be wrong."""
    proba, clean = separable(k)
    audit = find_label_issues(labels=clean, pred_proba=proba)
    assert not audit.table["flagged"].any()
    assert audit.no_noise > 0.5
    updated = audit.update({7: (clean[7] + 1) % k})
    assert np.flatnonzero(updated.table["flagged"]).tolist() == [7]
    assert updated.no_noise == 0.0


def test_known_errors_are_flagged_even_if_the_model_is_useless():
    """The headline names them, and no expected number is claimed for the other rows on the page."""
    rng = np.random.default_rng(1)
    proba = rng.dirichlet(np.ones(3), size=200)
    given = rng.integers(3, size=200)
    with pytest.warns(UserWarning, match="cannot be estimated"):
        audit = find_label_issues(labels=given, pred_proba=proba, gold={0: (given[0] + 1) % 3})
    assert audit.reason
    assert audit.headline.startswith("Flagged: only 1 label that is known to be wrong.")
    assert str(audit).count(audit.reason) == 1
