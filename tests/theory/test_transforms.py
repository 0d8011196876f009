import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from peerloss.exceptions import InvalidInputError, NotIdentifiableError
from peerloss.noise import NoiseModel
from peerloss.theory import (
    FLIP_SYMMETRIC_BASES,
    SYMMETRIC_CURVATURE_BASES,
    calibration_transform,
    invert_transform,
    noisy_joint,
    optimal_alpha,
    peer_risk,
    peer_transform,
)
from tests.theory.finite_distributions import (
    MARGIN_LOSSES,
    binary_noises,
    binary_posteriors,
    exact,
    joints,
    score_losses,
    scores_of,
    small_alpha_cases,
    zero_one,
)

#: H(η) in closed form, for the exact minimum of an expected loss with non-negative weights.
LEAST_EXPECTED = {
    "logistic": lambda eta: -(eta * np.log(eta) + (1 - eta) * np.log1p(-eta)),
    "hinge": lambda eta: 2 * np.minimum(eta, 1 - eta),
    "squared": lambda eta: 2 * eta * (1 - eta),
    "margin_square": lambda eta: 4 * eta * (1 - eta),
    "sigmoid": lambda eta: np.minimum(eta, 1 - eta),
}


#: Signs and step of second differences on both sides of 0.
SIDES = ((1.0, 1e-2), (-1.0, 1e-2))


def least(function, low, high):
    """Minimum of a function of one margin on [low, high]: a fine grid, then a local search."""
    grid = np.linspace(low, high, 4001)
    values = function(grid)
    best = int(values.argmin())
    around = (grid[max(best - 1, 0)], grid[min(best + 1, 4000)])
    local = minimize_scalar(lambda m: float(function(np.array(m))), bounds=around, method="bounded")
    return min(float(values[best]), float(local.fun))


@pytest.mark.parametrize("base", sorted(MARGIN_LOSSES))
@pytest.mark.parametrize("theta", [0.0, 0.1, 0.37, 0.8, 1.0])
def test_transform_is_bartletts(base, theta):
    """ψ(θ) is H⁻(η) − H(η) at η = (1 + θ)/2, minimised numerically over margins."""
    phi, eta = MARGIN_LOSSES[base], (1 + theta) / 2

    def expected(m):
        return eta * phi(m) + (1 - eta) * phi(-m)

    psi = least(expected, -40.0, 0.0) - least(expected, -40.0, 40.0)
    if base == "zero_one" and theta == 0.0:
        psi = 0.0  # the tie at m = 0 counts as an error on both sides in this φ
    assert float(calibration_transform(base)(theta)) == pytest.approx(psi, abs=1e-10)


@pytest.mark.parametrize("base", sorted(MARGIN_LOSSES))
def test_transform_is_convex_increasing_and_zero_at_zero(base):
    """Definition 1 requires a convex, non-decreasing Ψ with Ψ(0) = 0."""
    values = calibration_transform(base)(np.linspace(0, 1, 201))
    assert values[0] == pytest.approx(0.0, abs=1e-12)
    assert (np.diff(values) > 0).all()
    assert (np.diff(values, 2) >= -1e-12).all()


def test_gce_meets_its_limits():
    """At q = 1 it is the sigmoid loss; q just below 1 is close to it and finite."""
    theta = np.linspace(0, 1, 11)
    np.testing.assert_allclose(calibration_transform("gce", q=1.0)(theta), theta / 2, atol=1e-12)
    np.testing.assert_allclose(calibration_transform("gce", q=1 - 1e-6)(theta), theta / 2, atol=1e-5)


def test_unhinged_has_no_transform():
    """It is not bounded below, and the message offers ramp."""
    with pytest.raises(NotIdentifiableError, match=r"`base` 'unhinged' has no calibration transform.*ramp"):
        calibration_transform("unhinged")


def test_the_named_bases_are_those_with_the_property():
    """Each tuple holds exactly the bases that have the property, found from the margin losses numerically.

    Condition 1 needs φ(m) + φ(−m) constant *and* φ bounded, so that a minimiser exists to be worst on flipped
    labels: ``unhinged`` has the first only. Condition 2 needs φ'' symmetric and never negative.
    """
    m = np.linspace(0.01, 30.0, 2000)
    losses = MARGIN_LOSSES | {"unhinged": lambda m: 1.0 - m}
    flip, curved = set(), set()
    for name, phi in losses.items():
        bounded = np.abs(phi(np.array([-500.0, 500.0]))).max() < 10
        flip |= {name} if np.ptp(phi(m) + phi(-m)) < 1e-9 and bounded else set()
        near = np.linspace(0.01, 5.0, 400)
        second, mirrored = (phi(s * near + h) - 2 * phi(s * near) + phi(s * near - h) for s, h in SIDES)
        convex = min(second.min(), mirrored.min()) > -1e-9
        curved |= {name} if convex and np.abs(second - mirrored).max() < 1e-9 else set()
    curved -= {"zero_one"}  # its steps lie between the points of the grid
    assert flip == set(FLIP_SYMMETRIC_BASES)
    assert curved == set(SYMMETRIC_CURVATURE_BASES)


@exact
@given(joints(), binary_noises(0.9), st.floats(-1.0, 0.95))
def test_the_square_loss_has_a_minimum_for_every_alpha_below_one(joint, noise, alpha):
    """The expected peer loss of (1 − t)² at each point is a parabola that opens upwards."""
    noisy = noisy_joint(joint, noise)
    points, posterior = binary_posteriors(noisy)
    gain = 2 * posterior - 1 - alpha * (2 * noisy[:, 1].sum() - 1)
    best = gain / (1 - alpha)
    least_risk = (points * (1 - alpha) * (1 - best**2)).sum()
    for step in (-1.0, -0.1, 0.0, 0.1, 1.0):
        losses = score_losses(MARGIN_LOSSES["margin_square"], best + step)
        expected = least_risk + (1 - alpha) * step**2
        assert peer_risk(losses, noisy, alpha=alpha) == pytest.approx(expected, abs=1e-9)


def excess_risks(joint, noise, alpha, base, scores):
    """Noisy α-peer risk of scores, and excess noisy α-peer 0-1 risk of their signs."""
    noisy = noisy_joint(joint, noise)
    surrogate = peer_risk(score_losses(MARGIN_LOSSES[base], scores), noisy, alpha=alpha)
    points, posterior = binary_posteriors(noisy)
    gain = posterior - alpha * noisy[:, 1].sum() - ((1 - posterior) - alpha * noisy[:, 0].sum())
    signs = (scores > 0).astype(int)
    best = (gain > 0).astype(int)
    u = peer_risk(zero_one(signs, 2), noisy, alpha=alpha) - peer_risk(zero_one(best, 2), noisy, alpha=alpha)
    return surrogate, max(u, 0.0), points, gain


@exact
@given(st.data())
@pytest.mark.parametrize("base", FLIP_SYMMETRIC_BASES)
def test_theorem_6_condition_1(base, data):
    """At p = ½, α = 1, a base with ℓ(f, −y) = C − ℓ(f, y): Ψ_peer(u) is at most the excess peer loss."""
    joint, noise = data.draw(joints(balanced=True)), data.draw(binary_noises(0.9))
    scores = data.draw(scores_of(joint))
    surrogate, u, points, gain = excess_risks(joint, noise, 1.0, base, scores)
    constant = 2.0 if base == "mae" else 1.0
    least_risk = -(points * np.abs(gain) / 2).sum() * constant  # weights ±gain/2 on φ(β) and φ(−β)
    transform = peer_transform(calibration_transform(base), noise, alpha=1.0)
    assert float(transform(u)) <= surrogate - least_risk + 1e-12


@exact
@given(st.data())
@pytest.mark.parametrize("base", sorted(LEAST_EXPECTED))
def test_theorem_6_condition_2(base, data):
    """α = α* ≤ Σe: Ψ_peer(u) is at most the excess expected peer loss, its minimum in closed form."""
    joint, noise, wanted = data.draw(small_alpha_cases())
    scores = data.draw(scores_of(joint))
    alpha = optimal_alpha(noise, joint.sum(axis=0))
    assert alpha == pytest.approx(wanted, abs=1e-9)
    surrogate, u, points, gain = excess_risks(joint, noise, alpha, base, scores)
    eta = (1 + gain / (1 - alpha)) / 2
    assert ((eta >= -1e-9) & (eta <= 1 + 1e-9)).all()
    least_risk = (1 - alpha) * (points * LEAST_EXPECTED[base](np.clip(eta, 1e-300, 1 - 1e-16))).sum()
    transform = peer_transform(calibration_transform(base), noise, alpha=alpha)
    assert float(transform(u)) <= surrogate - least_risk + 1e-12


def test_peer_transform_cannot_be_improved():
    """Two points of equal confidence, scores a hair on the wrong side: the inequality is an equality."""
    noise, alpha = NoiseModel.binary(0.3, 0.3), 0.0
    joint = np.array([[0.4, 0.1], [0.1, 0.4]])
    scores = np.array([1e-9, -1e-9])
    surrogate, u, points, gain = excess_risks(joint, noise, alpha, "logistic", scores)
    least_risk = (points * LEAST_EXPECTED["logistic"]((1 + gain) / 2)).sum()
    transform = peer_transform(calibration_transform("logistic"), noise, alpha=alpha)
    assert float(transform(u)) == pytest.approx(surrogate - least_risk, abs=1e-9)


def test_peer_transform_between_the_sum_of_rates_and_one():
    """Σe < α* < 1, points of low confidence: the logistic inequality holds, and beyond 1 − α it is +∞."""
    noise, joint = NoiseModel.binary(0.1, 0.3), np.array([[0.30, 0.20], [0.25, 0.25]])
    alpha = optimal_alpha(noise, 0.45)
    assert noise.sum_of_rates < alpha < 1
    transform = peer_transform(calibration_transform("logistic"), noise, alpha=alpha)
    for scores in (np.array([2.0, -1.0]), np.array([0.1, 3.0]), np.array([-0.5, 0.5])):
        surrogate, u, points, gain = excess_risks(joint, noise, alpha, "logistic", scores)
        eta = (1 + gain / (1 - alpha)) / 2
        least_risk = (1 - alpha) * (points * LEAST_EXPECTED["logistic"](eta)).sum()
        assert float(transform(u)) <= surrogate - least_risk + 1e-12
    assert float(transform(1 - alpha + 0.01)) == np.inf
    assert np.isfinite(transform(1 - alpha))


def test_peer_transform_at_one_is_the_papers():
    """At α = 1: (1/c)·Ψ(u/(1 − Σe)) with c = 2/(1 − Σe); a rounded α* counts as 1."""
    noise = NoiseModel.binary(0.1, 0.3)
    u = np.array([0.0, 0.2, 0.6])
    for alpha in (1.0, 1.0 - 1e-13, 1.0 + 1e-13):
        values = peer_transform(calibration_transform("logistic"), noise, alpha=alpha)(u)
        np.testing.assert_allclose(values, 0.3 * calibration_transform("logistic")(u / 0.6), atol=1e-12)


@exact
@given(st.floats(0.0, 1.0), st.sampled_from(sorted(MARGIN_LOSSES)))
def test_inverse_undoes_the_transform(theta, base):
    """Ψ(Ψ⁻¹(v)) = v inside the range."""
    psi = calibration_transform(base)
    value = float(psi(theta))
    assert float(psi(invert_transform(psi, value))) == pytest.approx(value, abs=1e-12)


def test_inverse_saturates_and_stops_at_jumps():
    """Above Ψ(upper) it returns upper; over a jump to +∞ it returns the place of the jump; at 0 it is 0."""
    psi = peer_transform(calibration_transform("squared"), NoiseModel.binary(0.1, 0.1), alpha=0.5)
    assert invert_transform(psi, 0.26, upper=0.8) == pytest.approx(0.5, abs=1e-9)
    assert invert_transform(calibration_transform("hinge"), 2.0) == 1.0
    assert invert_transform(calibration_transform("hinge"), 0.9, upper=0.7) == 0.7
    assert invert_transform(calibration_transform("logistic"), 0.0) == 0.0


def test_alpha_above_one_has_no_peer_transform():
    """Theorem 6 covers no α > 1."""
    with pytest.raises(NotIdentifiableError, match="`alpha` must be at most 1"):
        peer_transform(calibration_transform("hinge"), np.eye(2), alpha=1.5)


def test_uninformative_noise_has_no_peer_transform():
    """Σe ≥ 1 is refused."""
    with pytest.raises(NotIdentifiableError, match="`noise` must be informative"):
        peer_transform(calibration_transform("hinge"), NoiseModel.binary(0.5, 0.6), alpha=1.0)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: calibration_transform("focal"), "`base` must be one of"),
        (lambda: calibration_transform("gce", q=0.0), "`q` must lie in"),
        (lambda: calibration_transform("hinge")(1.2), "`theta` must lie in"),
        (lambda: calibration_transform("hinge")([0.2, -0.2]), "`theta` must lie in"),
        (lambda: peer_transform(np.abs, np.eye(2), alpha=np.nan), "`alpha` must be a finite number"),
        (lambda: peer_transform(np.abs, np.eye(2), alpha=1.0)(-0.1), "`u` must be an excess risk"),
        (lambda: invert_transform(np.abs, -1.0), "`value` must be zero or positive"),
        (lambda: invert_transform(np.abs, 1.0, upper=0.0), "`upper` must be positive"),
    ],
)
def test_wrong_arguments_are_named(call, match):
    """Every refusal names the argument and what it expects."""
    with pytest.raises(InvalidInputError, match=match):
        call()
