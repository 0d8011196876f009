"""Score matrices and their expectations."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peerloss.exceptions import InvalidInputError
from peerloss.peer_prediction import expected_ca_score, expected_score, logarithmic_matrix, quadratic_matrix

FEW = settings(deadline=None, max_examples=40)
weights = st.lists(st.integers(1, 20), min_size=9, max_size=9).map(lambda w: np.reshape(w, (3, 3)) / sum(w))
matrices = st.lists(st.floats(-5, 5), min_size=9, max_size=9).map(lambda w: np.reshape(w, (3, 3)))


@FEW
@given(weights)
def test_matrices_are_the_proper_scores(joint):
    """Row k is the proper score of the forecast P(· | k): its mean under P(· | k) is the largest."""
    conditional = joint / joint.sum(axis=1, keepdims=True)
    for matrix in (quadratic_matrix(joint), logarithmic_matrix(joint)):
        means = conditional @ matrix.T  # [signal, reported row]
        assert (np.diag(means)[:, None] >= means - 1e-12).all()
    brier = -((conditional[:, None, :] - np.eye(3)[None]) ** 2).sum(axis=2) + 1.0
    np.testing.assert_allclose(quadratic_matrix(joint), brier, atol=1e-12)
    np.testing.assert_allclose(np.exp(logarithmic_matrix(joint)), conditional, atol=1e-12)


@FEW
@given(weights, matrices)
def test_expectations_are_sums(joint, score):
    """Expected scores are the sums over pairs, with and without the product of marginals."""
    plain = sum(score[i, j] * joint[i, j] for i in range(3) for j in range(3))
    chance = sum(score[i, j] * joint[i].sum() * joint[:, j].sum() for i in range(3) for j in range(3))
    assert expected_score(score, joint) == pytest.approx(plain, abs=1e-12)
    assert expected_ca_score(score, joint) == pytest.approx(plain - chance, abs=1e-12)


@FEW
@given(weights, matrices)
def test_uninformed_reports_score_zero(joint, score):
    """A report that does not depend on the task has expected CA score 0, whatever the matrix."""
    own, peer = joint.sum(axis=1), joint.sum(axis=0)
    assert expected_ca_score(score, np.outer(own, peer)) == pytest.approx(0.0, abs=1e-14)
    for label in range(3):
        assert expected_ca_score(score, np.outer(np.eye(3)[label], peer)) == pytest.approx(0.0, abs=1e-14)


def test_impossible_pairs():
    """−∞ counts only if its pair has positive probability; an impossible signal has a row of zeros or −∞."""
    joint = [[0.5, 0.0], [0.0, 0.5]]
    score = logarithmic_matrix(joint)
    assert expected_score(score, joint) == 0.0
    assert expected_score(score, [[0.25, 0.25], [0.25, 0.25]]) == -math.inf
    np.testing.assert_array_equal(quadratic_matrix([[0.5, 0.5], [0.0, 0.0]])[1], [0.0, 0.0])
    np.testing.assert_array_equal(logarithmic_matrix([[0.5, 0.5], [0.0, 0.0]])[1], [-math.inf, -math.inf])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: quadratic_matrix([[1.0, 1.0]]), "`joint`.*sum to 1"),
        (lambda: logarithmic_matrix([1.0]), "`joint`.*2 dimension"),
        (lambda: expected_score([["a", "b"]], np.eye(2) / 2), "`score_matrix`.*numbers"),
        (lambda: expected_score(np.eye(3), np.eye(2) / 2), "`score_matrix`.*shape"),
        (lambda: expected_score([[math.nan, 0], [0, 0]], np.eye(2) / 2), "`score_matrix`.*nan"),
        (lambda: expected_ca_score(np.eye(3), np.eye(2) / 2), "`score_matrix`.*shape"),
        (lambda: expected_ca_score([[-math.inf, 0], [0, 0]], np.eye(2) / 2), "`score_matrix` must be finite"),
    ],
)
def test_bad_arguments_are_refused(call, message):
    """The message names the argument with the wrong shape or value."""
    with pytest.raises(InvalidInputError, match=message):
        call()
