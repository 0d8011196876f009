"""Candidates for T: clean probabilities, accuracies and Bayes' rule, against enumeration."""

import numpy as np
import pytest

from peerloss import NoiseModel
from peerloss.posterior import NoisePosterior, TabulatedPosterior
from peerloss.posterior.decision import CleanMap


def world(k, seed, points=6):
    """Return the joint distribution of points and clean classes (m, K), and a T that is safe to invert."""
    rng = np.random.default_rng(seed)
    transition = 0.6 * np.eye(k) + 0.4 * rng.dirichlet(np.ones(k), size=k)
    return rng.dirichlet(np.ones(points * k)).reshape(points, k), transition


def only(transition):
    """Return the posterior that is certain of one T."""
    return NoisePosterior(transition[None], np.ones(1))


@pytest.mark.parametrize("k", [2, 3, 5])
def test_clean_probabilities_undo_the_noise(k):
    """Exact noisy probabilities and the true T give the clean probabilities and the clean prior."""
    joint, transition = world(k, k)
    clean = joint / joint.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(only(transition).transform(clean @ transition), clean, atol=1e-5)
    prior = joint.sum(axis=0)
    np.testing.assert_allclose(only(transition).clean_prior(prior @ transition), prior, atol=1e-5)


@pytest.mark.parametrize("balanced", [False, True])
@pytest.mark.parametrize("k", [2, 3, 4])
def test_accuracy_from_noisy_labels_is_exact(k, balanced):
    """For any decisions, summed over all points and labels, it is the accuracy on clean labels."""
    for seed in range(20):
        joint, transition = world(k, seed)
        rule = np.random.default_rng(seed).integers(k, size=len(joint))
        points, labels = np.divmod(np.arange(len(joint) * k), k)
        weight = (joint @ transition).ravel()
        level, error = only(transition).accuracies(rule[points], labels, weight, balanced=balanced)
        hits = joint * np.eye(k)[rule]
        expected = (hits.sum(axis=0) / joint.sum(axis=0)).mean() if balanced else hits.sum()
        assert level[0] == pytest.approx(expected, abs=1e-12)
        assert error[0] >= 0


def test_the_sampling_error_of_the_accuracy_is_that_of_repeated_draws():
    """Over 400 draws of 500 rows, the mean of the stated errors is the standard deviation of the levels."""
    joint, transition = world(3, 1)
    rule, rng = joint.argmax(axis=1), np.random.default_rng(0)
    noisy = (joint @ transition).ravel()
    for balanced in (False, True):
        levels, errors = [], []
        for _ in range(400):
            points, labels = np.divmod(rng.choice(len(noisy), size=500, p=noisy), 3)
            level, error = only(transition).accuracies(rule[points], labels, np.ones(500), balanced=balanced)
            levels.append(level[0])
            errors.append(error[0])
        assert np.mean(errors) == pytest.approx(np.std(levels), rel=0.15)


def test_posterior_given_the_label_is_bayes_rule():
    """P(clean | x, label) agrees with the joint distribution."""
    joint, transition = world(4, 2)
    clean = joint / joint.sum(axis=1, keepdims=True)
    labels = np.arange(len(joint)) % 4
    given = only(transition).given_label(clean @ transition, labels)
    expected = clean * transition[:, labels].T
    np.testing.assert_allclose(given, expected / expected.sum(axis=1, keepdims=True), atol=1e-4)


def test_known_labels_weigh_candidates_by_bayes_rule():
    """The weight of a candidate is multiplied by P(clean | x, label) of each known row."""
    joint, transition = world(4, 2)
    noisy = joint / joint.sum(axis=1, keepdims=True) @ transition
    labels, gold = np.arange(len(joint)) % 4, np.arange(len(joint)) % 3
    other = 0.5 * transition + 0.5 * np.eye(4)
    candidates = NoisePosterior(np.stack([transition, other]), np.array([0.3, 0.7]))
    found = candidates.given_gold(noisy, labels, gold).weights
    expected = [
        weight * np.prod([only(T).given_label(noisy[[i]], labels[[i]])[0, gold[i]] for i in range(len(gold))])
        for weight, T in zip(candidates.weights, candidates.transitions, strict=True)
    ]
    np.testing.assert_allclose(found, np.array(expected) / np.sum(expected), rtol=1e-6)


def test_mean_interval_and_fewer_candidates():
    """The mean weighs the candidates, the interval leaves out 5 % at each end, merging keeps the mean."""
    rates = np.linspace(0.0, 0.4, 41)
    posterior = NoisePosterior(
        np.stack([NoiseModel.binary(rate, 0.1).transition for rate in rates]), np.full(41, 1 / 41)
    )
    assert posterior.noise.e_neg == pytest.approx(0.2)
    low, high = posterior.interval()
    assert (low[0, 1], high[0, 1]) == (pytest.approx(0.02, abs=0.01), pytest.approx(0.38, abs=0.01))
    assert (low[1, 0], high[1, 0]) == (pytest.approx(0.1), pytest.approx(0.1))
    for size in (1, 5, 100):
        merged = posterior.thinned(size)
        assert len(merged.weights) == min(size, 41)
        np.testing.assert_allclose(merged.noise.transition, posterior.noise.transition)


def test_two_classes_average_the_inverse_and_the_curve():
    """P(clean) of two classes is the mean of η̃ T⁻¹ and of the curve over P(noisy = 1)."""
    noise = NoiseModel.binary(0.1, 0.3)
    known = NoisePosterior(noise.transition[None], np.ones(1))
    curve = TabulatedPosterior(np.array([0.2, 0.6]), np.array([0.1, 0.9]))
    one = np.array([0.1, 0.4, 0.7])
    found = CleanMap("accuracy", None, np.full(2, 0.5), known, score_curve=curve).transform(
        np.column_stack([1 - one, one])
    )
    inverse, by_rank = np.array([0.0, 0.5, 1.0]), np.array([0.1, 0.5, 0.9])
    np.testing.assert_allclose(found[:, 1], (inverse + by_rank) / 2, atol=1e-5)
    np.testing.assert_allclose(found.sum(axis=1), 1.0)


def test_the_share_of_wrong_labels_is_that_of_each_candidate():
    """The interval contains the shares of nine tenths of the candidates; no noise has the share 0."""
    rates = np.linspace(0.0, 0.4, 41)
    candidates = np.stack([NoiseModel.uniform(3, rate).transition for rate in rates])
    posterior = NoisePosterior(candidates, np.full(41, 1 / 41))
    low, high = posterior.error_rate_interval(np.full(3, 1 / 3))
    assert (low, high) == (pytest.approx(0.02, abs=0.011), pytest.approx(0.38, abs=0.011))
    assert posterior.no_noise == pytest.approx(1 / 41)
    assert posterior.thinned(2).no_noise == pytest.approx(1 / 41)
    assert only(np.eye(3)).error_rate_interval(np.full(3, 1 / 3)) == (0.0, 0.0)
