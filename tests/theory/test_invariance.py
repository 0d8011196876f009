import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from peerloss.exceptions import InvalidInputError, NotIdentifiableError
from peerloss.noise import NoiseModel
from peerloss.theory import invariance_factor, noisy_joint, peer_risk, suboptimality_bound, zero_one_peer_risk
from tests.theory.finite_distributions import (
    binary_noises,
    classifiers,
    clean_risk,
    column_noises,
    exact,
    joints,
    loss_matrices,
    minimisers,
    zero_one,
)


def test_peer_risk_equals_the_sum_over_pairs_of_draws():
    """The closed form is the mean over one draw and one pair of independent draws, written as loops."""
    joint = np.array([[0.1, 0.2], [0.05, 0.25], [0.3, 0.1]])
    losses = np.array([[0.3, 1.2], [2.0, -0.4], [0.7, 0.9]])
    total = 0.0
    for x in range(3):
        for k in range(2):
            total += joint[x, k] * losses[x, k]
            for x2 in range(3):
                for k2 in range(2):  # x comes from the first draw, k2 from the second
                    total -= 0.7 * joint[x, k] * joint[x2, k2] * losses[x, k2]
    assert peer_risk(losses, joint, alpha=0.7) == pytest.approx(total, abs=1e-12)


@exact
@given(st.data())
def test_lemma_2_binary(data):
    """Noise multiplies the peer risk of any loss matrix by 1 − e_neg − e_pos, also if Σe > 1."""
    joint = data.draw(joints())
    losses = data.draw(loss_matrices(joint.shape))
    noise = NoiseModel.binary(data.draw(st.floats(0.0, 1.0)), data.draw(st.floats(0.0, 1.0)))
    noisy = peer_risk(losses, noisy_joint(joint, noise))
    assert noisy == pytest.approx(invariance_factor(noise) * peer_risk(losses, joint), abs=1e-12)


@exact
@given(st.data())
def test_lemma_2_multi_class(data):
    """The same for K classes, any loss matrix, if T[i, j] = e_j."""
    k = data.draw(st.integers(3, 5))
    joint = data.draw(joints(k))
    losses, noise = data.draw(loss_matrices(joint.shape)), data.draw(column_noises(k))
    noisy = peer_risk(losses, noisy_joint(joint, noise))
    assert noisy == pytest.approx(invariance_factor(noise) * peer_risk(losses, joint), abs=1e-12)


def test_pair_flip_has_no_factor():
    """Under pair flip two classifiers shrink by different ratios: no factor exists, and it is refused."""
    noise = NoiseModel.pair_flip(3, 0.3)
    joint = np.array([[0.5, 0.1, 0.0], [0.0, 0.2, 0.0], [0.0, 0.05, 0.15]])
    ratios = []
    for labels in (np.array([0, 1, 2]), np.array([0, 0, 2])):
        losses = zero_one(labels, 3)
        ratios.append(peer_risk(losses, noisy_joint(joint, noise)) / peer_risk(losses, joint))
    assert abs(ratios[0] - ratios[1]) > 0.01
    with pytest.raises(NotIdentifiableError, match=r"`noise` must satisfy .*pair flip"):
        invariance_factor(noise)


def test_factor_of_reversed_and_useless_labels():
    """1 − Σe is 0 if labels carry no information and negative if they are reversed."""
    assert invariance_factor(NoiseModel.binary(0.5, 0.5)) == pytest.approx(0.0, abs=1e-12)
    assert invariance_factor(NoiseModel.binary(0.8, 0.8)) == pytest.approx(-0.6, abs=1e-12)
    assert invariance_factor(NoiseModel.uniform(4, 0.6)) == pytest.approx(0.2, abs=1e-12)


@exact
@given(st.data())
def test_theorem_2_and_its_multi_class_form(data):
    """Balanced classes: over all classifiers noisy peer risk and clean risk have the same argmin set."""
    k = data.draw(st.integers(2, 3))
    joint = data.draw(joints(k, balanced=True))
    noise = data.draw(column_noises(k))
    noisy, every = noisy_joint(joint, noise), classifiers(len(joint), k)
    peer = [peer_risk(zero_one(f, k), noisy) for f in every]
    clean = np.array([clean_risk(f, joint) for f in every])
    shrunk = invariance_factor(noise) * (clean - (1 - 1 / k))
    np.testing.assert_allclose(peer, shrunk, atol=1e-12)
    assert minimisers(peer, 1e-11 * invariance_factor(noise)) == minimisers(clean, 1e-11)


@exact
@given(st.data())
def test_theorem_3_over_restricted_classes(data):
    """The peer minimiser of any class of classifiers loses at most max π − min π, for 2 and 3 classes."""
    k = data.draw(st.integers(2, 3))
    joint, noise = data.draw(joints(k)), data.draw(column_noises(k))
    every = classifiers(len(joint), k)
    picked = data.draw(st.lists(st.integers(0, len(every) - 1), min_size=2, max_size=12, unique=True))
    noisy = noisy_joint(joint, noise)
    clean = np.array([clean_risk(every[i], joint) for i in picked])
    peer = [peer_risk(zero_one(every[i], k), noisy) for i in picked]
    bound = suboptimality_bound(joint.sum(axis=0))
    for chosen in minimisers(peer):
        assert clean[chosen] - clean.min() <= bound + 1e-12


def test_theorem_3_is_sharp_for_two_constant_classifiers():
    """Both constant classifiers have peer risk 0, and their clean risks differ by exactly |δ_p|."""
    joint = np.array([[0.2, 0.5], [0.1, 0.2]])
    constant = [np.array([0, 0]), np.array([1, 1])]
    assert [peer_risk(zero_one(f, 2), joint) for f in constant] == pytest.approx([0.0, 0.0], abs=1e-12)
    gap = abs(clean_risk(constant[0], joint) - clean_risk(constant[1], joint))
    assert gap == pytest.approx(suboptimality_bound(0.7), abs=1e-12)


@exact
@given(st.data())
def test_lemma_3(data):
    """The noisy peer 0-1 risk is 2(1 − Σe)p(1 − p)(R₋ + R₊ − 1) for every classifier."""
    joint, noise = data.draw(joints()), data.draw(binary_noises(1.0))
    prior = joint.sum(axis=0)
    for f in classifiers(len(joint), 2):
        error_neg = joint[f == 1, 0].sum() / prior[0]
        error_pos = joint[f == 0, 1].sum() / prior[1]
        expected = zero_one_peer_risk(min(error_neg, 1.0), min(error_pos, 1.0), noise, prior)
        assert peer_risk(zero_one(f, 2), noisy_joint(joint, noise)) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (
            lambda: peer_risk([[0.0, 1.0]], [[0.5, 0.2], [0.2, 0.1]]),
            "`losses` must have the shape of `joint`",
        ),
        (lambda: peer_risk([[0.0, 1.0]], [[0.5, 0.5]], alpha=np.nan), "`alpha` must be a finite number"),
        (lambda: peer_risk([[0.0, 1.0]], [[0.5, 0.6]]), "`joint` must be joint probabilities"),
        (
            lambda: noisy_joint([[0.5, 0.5]], NoiseModel.uniform(3, 0.1)),
            "`joint` must have one column for each",
        ),
        (lambda: suboptimality_bound([0.5, 0.6]), "`clean_prior` must be probabilities"),
        (lambda: zero_one_peer_risk(1.2, 0.1, np.eye(2), 0.5), "`error_neg` must lie in"),
        (lambda: zero_one_peer_risk(0.2, -0.1, np.eye(2), 0.5), "`error_pos` must lie in"),
        (lambda: zero_one_peer_risk(0.2, 0.1, np.eye(3), 0.5), "`noise` must have two classes"),
        (lambda: invariance_factor("none"), "`noise` must be a NoiseModel"),
    ],
)
def test_wrong_arguments_are_named(call, match):
    """Every refusal names the argument and what it expects."""
    with pytest.raises(InvalidInputError, match=match):
        call()
