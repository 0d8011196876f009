"""The confident joint counts rows of which a model is confident."""

import numpy as np

from peerloss.noise.confident import confident_joint


def test_counts_use_the_most_probable_qualified_class_of_each_row():
    """The confident joint of five rows, by hand; one row qualifies for neither class."""
    proba = np.array([[0.9, 0.1], [0.2, 0.8], [0.5, 0.5], [0.1, 0.9], [0.7, 0.3]])
    codes = np.array([0, 1, 1, 0, 0])
    # thresholds: class 0 mean(.9, .1, .7) = .567; class 1 mean(.8, .5) = .65
    joint, _ = confident_joint(proba, codes)
    assert joint.sum(axis=1).tolist() == [2.0, 2.0]


def test_equal_probabilities_pass_their_own_mean():
    """Rows with equal probabilities all count, whichever way their mean is rounded."""
    proba = np.full((31, 3), 0.1)
    codes = np.arange(31) % 3
    proba[np.arange(31), codes] = 0.8
    assert confident_joint(proba, codes)[0].sum() == 31
