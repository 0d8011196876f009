"""Weights of the noisy labels, checked by enumeration."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from peerloss.exceptions import InvalidInputError, NotIdentifiableError
from peerloss.noise import NoiseModel
from peerloss.theory import (
    balancing_label_weights,
    noisy_joint,
    optimal_alpha_from_noisy_prior,
    optimal_alpha_of_weighted,
    peer_decision,
    peer_risk,
    unbalancing_label_weights,
)
from tests.theory.finite_distributions import (
    accuracies,
    all_rules,
    balanced_accuracies,
    binary_noises,
    classifiers,
    clean_risk,
    column_noise,
    exact,
    joints,
    random_joint,
    zero_one,
)


def weighted(joint, weights):
    """Weight the labels of a joint distribution of (x, label)."""
    heavy = joint * weights
    return heavy / heavy.sum()


@exact
@given(st.data())
def test_weighted_peer_risks_differ_as_clean_risks_do(data):
    """At the α* of weighted rows, peer risks are clean risks times a positive factor, for every classifier.

    The factor is that of unweighted rows, 1 − Σe, times 2·w₀w₁/((A + B)·mean weight), A = w₁(1 + d), B =
    w₀(1 − d): positive, so the minimisers are those of clean accuracy.
    """
    joint, noise = data.draw(joints()), data.draw(binary_noises(0.9))
    weights = np.array([data.draw(st.floats(0.2, 5.0)), data.draw(st.floats(0.2, 5.0))])
    noisy = noisy_joint(joint, noise)
    heavy = weighted(noisy, weights)
    assume(abs(np.diff(heavy.sum(axis=0))[0]) > 0.01)
    alpha = optimal_alpha_of_weighted(noise, noisy.sum(axis=0), weights)
    every = classifiers(len(joint), 2)
    peer = np.array([peer_risk(zero_one(f, 2), heavy, alpha=alpha) for f in every])
    clean = np.array([clean_risk(f, joint) for f in every])
    d = noise.e_neg - noise.e_pos
    above, below = weights[1] * (1 + d), weights[0] * (1 - d)
    mean = noisy.sum(axis=0) @ weights
    factor = (1 - noise.sum_of_rates) * 2 * weights.prod() / ((above + below) * mean)
    np.testing.assert_allclose(peer - peer[0], factor * (clean - clean[0]), atol=1e-12)


def test_balanced_noisy_labels_get_an_alpha_after_downsampling():
    """δ_p̃ = 0 with unequal rates: no α* exists for the rows as they are, one does for weighted rows."""
    noise = NoiseModel.binary(0.1, 0.3)
    prior = (0.5 - 0.1) / 0.6
    np.testing.assert_allclose(noise.noisy_prior(prior), [0.5, 0.5])
    with pytest.raises(NotIdentifiableError, match="downsample one class"):
        optimal_alpha_from_noisy_prior(noise, 0.5)
    weights = unbalancing_label_weights(0.5)
    assert np.isfinite(optimal_alpha_of_weighted(noise, 0.5, weights))


@exact
@given(noise=binary_noises(0.9), noisy=st.floats(0.05, 0.95))
def test_equal_weights_change_nothing(noise, noisy):
    """α* of equal weights is Theorem 4's."""
    assume(abs(2 * noisy - 1) > 0.01)
    expected = optimal_alpha_from_noisy_prior(noise, noisy)
    assert optimal_alpha_of_weighted(noise, noisy, [3.0, 3.0]) == pytest.approx(expected, abs=1e-9)


@exact
@given(st.data())
def test_balancing_weights_balance_the_clean_classes(data):
    """For K classes and any invertible noise: the weighted mass of every clean class is 1/K."""
    k = data.draw(st.integers(2, 4))
    clean = np.array(data.draw(st.lists(st.floats(0.2, 1.0), min_size=k, max_size=k)))
    clean /= clean.sum()
    noise = NoiseModel.uniform(k, data.draw(st.floats(0.0, 0.3)))
    try:
        weights = balancing_label_weights(noise, clean @ noise.transition)
    except NotIdentifiableError as error:
        assert "no positive weights" in str(error)  # noqa: PT017 (both outcomes are right)
        return
    mass = (clean[:, None] * noise.transition * weights).sum(axis=1)
    np.testing.assert_allclose(mass, np.full(k, 1 / k), atol=1e-12)
    assert (clean @ noise.transition) @ weights == pytest.approx(1.0)


def weighted_world(rng, k):
    """Draw P(x, y) and noise with e_j for which balancing weights exist."""
    while True:
        clean, noise = random_joint(rng, 4, k), column_noise(rng, k)
        try:
            return clean, noise, balancing_label_weights(noise, clean.sum(axis=0) @ noise.transition)
        except NotIdentifiableError:
            continue


def test_weighted_peer_loss_of_two_classes_aims_at_balanced_accuracy():
    """In 300 worlds of two classes the weighted α = 1 minimiser is best in balanced accuracy, in all of them.

    In accuracy on the data as they come it is the best one in fewer than four fifths.
    """
    rng = np.random.default_rng(0)
    rules = all_rules(4, 2)
    accurate = 0
    for _ in range(300):
        clean, noise, weights = weighted_world(rng, 2)
        chosen = peer_minimiser(weighted(noisy_joint(clean, noise), weights))
        balanced = balanced_accuracies(rules, clean).max()
        assert balanced_accuracies(chosen, clean)[0] == pytest.approx(balanced, abs=1e-9)
        accurate += accuracies(chosen, clean)[0] > accuracies(rules, clean).max() - 1e-9
    assert 0 < accurate < 240


@pytest.mark.parametrize("k", [3, 4])
def test_weights_of_more_classes_destroy_the_rates(k):
    """In 200 worlds with T[i, j] = e_j and unequal classes the weighted noise has no e_j in any of them.

    The weighted α = 1 minimiser misses the best balanced accuracy, which is accuracy of the weighted world,
    in at least a tenth.
    """
    rng = np.random.default_rng(k)
    rules = all_rules(4, k)
    missed = 0
    for _ in range(200):
        clean, noise, weights = weighted_world(rng, k)
        heavy = clean.sum(axis=0)[:, None] * noise.transition * weights
        np.testing.assert_allclose(heavy.sum(axis=1), 1 / k, atol=1e-9)
        assert NoiseModel(k * heavy / (k * heavy).sum(axis=1, keepdims=True)).column_rates is None
        chosen = peer_minimiser(weighted(noisy_joint(clean, noise), weights))
        best = balanced_accuracies(rules, clean).max()
        missed += balanced_accuracies(chosen, clean)[0] < best - 1e-9
    assert missed >= 20


def peer_minimiser(noisy):
    """Return the rule with the least peer 0-1 risk at α = 1, as one row."""
    return peer_decision(noisy / noisy.sum(axis=1, keepdims=True), 1.0, noisy.sum(axis=0))[None]


@exact
@given(noisy=st.floats(0.02, 0.98), wanted=st.floats(0.05, 0.9))
def test_unbalancing_weights_reach_the_difference_and_keep_the_majority(noisy, wanted):
    """|δ_p̃| of the weighted labels is at least the requested value; the weights average to 1."""
    weights = unbalancing_label_weights(noisy, wanted)
    prior = np.array([1 - noisy, noisy])
    delta = (prior * weights)[1] - (prior * weights)[0]
    assert prior @ weights == pytest.approx(1.0)
    assert abs(delta) >= wanted - 1e-12
    if noisy != 0.5:
        assert np.sign(delta) == np.sign(2 * noisy - 1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: unbalancing_label_weights(0.0), "`noisy_prior` must give both labels"),
        (lambda: unbalancing_label_weights(0.5, 1.0), "`difference`"),
        (
            lambda: optimal_alpha_of_weighted(np.eye(2), 0.3, [1.0, 0.0]),
            "`label_weights` must be two",
        ),
        (lambda: optimal_alpha_of_weighted(np.eye(2), 0.3, [1.0]), "`label_weights` must be two"),
    ],
)
def test_bad_input_is_named(call, message):
    """The argument is named."""
    with pytest.raises(InvalidInputError, match=message):
        call()


def test_impossible_weights_are_refused():
    """Weights that leave the labels balanced; a prior that the noise cannot have produced."""
    with pytest.raises(NotIdentifiableError, match="leave the labels balanced"):
        optimal_alpha_of_weighted(NoiseModel.binary(0.1, 0.3), 0.5, [1.0, 1.0])
    with pytest.raises(NotIdentifiableError, match="cannot have led to"):
        balancing_label_weights(NoiseModel.binary(0.3, 0.1), 0.2)
    with pytest.raises(NotIdentifiableError, match="no positive weights"):
        balancing_label_weights(NoiseModel.binary(0.4, 0.1), NoiseModel.binary(0.4, 0.1).noisy_prior(0.1))
