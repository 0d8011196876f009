"""T counted from confident rows and shrunk towards uniform noise."""

import numpy as np
import pytest

from peerloss.posterior._counted_noise import _shrink_to_uniform, count_noise


def test_counts_use_the_most_probable_qualified_class_of_each_row():
    """The confident joint of five rows, by hand; one row qualifies for neither class."""
    proba = np.array([[0.9, 0.1], [0.2, 0.8], [0.5, 0.5], [0.1, 0.9], [0.7, 0.3]])
    codes = np.array([0, 1, 1, 0, 0])
    # thresholds: class 0 mean(.9, .1, .7) = .567; class 1 mean(.8, .5) = .65
    counted = count_noise(proba, codes)
    assert counted.rows.tolist() == [2.0, 2.0]


def test_equal_probabilities_pass_their_own_mean():
    """Rows with equal probabilities all count, whichever way their mean is rounded."""
    proba = np.full((31, 3), 0.1)
    codes = np.arange(31) % 3
    proba[np.arange(31), codes] = 0.8
    assert count_noise(proba, codes).rows.sum() == 31


@pytest.mark.parametrize("seed", range(5))
def test_rows_of_t_sum_to_one_if_some_prior_strengths_are_dropped(seed):
    """The weights of the remaining strengths are renormalised."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 10 ** rng.integers(1, 5), size=(3, 3)).astype(float) + 300 * np.eye(3)
    assert _shrink_to_uniform(counts, counts).sum(axis=1) == pytest.approx(np.ones(3), abs=1e-12)
