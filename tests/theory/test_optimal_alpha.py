import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from peerloss.exceptions import InvalidInputError, NotIdentifiableError
from peerloss.noise import NoiseModel
from peerloss.theory import (
    clean_risk_difference,
    noisy_joint,
    optimal_alpha,
    optimal_alpha_as_printed,
    optimal_alpha_from_noisy_prior,
    peer_decision,
    peer_risk,
    peer_threshold,
)
from tests.theory.finite_distributions import (
    binary_noises,
    classifiers,
    clean_risk,
    exact,
    joints,
    minimisers,
    zero_one,
)


def noisy_delta(noise, prior):
    """δ_p̃."""
    noisy = noise.noisy_prior(prior)
    return float(noisy[1] - noisy[0])


def check_theorem_4(joint, noise, picked=None):
    """Compare the argmin sets of α*-peer risk and clean risk; return α*."""
    k = joint.shape[1]
    every = classifiers(len(joint), k)
    every = every if picked is None else [every[i] for i in picked]
    alpha = optimal_alpha(noise, joint.sum(axis=0))
    noisy = noisy_joint(joint, noise)
    peer = np.array([peer_risk(zero_one(f, k), noisy, alpha=alpha) for f in every])
    clean = np.array([clean_risk(f, joint) for f in every])
    scale = 1.0 - noise.sum_of_rates
    # Proposition 1, in the noisy scale so that 1e-12 is the accuracy of the enumeration itself.
    np.testing.assert_allclose(peer - peer[0], scale * (clean - clean[0]), atol=1e-12)
    assert minimisers(peer, 1e-11 * scale) == minimisers(clean, 1e-11)
    return alpha


@exact
@given(st.data())
def test_theorem_4_and_proposition_1_over_all_classifiers(data):
    """At α* noisy peer risks differ as clean risks do, times 1 − Σe, and have the same minimisers."""
    joint, noise = data.draw(joints()), data.draw(binary_noises(0.9))
    assume(abs(noisy_delta(noise, joint.sum(axis=0))) > 0.01)
    check_theorem_4(joint, noise)


@exact
@given(st.data())
def test_theorem_4_in_restricted_classes(data):
    """The same inside any class F, Bayes classifier in it or not."""
    joint, noise = data.draw(joints()), data.draw(binary_noises(0.9))
    assume(abs(noisy_delta(noise, joint.sum(axis=0))) > 0.01)
    picked = data.draw(st.lists(st.integers(0, 2 ** len(joint) - 1), min_size=2, max_size=6, unique=True))
    check_theorem_4(joint, noise, picked)


@pytest.mark.parametrize(
    ("p", "e_neg", "e_pos", "low", "high"),
    [(0.9, 0.1, 0.3, -0.72, -0.71), (0.55, 0.1, 0.4, 1.1, 1.3), (0.3, 0.1, 0.3, 0.45, 0.46)],
)
def test_theorem_4_at_negative_large_and_middling_alpha(p, e_neg, e_pos, low, high):
    """α* < 0, α* > 1 and 0 < α* < 1 all keep the clean minimisers."""
    inputs = np.array([[0.6, 0.1], [0.3, 0.4], [0.1, 0.5]])
    joint = inputs * np.array([1 - p, p])
    assert low < check_theorem_4(joint, NoiseModel.binary(e_neg, e_pos)) < high


@exact
@given(binary_noises(0.95), st.floats(0.0, 1.0))
def test_both_forms_of_alpha_star_are_equal(noise, p):
    """(e_neg − e_pos)/δ_p̃ is the paper's 1 − (1 − Σe)·δ_p/δ_p̃."""
    delta = noisy_delta(noise, p)
    assume(abs(delta) > 1e-3)
    ours, printed = optimal_alpha(noise, p), optimal_alpha_as_printed(noise, p)
    assert ours * delta == pytest.approx(printed * delta, abs=1e-12)
    assert ours == pytest.approx((noise.e_neg - noise.e_pos) / delta, abs=1e-12 / abs(delta))


@exact
@given(binary_noises(0.9), st.floats(0.05, 0.95))
def test_remarks_on_alpha_star(noise, p):
    """Remark 1: p = ½ gives 1; remark 3: α* > 1 if and only if noise reverses the majority."""
    assume(abs(noise.e_neg - noise.e_pos) > 1e-3)
    assert optimal_alpha(noise, 0.5) == 1.0
    assert optimal_alpha_from_noisy_prior(noise, noise.noisy_prior(0.5)) == pytest.approx(1.0, abs=1e-9)
    delta = noisy_delta(noise, p)
    assume(abs(delta) > 1e-3)
    assume(abs(2 * p - 1) > 1e-3)
    assert (optimal_alpha(noise, p) > 1.0) == ((2 * p - 1) * delta < 0)


def test_equal_rates():
    """Remark 2: α* = 0; and with balanced noisy labels every α is optimal, reported as 1."""
    noise = NoiseModel.binary(0.2, 0.2)
    assert optimal_alpha(noise, 0.3) == pytest.approx(0.0, abs=1e-12)
    assert optimal_alpha(noise, 0.5) == 1.0
    assert optimal_alpha_as_printed(noise, 0.5) == 1.0
    assert optimal_alpha_as_printed(noise, 0.3) == pytest.approx(0.0, abs=1e-12)


def test_balanced_noisy_labels_with_unequal_rates_have_no_alpha_star():
    """δ_p̃ = 0 and e_neg ≠ e_pos: no α; the message names the paper's downsampling remark."""
    noise = NoiseModel.binary(0.1, 0.3)  # P(noisy 1) = 0.1 + 0.6·p = 0.5 at p = 2/3
    for function in (optimal_alpha, optimal_alpha_as_printed):
        with pytest.raises(NotIdentifiableError, match=r"`noise` has no α\*.*downsample"):
            function(noise, 2 / 3)
    with pytest.raises(NotIdentifiableError, match=r"`noise` has no α\*"):
        optimal_alpha_from_noisy_prior(noise, 0.5)


@exact
@given(st.data())
def test_alpha_star_for_balanced_classes_is_one(data):
    """K balanced clean classes and unequal e_j: α* = 1 and Theorem 4 holds."""
    rates = np.array(data.draw(st.lists(st.floats(0.01, 0.28), min_size=3, max_size=3)))
    assume(np.ptp(rates) > 1e-3)
    noise = NoiseModel((1 - rates.sum()) * np.eye(3) + rates)
    joint = data.draw(joints(3, balanced=True))
    assert check_theorem_4(joint, noise) == pytest.approx(1.0, abs=1e-9)


@exact
@given(joints(3), st.floats(0.0, 0.6))
def test_alpha_star_for_uniform_noise_is_zero(joint, rate):
    """K unbalanced classes and uniform noise: α* = 0 and Theorem 4 holds."""
    assume(np.ptp(joint.sum(axis=0)) > 1e-3)
    assert check_theorem_4(joint, NoiseModel.uniform(3, rate)) == pytest.approx(0.0, abs=1e-9)


@exact
@given(joints(3), st.floats(0.2, 0.8))
def test_alpha_star_for_rates_in_line_with_the_prior(joint, strength):
    """If e = c·π then π̃ is π too and α* = c: an α* strictly between, for three classes."""
    prior = joint.sum(axis=0)
    assume(np.ptp(prior) > 0.01)
    noise = NoiseModel((1 - strength) * np.eye(3) + strength * prior)
    assert check_theorem_4(joint, noise) == pytest.approx(strength, abs=1e-9)


def test_alpha_star_for_three_classes_usually_does_not_exist():
    """Unequal e_j and unequal priors not in line: no α, as the message explains."""
    rates = np.array([0.05, 0.1, 0.3])
    noise = NoiseModel((1 - rates.sum()) * np.eye(3) + rates)
    with pytest.raises(NotIdentifiableError, match=r"`noise` and the noisy prior admit no α\*"):
        optimal_alpha(noise, [0.5, 0.2, 0.3])
    assert optimal_alpha(NoiseModel.uniform(3, 0.3), np.full(3, 1 / 3)) == 1.0


@exact
@given(st.data())
def test_plug_in_rule_minimises_the_enumerated_peer_risk(data):
    """argmax_k (η̃_k − απ̃_k) reaches the minimum over all classifiers, for any α and 2 or 3 classes."""
    k = data.draw(st.integers(2, 3))
    noisy = data.draw(joints(k))
    alpha = data.draw(st.floats(-2.0, 3.0))
    posterior, prior = noisy / noisy.sum(axis=1, keepdims=True), noisy.sum(axis=0)
    chosen = peer_decision(posterior, alpha, prior)
    risks = [peer_risk(zero_one(f, k), noisy, alpha=alpha) for f in classifiers(len(noisy), k)]
    assert peer_risk(zero_one(chosen, k), noisy, alpha=alpha) == pytest.approx(min(risks), abs=1e-12)
    if k == 2:
        threshold = peer_threshold(alpha, prior)
        clear = np.abs(posterior[:, 1] - threshold) > 1e-9
        assert (chosen == (posterior[:, 1] > threshold))[clear].all()


@exact
@given(binary_noises(0.9), st.floats(0.05, 0.95))
def test_threshold_at_one_and_at_alpha_star(noise, p):
    """The threshold is the noisy prior at α = 1 and the Bayes threshold (1 + e_neg − e_pos)/2 at α*."""
    noisy = noise.noisy_prior(p)
    assert peer_threshold(1.0, noisy) == pytest.approx(noisy[1], abs=1e-12)
    assume(abs(noisy[1] - noisy[0]) > 1e-3)
    bayes = (1 + noise.e_neg - noise.e_pos) / 2
    assert peer_threshold(optimal_alpha(noise, p), noisy) == pytest.approx(bayes, abs=1e-12)


def test_clean_risk_difference_is_proposition_1():
    """A difference of α*-peer risks divided by 1 − Σe is the difference of clean risks."""
    joint, noise = np.array([[0.3, 0.1], [0.1, 0.1], [0.1, 0.3]]), NoiseModel.binary(0.1, 0.3)
    joint = joint * np.array([1.2, 0.8]) / (joint * np.array([1.2, 0.8])).sum()
    alpha = optimal_alpha(noise, joint.sum(axis=0))
    f, g = np.array([0, 0, 1]), np.array([1, 0, 1])
    noisy = noisy_joint(joint, noise)
    peer = [peer_risk(zero_one(h, 2), noisy, alpha=alpha) for h in (f, g)]
    expected = clean_risk(f, joint) - clean_risk(g, joint)
    assert clean_risk_difference(peer[0] - peer[1], noise) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("noise", [NoiseModel.binary(0.5, 0.5), NoiseModel.binary(0.7, 0.6)])
def test_uninformative_noise_is_refused(noise):
    """Σe ≥ 1: no α* and no clean risk, and the message advises to swap the codes."""
    for call in (
        lambda: optimal_alpha(noise, 0.3),
        lambda: optimal_alpha_as_printed(noise, 0.3),
        lambda: clean_risk_difference(0.1, noise),
    ):
        with pytest.raises(NotIdentifiableError, match=r"`noise` must be informative.*swap"):
            call()


def test_pair_flip_has_no_alpha_star():
    """If no e_j exist there is no α*."""
    with pytest.raises(NotIdentifiableError, match="`noise` must satisfy"):
        optimal_alpha(NoiseModel.pair_flip(3, 0.2), [0.3, 0.3, 0.4])


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: optimal_alpha(np.eye(2), [0.2, 0.3, 0.5]), "`clean_prior` must have 2 entries"),
        (lambda: optimal_alpha_from_noisy_prior(np.eye(2), 1.5), "`noisy_prior` must lie in"),
        (lambda: optimal_alpha_as_printed(np.eye(3), 0.5), "`noise` must have two classes"),
        (lambda: peer_threshold(np.inf, 0.5), "`alpha` must be a finite number.*optimal_alpha"),
        (lambda: peer_threshold(1.0, [0.2, 0.3, 0.5]), "`noisy_prior` must have 2 entries"),
        (lambda: peer_decision([[0.5, 0.5]], None, 0.5), "`alpha` must be a finite number"),
        (lambda: peer_decision([0.5, 0.5], 1.0, 0.5), "`noisy_posterior` must have 2 dimension"),
        (lambda: peer_decision([[0.5, 0.5]], 1.0, [0.2, 0.3, 0.5]), "`noisy_posterior` must have one column"),
        (lambda: clean_risk_difference("much", np.eye(2)), "`peer_risk_difference` must be a finite number"),
    ],
)
def test_wrong_arguments_are_named(call, match):
    """Every refusal names the argument and what it expects."""
    with pytest.raises(InvalidInputError, match=match):
        call()
