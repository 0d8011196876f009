import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from peerloss.exceptions import InvalidInputError, NotIdentifiableError
from peerloss.noise import NoiseModel
from peerloss.theory import (
    calibration_condition,
    convexity_condition,
    noisy_joint,
    optimal_alpha,
    peer_risk,
)
from tests.theory.finite_distributions import MARGIN_LOSSES, binary_noises, exact, joints, score_losses

NOISE = NoiseModel.binary(0.1, 0.3)


def risk(base, scores, joint, noise, alpha):
    """Compute the expected noisy α-peer loss of scores."""
    return peer_risk(score_losses(MARGIN_LOSSES[base], scores), noisy_joint(joint, noise), alpha=alpha)


def test_condition_1():
    """Condition 1 holds with α = 1, p = ½ and the caller's assurance, and not without any of them."""
    report = calibration_condition(NOISE, 0.5, alpha=1.0, worst_on_flipped=True)
    assert (report.holds, report.condition) == (True, 1)
    unknown = calibration_condition(NOISE, 0.5, alpha=1.0)
    assert not unknown.holds
    assert "unknown" in unknown.reasons[0]
    assert "needs α = 1" in calibration_condition(NOISE, 0.5, alpha=0.9, worst_on_flipped=True).reasons[0]
    assert "needs p = ½" in calibration_condition(NOISE, 0.4, alpha=1.0, worst_on_flipped=True).reasons[0]
    assert "must be worst" in calibration_condition(NOISE, 0.5, alpha=1.0, worst_on_flipped=False).reasons[0]


@exact
@given(binary_noises(0.9), st.floats(0.05, 0.95))
def test_condition_2_is_alpha_star(noise, p):
    """With rates below ½ and symmetric curvature, condition 2 holds at α* < 1 and nowhere near it."""
    noisy = noise.noisy_prior(p)
    assume(abs(noisy[1] - noisy[0]) > 1e-2)
    assume(max(noise.e_neg, noise.e_pos) < 0.499)
    alpha = optimal_alpha(noise, p)
    assume(alpha < 0.98)
    report = calibration_condition(noise, p, alpha=alpha)
    assert (report.holds, report.condition) == (True, 2)
    assert convexity_condition(noise, p, alpha=alpha).holds
    elsewhere = calibration_condition(noise, p, alpha=alpha + 0.01)
    assert not elsewhere.holds
    assert "needs α = α*" in elsewhere.reasons[1]


def test_condition_2_names_what_is_missing():
    """Each unmet part of condition 2 appears in the reasons."""
    noise = NoiseModel.binary(0.1, 0.6)
    reason = calibration_condition(noise, 0.2, alpha=1.5, symmetric_curvature=False).reasons[1]
    for part in ("needs α < 1", "needs rates under ½", "ℓ''(t, y) = ℓ''(t, −y)", "needs α = α*"):
        assert part in reason


@exact
@given(st.data())
def test_expected_peer_loss_is_a_margin_loss_at_alpha_star(data):
    """At α* it is E[c₁φ(βY) + c₂φ(−βY)] with c₁ = (2 − α − Σe)/2 and c₂ = (Σe − α)/2, for any φ."""
    joint, noise = data.draw(joints()), data.draw(binary_noises(0.9))
    prior = joint.sum(axis=0)
    noisy = noise.noisy_prior(prior)
    assume(abs(noisy[1] - noisy[0]) > 1e-2)
    alpha, total = optimal_alpha(noise, prior), noise.sum_of_rates
    scores = np.array(data.draw(st.lists(st.floats(-3, 3), min_size=len(joint), max_size=len(joint))))
    losses = score_losses(MARGIN_LOSSES["logistic"], scores)
    first, second = (2 - alpha - total) / 2, (total - alpha) / 2
    varphi = (joint * (first * losses + second * losses[:, ::-1])).sum()
    assert risk("logistic", scores, joint, noise, alpha) == pytest.approx(varphi, abs=1e-11)


@exact
@given(binary_noises(0.9), st.floats(0.05, 0.95))
def test_bounded_below_at_alpha_star_means_alpha_up_to_the_sum_of_rates(noise, p):
    """Our condition e_neg ≥ απ̃₁, e_pos ≥ απ̃₀ reduces to α* ≤ Σe."""
    noisy = noise.noisy_prior(p)
    assume(abs(noisy[1] - noisy[0]) > 1e-2)
    alpha = optimal_alpha(noise, p)
    assume(abs(alpha - noise.sum_of_rates) > 1e-9)
    assert calibration_condition(noise, p, alpha=alpha).bounded_below == (alpha <= noise.sum_of_rates)


def test_condition_2_as_printed_is_not_enough_for_an_unbounded_loss():
    """At p = .45, rates .1/.3, α* = .77 > Σe: condition 2 holds, but the logistic risk is unbounded below."""
    joint = np.array([[0.55, 0.0], [0.0, 0.45]])
    alpha = optimal_alpha(NOISE, 0.45)
    report = calibration_condition(NOISE, 0.45, alpha=alpha)
    assert (report.holds, report.condition, report.bounded_below) == (True, 2, False)
    assert "no minimum" in report.reasons[-1]
    risks = [
        risk("logistic", np.array([-s, s]), joint, NOISE, alpha) for s in (10.0, 100.0, 1000.0, 10_000.0)
    ]
    assert (np.diff(risks) < 0).all()
    assert risks[-1] < -1000


@exact
@given(st.data())
@pytest.mark.parametrize("base", ["logistic", "hinge"])
def test_bounded_below_is_never_below_zero(base, data):
    """If the report states it, the expected peer loss of a φ ≥ 0 is ≥ 0 at any scores, for any α."""
    joint, noise, alpha = data.draw(joints()), data.draw(binary_noises(0.9)), data.draw(st.floats(-1, 1))
    assume(calibration_condition(noise, joint.sum(axis=0), alpha=alpha).bounded_below)
    scores = np.array(data.draw(st.lists(st.floats(-50, 50), min_size=len(joint), max_size=len(joint))))
    assert risk(base, scores, joint, noise, alpha) >= -1e-12


@pytest.mark.parametrize(("p", "e_neg", "e_pos"), [(0.2, 0.3, 0.1), (0.8, 0.1, 0.3)])
def test_one_negative_weight_is_enough_to_lose_the_bound(p, e_neg, e_pos):
    """Away from α*, either class alone can make the risk unbounded below, and the report detects both."""
    noise, joint = NoiseModel.binary(e_neg, e_pos), np.array([[1 - p, 0.0], [0.0, p]])
    weights = np.array([e_pos, e_neg]) - 0.5 * noise.noisy_prior(p)
    assert (weights < 0).sum() == 1
    assert not calibration_condition(noise, p, alpha=0.5).bounded_below
    pushed = [np.array([-1e4, 0.0]), np.array([0.0, 1e4])]  # one confident point at a time, the right way
    assert min(risk("logistic", scores, joint, noise, 0.5) for scores in pushed) < -100


@exact
@given(st.data())
def test_lemma_4_and_our_wider_rule(data):
    """If the logistic loss is reported convex, the midpoint of any two scores lies below the chord."""
    joint, noise, alpha = data.draw(joints()), data.draw(binary_noises(0.9)), data.draw(st.floats(-2, 1))
    report = convexity_condition(noise, joint.sum(axis=0), alpha=alpha)
    assert report.convex
    vectors = st.lists(st.floats(-6, 6), min_size=len(joint), max_size=len(joint)).map(np.array)
    first, second = data.draw(vectors), data.draw(vectors)
    middle, start, end = (
        risk("logistic", s, joint, noise, alpha) for s in ((first + second) / 2, first, second)
    )
    assert middle <= (start + end) / 2 + 1e-12


@exact
@given(st.data())
def test_curvature_factor_is_what_the_peer_term_leaves(data):
    """E[second derivative] is (1 − α)·E[σ(1 − σ)] for the logistic loss, for every noise, prior and α."""
    joint, noise, alpha = data.draw(joints()), data.draw(binary_noises(0.9)), data.draw(st.floats(-3, 3))
    scores = np.array(data.draw(st.lists(st.floats(-6, 6), min_size=len(joint), max_size=len(joint))))
    sigma = 1 / (1 + np.exp(-scores))
    second = np.repeat((sigma * (1 - sigma))[:, None], 2, axis=1)  # the same for both labels
    factor = convexity_condition(noise, joint.sum(axis=0), alpha=alpha).curvature_factor
    plain = float((joint.sum(axis=1) * second[:, 0]).sum())
    value = peer_risk(second, noisy_joint(joint, noise), alpha=alpha)
    assert value == pytest.approx(factor * plain, abs=1e-12)


def test_above_one_the_risk_is_concave():
    """α = 1.5: the report denies convexity and the chord lies below the curve."""
    joint = np.array([[0.3, 0.2], [0.2, 0.3]])
    report = convexity_condition(NOISE, 0.5, alpha=1.5)
    assert (report.holds, report.convex, report.curvature_factor) == (False, False, -0.5)
    ends = [np.array([-2.0, -2.0]), np.array([2.0, 2.0])]
    chord = np.mean([risk("logistic", s, joint, NOISE, 1.5) for s in ends])
    assert risk("logistic", np.zeros(2), joint, NOISE, 1.5) > chord + 0.1


def test_hinge_needs_weights_that_are_not_negative():
    """Without symmetric curvature: convex if e_k ≥ απ̃_k, not convex at an α < 1 beyond that."""
    joint = np.array([[0.5, 0.0], [0.0, 0.5]])
    grid = np.linspace(-4, 4, 161)
    for alpha, convex in ((0.2, True), (0.9, False)):
        report = convexity_condition(NOISE, 0.5, alpha=alpha, symmetric_curvature=False)
        assert report.convex == convex
        values = [risk("hinge", np.array([-s, s]), joint, NOISE, alpha) for s in grid]
        assert (np.diff(values, 2).min() >= -1e-12) == convex


def test_reasons_say_when_the_lemma_asks_too_much():
    """Lemma 4 fails although the risk is convex, and the reasons explain it."""
    by_curvature = convexity_condition(NOISE, 0.5, alpha=0.5).reasons
    assert "symmetric curvature suffices" in by_curvature[1]
    by_weights = convexity_condition(NOISE, 0.5, alpha=0.2, symmetric_curvature=False).reasons
    assert "e_neg ≥ α·π̃₁" in by_weights[1]
    assert convexity_condition(NOISE, 0.45, alpha=optimal_alpha(NOISE, 0.45)).reasons == (
        "The condition of Lemma 4 holds.",
    )


@pytest.mark.parametrize("function", [calibration_condition, convexity_condition])
def test_wrong_arguments_are_named(function):
    """Every refusal names the argument and what it expects."""
    with pytest.raises(InvalidInputError, match="`noise` must have two classes"):
        function(np.eye(3), 0.5, alpha=1.0)
    with pytest.raises(InvalidInputError, match="`alpha` must be a finite number"):
        function(NOISE, 0.5, alpha="auto")
    with pytest.raises(InvalidInputError, match="`clean_prior` must lie in"):
        function(NOISE, 1.5, alpha=1.0)
    with pytest.raises(NotIdentifiableError, match="`noise` must be informative"):
        function(NoiseModel.binary(0.5, 0.6), 0.5, alpha=1.0)
