"""Calibration of scores, and the map from noisy to clean probabilities at a given α."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import expit, log_softmax

from peerloss.posterior.calibrator import Calibrator
from peerloss.posterior.decision import clean_proba
from peerloss.theory import peer_decision


@given(
    n_classes=st.integers(2, 6), alpha=st.floats(-3, 5, allow_subnormal=False), seed=st.integers(0, 10_000)
)
@settings(max_examples=150, deadline=None)
def test_clean_probabilities_are_probabilities_in_the_right_order(n_classes, alpha, seed):
    """The map of η̃ gives probabilities ordered as η̃ − απ̃, whatever η̃, α and π̃, also on the border."""
    rng = np.random.default_rng(seed)
    eta = rng.dirichlet(np.full(n_classes, 0.5), size=20)
    eta[:n_classes] = np.eye(n_classes)
    prior = rng.dirichlet(np.ones(n_classes))
    clean = clean_proba(eta, alpha, prior)
    assert (clean >= 0).all()
    np.testing.assert_allclose(clean.sum(axis=1), 1.0, atol=1e-12)
    np.testing.assert_array_equal(clean.argmax(axis=1), peer_decision(eta, alpha, prior))


def test_clean_probabilities_of_two_classes_are_piecewise_linear():
    """For two classes the map goes through (0, 0), (threshold, ½) and (1, 1), linearly between."""
    prior, alpha = np.array([0.7, 0.3]), 0.5
    threshold = (1 + alpha * (0.3 - 0.7)) / 2
    p = np.linspace(0, 1, 101)
    expected = np.interp(p, [0, threshold, 1], [0, 0.5, 1])
    mapped = clean_proba(np.column_stack([1 - p, p]), alpha, prior)
    np.testing.assert_allclose(mapped[:, 1], expected, atol=1e-12)


@pytest.mark.parametrize("n_classes", [2, 4])
def test_without_a_peer_term_probabilities_are_the_noisy_ones(n_classes):
    """At α = 0 the map is the identity."""
    eta = np.random.default_rng(0).dirichlet(np.ones(n_classes), size=50)
    prior = np.arange(1.0, n_classes + 1) / np.arange(1.0, n_classes + 1).sum()
    np.testing.assert_allclose(clean_proba(eta, 0.0, prior), eta, atol=1e-14)


def test_the_point_of_a_tie_maps_to_equal_probabilities():
    """Where η̃ − απ̃ is the same for all classes the clean probabilities are uniform."""
    prior = np.array([0.5, 0.3, 0.2])
    tie = 1 / 3 + 0.6 * (prior - 1 / 3)
    np.testing.assert_allclose(clean_proba(tie[None], 0.6, prior), 1 / 3, atol=1e-9)


def test_calibrator_equals_platt_scaling_found_by_another_optimiser():
    """For two classes slope and bias minimise the penalised logistic loss, as BFGS finds them."""
    rng = np.random.default_rng(0)
    log_odds = rng.normal(size=400) * 2
    codes = (rng.uniform(size=400) < expit(0.6 * log_odds + 0.3)).astype(np.int64)
    weight = rng.uniform(0.5, 2, size=400)

    def loss(v):
        z = v[0] * log_odds + v[1]
        return weight @ (np.logaddexp(0, z) - codes * z) + 0.5 * (v[0] - 1) ** 2

    found = minimize(loss, [1.0, 0.0], tol=1e-12).x
    scores = np.column_stack([np.zeros(400), log_odds])
    fitted = Calibrator.fit(scores, codes, weight, scale=1.0)
    np.testing.assert_allclose([fitted.slope, fitted.bias[1]], found, atol=1e-4)
    assert fitted.bias[0] == 0


def test_calibrated_probabilities_have_the_mean_of_the_labels():
    """With free biases the mean probability of each class is its weighted frequency."""
    rng = np.random.default_rng(1)
    scores, codes, weight = rng.normal(size=(300, 3)), rng.integers(0, 3, 300), rng.uniform(size=300)
    proba = Calibrator.fit(scores, codes, weight).proba(scores)
    np.testing.assert_allclose(weight @ proba, np.bincount(codes, weight), rtol=1e-8)


def test_calibrator_never_reverses_the_scores():
    """Scores that point the wrong way are flattened, not reversed, and the biases still fit the labels."""
    rng = np.random.default_rng(2)
    codes = rng.integers(0, 2, 200)
    scores = np.column_stack([np.zeros(200), 1.0 - 2.0 * codes + rng.normal(size=200)])
    fitted = Calibrator.fit(scores, codes, np.ones(200), scale=1.0)
    assert fitted.slope == 0.05
    assert fitted.proba(scores)[:, 1].mean() == pytest.approx(codes.mean())


def test_calibrator_stays_finite_where_scores_separate_the_classes():
    """Perfect scores give confident, finite probabilities."""
    codes = np.repeat([0, 1], 20)
    scores = np.column_stack([np.zeros(40), np.where(codes, 3.0, -3.0)])
    fitted = Calibrator.fit(scores, codes, np.ones(40))
    assert np.isfinite([fitted.slope, *fitted.bias]).all()
    assert (fitted.proba(scores)[np.arange(40), codes] > 0.95).all()


def test_penalised_biases_are_those_of_another_optimiser():
    """Slope and biases minimise the penalised loss of several classes, as BFGS finds them."""
    rng = np.random.default_rng(3)
    scores, weight = rng.normal(size=(200, 4)), rng.uniform(0.5, 2, size=200)
    codes = (scores + rng.gumbel(size=(200, 4))).argmax(axis=1)
    frequency = np.bincount(codes, weight) / weight.sum()

    def loss(v):
        log_p = log_softmax(v[0] * scores + v[1:], axis=1)
        return (v[0] - 1) ** 2 / 2 + 20 * frequency @ v[1:] ** 2 / 2 - weight @ log_p[np.arange(200), codes]

    found = minimize(loss, np.r_[1.0, np.zeros(4)], tol=1e-12).x
    fitted = Calibrator.fit(scores, codes, weight, scale=1.0, bias_penalty=20.0)
    np.testing.assert_allclose([fitted.slope, *fitted.bias], found, atol=1e-4)


@given(penalty=st.sampled_from([0.5, 20.0, 1e6]), seed=st.integers(0, 1000))
@settings(max_examples=30, deadline=None)
def test_penalised_calibration_does_not_depend_on_the_order_of_the_classes(penalty, seed):
    """Renaming the classes renames the probabilities: no bias is fixed."""
    rng = np.random.default_rng(seed)
    scores, codes, order = rng.normal(size=(60, 4)), rng.integers(0, 4, 60), rng.permutation(4)
    proba = Calibrator.fit(scores, codes, np.ones(60), bias_penalty=penalty).proba(scores)
    renamed = Calibrator.fit(scores[:, order], np.argsort(order)[codes], np.ones(60), bias_penalty=penalty)
    np.testing.assert_allclose(renamed.proba(scores[:, order]), proba[:, order], atol=1e-7)


def test_a_large_penalty_keeps_the_argmax_of_the_scores():
    """With a growing penalty the result becomes that without biases."""
    rng = np.random.default_rng(4)
    scores, codes, weight = rng.normal(size=(100, 3)), rng.integers(0, 3, 100), np.ones(100)
    penalised = Calibrator.fit(scores, codes, weight, bias_penalty=1e9).proba(scores)
    np.testing.assert_allclose(
        penalised, Calibrator.fit(scores, codes, weight, with_bias=False).proba(scores), atol=1e-6
    )


def test_a_penalty_does_not_make_rare_classes_frequent():
    """A class with one label in a hundred keeps about this probability, if the scores are useless."""
    rng = np.random.default_rng(6)
    codes = np.r_[np.zeros(99), np.ones(99), [2, 2]].astype(np.int64)
    fitted = Calibrator.fit(rng.normal(size=(200, 3)), codes, np.ones(200), bias_penalty=60.0)
    assert fitted.proba(np.zeros((1, 3)))[0, 2] < 0.05
