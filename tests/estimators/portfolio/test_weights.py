"""Weights of the candidates on the simplex."""

from itertools import combinations

import numpy as np
import pytest

from peerloss.estimators.portfolio._fit_portfolio import simplex_weights, weigh


def brute_force(gram, ridge):
    """Minimise over every subset of candidates by Lagrange multipliers, and return the best valid weights."""
    size = len(gram)
    matrix = gram + ridge * np.eye(size)
    best, found = np.inf, None
    for count in range(1, size + 1):
        for subset in map(list, combinations(range(size), count)):
            solved = np.linalg.solve(matrix[np.ix_(subset, subset)], np.ones(count))
            weights = np.zeros(size)
            weights[subset] = solved / solved.sum()
            if (weights >= 0).all() and weights @ matrix @ weights < best:
                best, found = weights @ matrix @ weights, weights
    return found


def candidates(n, n_classes, n_candidates, seed=0):
    """Return random labels and probabilities that are more or less close to them."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(n_classes, size=n)
    scores = [
        strength * np.eye(n_classes)[codes] + rng.normal(size=(n, n_classes))
        for strength in np.linspace(0.0, 2.0, n_candidates)
    ]
    return codes, [np.exp(s) / np.exp(s).sum(axis=1, keepdims=True) for s in scores]


@pytest.mark.parametrize("ridge", [1e-6, 0.01, 1.0])
@pytest.mark.parametrize("n_classes", [2, 4])
def test_the_weights_are_the_optimum(n_classes, ridge):
    """They equal the best of the optima on all subsets of candidates."""
    codes, proba = candidates(60, n_classes, 6)
    residual = np.array([(p - np.eye(n_classes)[codes]).ravel() for p in proba])
    gram = residual @ residual.T / len(codes)
    np.testing.assert_allclose(simplex_weights(gram, ridge=ridge), brute_force(gram, ridge), atol=1e-8)


def test_the_average_beats_every_candidate():
    """On the rows that choose the weights, the Brier score of the average is at most that of the best."""
    codes, proba = candidates(500, 3, 5)
    weights, brier, behind = weigh(proba, codes, np.ones(500))
    average = np.tensordot(weights, np.array(proba), axes=1)
    assert weights.sum() == pytest.approx(1.0)
    assert np.square(average - np.eye(3)[codes]).sum(axis=1).mean() < brier.min() + 1e-3
    assert behind[brier.argmin()] == 0.0
    assert (behind >= 0).all()


def test_equal_candidates_get_equal_weights():
    """The penalty decides where the labels cannot."""
    codes, proba = candidates(100, 2, 1)
    weights, _, behind = weigh(proba * 3, codes, np.ones(100))
    np.testing.assert_allclose(weights, 1 / 3)
    np.testing.assert_allclose(behind, 0.0)


def test_small_weights_become_zero():
    """No weight is positive and below one in a hundred."""
    codes, proba = candidates(2000, 2, 12)
    weights, _, _ = weigh(proba, codes, np.ones(2000))
    assert (weights == 0).any()
    assert weights[weights > 0].min() >= 0.01


def test_rows_of_weight_zero_do_not_count():
    """Weights and scores are those of the other rows."""
    codes, proba = candidates(300, 3, 4)
    weight = np.where(np.arange(300) < 200, 2.0, 0.0)
    for given, expected in zip(
        weigh(proba, codes, weight), weigh([p[:200] for p in proba], codes[:200], np.ones(200)), strict=True
    ):
        np.testing.assert_allclose(given, expected, atol=1e-10)


def test_more_rows_than_a_block(monkeypatch):
    """The result does not depend on the number of rows that are held in memory."""
    codes, proba = candidates(300, 3, 4)
    whole = weigh(proba, codes, np.ones(300))
    monkeypatch.setattr("peerloss.estimators.portfolio._fit_portfolio._BLOCK_ROWS", 7)
    for given, expected in zip(weigh(proba, codes, np.ones(300)), whole, strict=True):
        np.testing.assert_allclose(given, expected, atol=1e-10)
