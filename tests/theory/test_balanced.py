"""Balanced accuracy under noise: the best decision against enumeration of all decisions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from peerloss.exceptions import InvalidInputError, NotIdentifiableError
from peerloss.noise import NoiseModel
from peerloss.theory import balanced_decision, balanced_posterior, noisy_joint, peer_decision
from tests.theory.finite_distributions import (
    all_rules,
    balanced_accuracies,
    binary_noises,
    column_noise,
    exact,
    joints,
    random_joint,
    random_noise,
)


def posterior_and_prior(joint):
    return joint / joint.sum(axis=1, keepdims=True), joint.sum(axis=0)


@pytest.mark.parametrize("kind", [column_noise, random_noise], ids=["rates e_j", "any T"])
@pytest.mark.parametrize("k", [3, 4, 5, 6])
def test_it_reaches_the_best_balanced_accuracy_and_alpha_one_does_not(k, kind):
    """In 200 worlds no decision has a higher balanced accuracy on clean labels; α = 1 falls short in many.

    The share in which it does grows with K: at least 15 % for three classes, 50 % for six, both kinds of
    noise.
    """
    rng = np.random.default_rng(k)
    rules = all_rules(4, k)
    short = 0
    for _ in range(200):
        clean = random_joint(rng, 4, k)
        noise = kind(rng, k)
        noisy_posterior, noisy_prior = posterior_and_prior(noisy_joint(clean, noise))
        best = balanced_accuracies(rules, clean).max()
        ours = balanced_decision(noisy_posterior, noise, noisy_prior)
        assert balanced_accuracies(ours[None], clean)[0] == pytest.approx(best, abs=1e-9)
        at_one = peer_decision(noisy_posterior, 1.0, noisy_prior)
        short += balanced_accuracies(at_one[None], clean)[0] < best - 1e-9
    assert short >= {3: 30, 4: 50, 5: 70, 6: 100}[k]


@exact
@given(joints(), binary_noises(0.9))
def test_two_classes_need_no_rates(joint, noise):
    """For K = 2 and Σe < 1 the decision is peer loss at α = 1, whatever the noise."""
    noisy_posterior, noisy_prior = posterior_and_prior(noisy_joint(joint, noise))
    clear = np.abs(noisy_posterior[:, 1] - noisy_prior[1]) > 1e-9
    at_one = peer_decision(noisy_posterior, 1.0, noisy_prior)
    for any_noise in (noise, NoiseModel(np.eye(2))):
        decided = balanced_decision(noisy_posterior, any_noise, noisy_prior)
        np.testing.assert_array_equal(decided[clear], at_one[clear])


def test_three_classes_need_the_noise():
    """Two worlds with the same noisy distribution and different optima: no rule of η̃ and π̃ suits both."""
    rates = np.array([0.0, 0.1, 0.0])
    noises = NoiseModel(np.eye(3)), NoiseModel((1 - rates.sum()) * np.eye(3) + rates)
    noisy = np.array([[0.2], [0.8]]) * [[0.5, 0.31, 0.19], [0.875, 0.11, 0.015]]
    worlds = [noisy @ noise.inverse() for noise in noises]
    rules = all_rules(2, 3)
    best = []
    for clean, noise in zip(worlds, noises, strict=True):
        assert (clean >= 0).all()
        np.testing.assert_allclose(noisy_joint(clean, noise), noisy, atol=1e-15)
        scores = balanced_accuracies(rules, clean)
        assert np.sort(scores)[-1] - np.sort(scores)[-2] > 1e-3  # the optimum is unique
        best.append(rules[scores.argmax()])
        np.testing.assert_array_equal(balanced_decision(*_noisy_of(noisy, noise)), best[-1])
    assert [rule[0] for rule in best] == [2, 1]
    assert peer_decision([[0.5, 0.31, 0.19]], 1.0, [0.8, 0.15, 0.05]).tolist() == [1]


def _noisy_of(noisy, noise):
    noisy_posterior, noisy_prior = posterior_and_prior(noisy)
    return noisy_posterior, noise, noisy_prior


@exact
@given(st.integers(3, 5).flatmap(joints))
def test_balanced_posterior_is_that_of_equally_frequent_classes(joint):
    """It equals the posterior of the same P(x | y) with every class at 1/K."""
    posterior, prior = posterior_and_prior(joint)
    equal, _ = posterior_and_prior(joint / prior / joint.shape[1])
    np.testing.assert_allclose(balanced_posterior(posterior, prior), equal, atol=1e-12)


def test_classes_that_do_not_occur_are_not_predicted():
    """A class with a clean prior of zero or below is excluded, and rows stay probabilities."""
    shares = balanced_posterior([[0.5, 0.5, 0.0], [0.0, 1.0, 0.0]], [0.5, 0.0, 0.5])
    assert shares.tolist() == [[1.0, 0.0, 0.0], [0.5, 0.0, 0.5]]
    rates = np.array([0.0, 0.2, 0.0])  # more than the label's whole frequency
    noise = NoiseModel((1 - rates.sum()) * np.eye(3) + rates)
    assert balanced_decision([[0.1, 0.8, 0.1], [0.3, 0.2, 0.5]], noise, [0.6, 0.15, 0.25]).tolist() == [2, 2]


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (
            lambda: balanced_decision([[0.5, 0.5]], np.eye(3), [0.2, 0.3, 0.5]),
            InvalidInputError,
            "one column",
        ),
        (lambda: balanced_decision([[0.5, 0.5]], np.eye(2), [0.2, 0.3, 0.5]), InvalidInputError, "2 entries"),
        (
            lambda: balanced_decision([[0.5, 0.5]], np.full((2, 2), 0.5), 0.5),
            NotIdentifiableError,
            "inverted",
        ),
        (lambda: balanced_posterior([[1.2, -0.2]], 0.5), InvalidInputError, "must not be negative"),
        (lambda: balanced_posterior([0.5, 0.5], 0.5), InvalidInputError, "`clean_posterior` must have 2 dim"),
    ],
)
def test_wrong_arguments_are_named(call, error, match):
    """Every refusal names the argument and what it expects."""
    with pytest.raises(error, match=match):
        call()
