"""Unbalanced labels: the ranking of an audit falls back to self-confidence as far as one label dominates."""

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.metrics import roc_auc_score

from peerloss.posterior.label_posterior import label_posterior
from peerloss.posterior.unexplained_noise import MAX_SHARE, POWER, unexplained_share


def boundary_errors(n=2000, k=4, majority=0.95, seed=0):
    """Return exact probabilities, noisy labels that are wrong near the boundary, and which are wrong."""
    rng = np.random.default_rng(seed)
    prior = np.append(majority, np.full(k - 1, (1 - majority) / (k - 1)))
    means = 4.0 * np.eye(k)
    clean = rng.choice(k, size=n, p=prior)
    X = means[clean] + rng.normal(size=(n, k))
    proba = softmax(np.log(prior) + X @ means.T - (means**2).sum(axis=1) / 2, axis=1)
    closeness = 4 * proba.max(axis=1) * (1 - proba.max(axis=1))
    others = np.where(np.arange(k) == clean[:, None], -1.0, proba).argmax(axis=1)
    wrong = rng.random(n) < np.minimum(0.05 * closeness / closeness.mean(), 0.5)
    return proba, np.where(wrong, others, clean), wrong


def test_the_share_grows_with_the_most_frequent_label():
    """It is 0 up to one half and MAX_SHARE if there is one label only."""
    codes = [np.repeat([0, 1, 2], [n, 100 - n, 0]) for n in (50, 60, 90, 100)]
    shares = [unexplained_share(some, 3) for some in codes]
    assert shares[0] == 0.0
    assert shares == sorted(shares)
    assert shares[1] < 0.01
    assert shares[2] == pytest.approx(MAX_SHARE * 0.8**POWER)
    assert shares[3] == MAX_SHARE


@pytest.mark.parametrize("k", [2, 3, 8])
def test_errors_near_the_boundary_of_rare_classes_are_ranked_as_by_self_confidence(k):
    """Their noise is not class-conditional: the AUROC is at most .03 below that of self-confidence."""
    proba, noisy, wrong = boundary_errors(k=k)
    found = label_posterior(proba, noisy)
    confidence = proba[np.arange(len(noisy)), noisy]
    assert roc_auc_score(wrong, found.p_error) > roc_auc_score(wrong, -confidence) - 0.03


def test_the_clean_posterior_is_a_mixture():
    """With more than two classes the probabilities of all classes are those of the mixture."""
    proba, noisy, _ = boundary_errors()
    found = label_posterior(proba, noisy)
    assert (found.p_error[found.p_other > 1.0 - found.p_error] > 0.0).all()
    assert (found.p_other <= found.p_error + 1e-12).all()
    rows = np.arange(len(noisy))
    assert found.clean_given_label(rows)[rows, noisy] == pytest.approx(1.0 - found.p_error)
    share = unexplained_share(noisy, 4)
    assert (found.p_error >= share * (1.0 - proba[np.arange(len(noisy)), noisy]) - 1e-12).all()


def test_balanced_labels_are_ranked_by_the_estimated_noise_alone(monkeypatch):
    """If no label has more than half of the rows, nothing changes."""
    proba, noisy, _ = boundary_errors(majority=0.25)
    found = label_posterior(proba, noisy).p_error
    monkeypatch.setattr("peerloss.posterior.label_posterior.unexplained_share", lambda *_: 0.0)
    np.testing.assert_array_equal(label_posterior(proba, noisy).p_error, found)
