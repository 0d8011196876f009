"""The gain of one more label is the expected reduction of the entropy, by enumeration."""

import numpy as np
import pytest

from peerloss.posterior.label_gain import entropy, expected_gain


def enumerated(clean, annotator):
    """Return the entropy now minus its mean after each possible label, by Bayes' rule, label by label."""
    now = -sum(p * np.log2(p) for p in clean if p > 0)
    later = 0.0
    for label in range(len(clean)):
        joint = [clean[k] * annotator[k][label] for k in range(len(clean))]
        total = sum(joint)
        if total > 0:
            later -= sum(j * np.log2(j / total) for j in joint if j > 0)
    return now - later


@pytest.mark.parametrize("k", [2, 3, 6])
def test_gain_is_the_expected_reduction_of_the_entropy(k):
    """For any posterior and any annotator, the formula equals the enumeration of all labels."""
    rng = np.random.default_rng(k)
    clean, annotator = rng.dirichlet(np.full(k, 0.5), size=20), rng.dirichlet(np.full(k, 0.7), size=k)
    expected = [enumerated(row, annotator) for row in clean]
    assert expected_gain(clean, annotator) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("k", [2, 5])
def test_one_number_is_an_annotator_with_equal_errors(k):
    """An accuracy stands for the matrix with equally probable wrong labels."""
    clean = np.random.default_rng(0).dirichlet(np.ones(k), size=10)
    for accuracy in (0.0, 0.3, 0.8, 1.0):
        matrix = np.full((k, k), (1 - accuracy) / (k - 1))
        np.fill_diagonal(matrix, accuracy)
        assert expected_gain(clean, accuracy) == pytest.approx(expected_gain(clean, matrix), abs=1e-12)


def test_extremes():
    """A perfect label gives all the entropy, a guess nothing, and a known class leaves nothing to gain."""
    clean = np.random.default_rng(0).dirichlet(np.ones(4), size=10)
    assert expected_gain(clean, 1.0) == pytest.approx(entropy(clean))
    assert expected_gain(clean, 0.25) == pytest.approx(0.0, abs=1e-12)
    assert expected_gain(np.eye(4), 0.7) == pytest.approx(0.0, abs=1e-12)
    assert (expected_gain(clean, 0.9) > expected_gain(clean, 0.6)).all()
