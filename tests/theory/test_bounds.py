import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from peerloss.exceptions import InvalidInputError, NotIdentifiableError
from peerloss.noise import NoiseModel
from peerloss.theory import (
    calibration_transform,
    deviation_bound,
    excess_risk_bound,
    generalization_bound,
    optimal_alpha,
    peer_transform,
    required_samples,
)
from tests.theory.finite_distributions import binary_noises, exact

NOISE = NoiseModel.binary(0.1, 0.3)


@exact
@given(
    binary_noises(0.9), st.floats(-3, 3), st.floats(0.01, 2.0), st.floats(0.01, 0.999), st.integers(1, 10**6)
)
def test_required_samples_inverts_the_bound(noise, alpha, excess, confidence, size):
    """N is the smallest with bound(N) ≤ excess < bound(N − 1)."""
    arguments = {"alpha": alpha, "confidence": confidence, "n_hypotheses": size}
    n = required_samples(excess, noise, **arguments)
    assert excess_risk_bound(n, noise, **arguments) <= excess
    if n > 1:
        assert excess_risk_bound(n - 1, noise, **arguments) > excess


def test_required_samples_of_a_bound_is_its_n():
    """A request for exactly bound(N) returns N, whichever way the square rounds."""
    for n in range(1, 3000):
        assert required_samples(excess_risk_bound(n, NOISE, alpha=0.5), NOISE, alpha=0.5) == n


@pytest.mark.parametrize("excess", [3e-12, 1e-20, 1e-45])
def test_required_samples_of_tiny_excesses(excess):
    """N is the square of the constant over the excess to float precision, also where sqrt(N) is inexact."""
    n = required_samples(excess, NOISE, alpha=0.5)
    constant = Fraction(excess_risk_bound(1, NOISE, alpha=0.5))
    assert float(n / (constant / Fraction(excess)) ** 2) == pytest.approx(1.0, rel=1e-14)
    assert constant / math.sqrt(n) <= excess < constant / math.sqrt(n - 1)


def test_bound_is_twice_hoeffdings_deviation():
    """(1 − Σe)·bound/2 is the Hoeffding deviation for a span of 1 + |α| and |F| hypotheses."""
    for alpha, size in ((0.4545, 1), (-0.7, 16), (2.0, 3)):
        hoeffding = (1 + abs(alpha)) * math.sqrt(math.log(2 * size / 0.05) / (2 * 400))
        bound = excess_risk_bound(400, NOISE, alpha=alpha, n_hypotheses=size)
        assert bound * 0.6 / 2 == pytest.approx(hoeffding, rel=1e-12)


def test_bound_is_monotone():
    """More data helps; more noise, |α|, confidence and hypotheses hurt; α and −α give the same bound."""
    base = excess_risk_bound(1000, NOISE, alpha=0.5)
    assert excess_risk_bound(1001, NOISE, alpha=0.5) < base
    assert excess_risk_bound(1000, NoiseModel.binary(0.2, 0.3), alpha=0.5) > base
    assert excess_risk_bound(1000, NOISE, alpha=0.6) > base
    assert excess_risk_bound(1000, NOISE, alpha=-0.5) == base
    assert excess_risk_bound(1000, NOISE, alpha=0.5, confidence=0.99) > base
    assert excess_risk_bound(1000, NOISE, alpha=0.5, n_hypotheses=2) > base


@pytest.mark.parametrize("alpha", [1.0, 0.45, -0.7, 2.0])
@pytest.mark.parametrize("confidence", [0.3, 0.6, 0.95])
def test_deviation_of_one_classifier_by_exact_enumeration(alpha, confidence):
    """One f, peers drawn afresh: P(|R̂ − R| > half the bound·(1 − Σe)) ≤ δ, summed over all outcomes."""
    joint = np.array([[0.35, 0.15], [0.10, 0.40]])  # P(f = row, noisy label = column)
    wrong, by_chance = joint[0, 1] + joint[1, 0], 0.5 * 0.55 + 0.5 * 0.45
    cells = {
        (a, b): (wrong if a else 1 - wrong) * (by_chance if b else 1 - by_chance)
        for a in (0, 1)
        for b in (0, 1)
    }
    values = np.array([a - alpha * b for a, b in cells])
    chances = np.array(list(cells.values()))
    n = 14
    limit = excess_risk_bound(n, NOISE, alpha=alpha, confidence=confidence) * 0.6 / 2
    failure = 0.0
    for counts in itertools.product(range(n + 1), repeat=3):
        if sum(counts) <= n:
            full = np.array([*counts, n - sum(counts)])
            if abs(full @ values / n - chances @ values) > limit:
                ways = math.factorial(n) // math.prod(math.factorial(int(c)) for c in full)
                failure += ways * float(np.prod(chances**full))
    assert failure <= 1 - confidence


def test_one_hypothesis_is_not_enough_for_a_minimiser():
    """The printed log(2/δ) fails for a chosen f: 2^N classifiers fit pure noise; log(2|F|/δ) holds."""
    n, confidence = (
        12,
        0.1,
    )  # every label a fair coin, F all sign patterns: the empirical risk of the chosen is 0
    gap = 0.5
    noiseless = np.eye(2)
    assert excess_risk_bound(n, noiseless, alpha=0.0, confidence=confidence) / 2 < gap
    assert excess_risk_bound(n, noiseless, alpha=0.0, confidence=confidence, n_hypotheses=2**n) / 2 > gap


def test_deviation_bound_formula_and_monotonicity():
    """Appendix Lemma 3: 2(1+|α|)Lℜ + sqrt(log(4/δ)/2N)(1+(1+|α|)range), growing in everything but N."""
    arguments = {"alpha": -0.5, "lipschitz": 2.0, "rademacher": 0.03, "loss_range": 1.7}
    tail = math.sqrt(math.log(4 / 0.05) / (2 * 500))
    expected = 2 * 1.5 * 2.0 * 0.03 + tail * (1 + 1.5 * 1.7)
    base = deviation_bound(500, **arguments)
    assert base == pytest.approx(expected, rel=1e-12)
    assert deviation_bound(501, **arguments) < base
    for name, larger in (("alpha", 0.6), ("lipschitz", 2.1), ("rademacher", 0.04), ("loss_range", 1.8)):
        assert deviation_bound(500, **{**arguments, name: larger}) > base


@exact
@given(st.integers(10, 10**8), st.floats(0.0, 0.2), st.sampled_from(["logistic", "sigmoid", "squared"]))
def test_theorem_7_solves_its_equation_or_saturates(n, rademacher, base):
    """(1 − Σe)·bound inverts Ψ_peer at approximation error + 2·deviation, or the bound is 1."""
    noise = NoiseModel.binary(0.25, 0.35)
    alpha = optimal_alpha(noise, 0.25)
    psi = peer_transform(calibration_transform(base), noise, alpha=alpha)
    arguments = {"alpha": alpha, "lipschitz": 1.0, "rademacher": rademacher}
    bound = generalization_bound(n, noise, transform=psi, approximation_error=0.001, **arguments)
    target = 0.001 + 2 * deviation_bound(n, **arguments)
    if bound < 1.0:
        assert float(psi(0.4 * bound)) == pytest.approx(target, abs=1e-12)
    else:
        assert float(psi(0.4)) <= target + 1e-12


def test_theorem_7_improves_with_data_and_tends_to_the_approximation_error():
    """With ℜ → 0 and N → ∞ only Ψ⁻¹ of the approximation error is left."""
    psi = peer_transform(calibration_transform("sigmoid"), NOISE, alpha=1.0)

    def bound(n):
        return generalization_bound(
            n,
            NOISE,
            alpha=1.0,
            lipschitz=0.25,
            rademacher=1 / math.sqrt(n),
            transform=psi,
            approximation_error=0.01,
        )

    values = [bound(10**k) for k in (2, 5, 7, 14)]
    assert values[0] == 1.0
    assert values[0] > values[1] > values[2] > values[3]
    assert values[3] == pytest.approx(4 * 0.01 / 0.6, abs=1e-5)


def test_uninformative_noise_is_refused():
    """Σe ≥ 1, or no e_j: no bound."""
    for call in (
        lambda noise: excess_risk_bound(10, noise, alpha=1.0),
        lambda noise: required_samples(0.1, noise, alpha=1.0),
        lambda noise: generalization_bound(10, noise, alpha=1.0, lipschitz=1, rademacher=0, transform=np.abs),
    ):
        with pytest.raises(NotIdentifiableError, match="`noise` must be informative"):
            call(NoiseModel.binary(0.6, 0.4))
        with pytest.raises(NotIdentifiableError, match="`noise` must satisfy"):
            call(NoiseModel.pair_flip(3, 0.2))


def generalization(**changes):
    """Call ``generalization_bound`` with valid arguments, except for the changes."""
    arguments = {"alpha": 1.0, "lipschitz": 1.0, "rademacher": 0.1, "transform": np.abs, **changes}
    return generalization_bound(arguments.pop("n_samples", 10), NOISE, **arguments)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: excess_risk_bound(0, NOISE, alpha=1.0), "`n_samples` must be an integer"),
        (lambda: excess_risk_bound(2.5, NOISE, alpha=1.0), "`n_samples` must be an integer"),
        (lambda: excess_risk_bound(5, NOISE, alpha=np.nan), "`alpha` must be a finite number"),
        (lambda: excess_risk_bound(5, NOISE, alpha=1.0, confidence=1.0), "`confidence` must lie in"),
        (lambda: excess_risk_bound(5, NOISE, alpha=1.0, n_hypotheses=0), "`n_hypotheses` must be an integer"),
        (lambda: required_samples(0.0, NOISE, alpha=1.0), "`excess` must be positive"),
        (lambda: required_samples(1e-300, NOISE, alpha=1.0), r"`excess` must be at least .*; got 1e-300"),
        (lambda: required_samples(0.1, NOISE, alpha=1e308), r"`alpha` must give a finite bound; got 1e\+308"),
        (lambda: generalization(n_samples=0), "`n_samples` must be an integer"),
        (lambda: generalization(alpha=np.inf), "`alpha` must be a finite number"),
        (lambda: generalization(lipschitz=-1.0), "`lipschitz` must be zero or positive"),
        (lambda: generalization(rademacher=-1.0), "`rademacher` must be zero or positive"),
        (lambda: generalization(loss_range=-1.0), "`loss_range` must be zero or positive"),
        (lambda: generalization(approximation_error=-1.0), "`approximation_error` must be zero or positive"),
        (lambda: generalization(confidence=0.0), "`confidence` must lie in"),
    ],
)
def test_wrong_arguments_are_named(call, match):
    """Every refusal names the argument and what it expects."""
    with pytest.raises(InvalidInputError, match=match):
        call()
