"""A clean posterior of more than two classes, fitted through the noise."""

import numpy as np
import pytest

from peerloss.noise import NoiseModel
from peerloss.posterior import NoisePosterior
from peerloss.posterior.decision import CleanMap
from peerloss.posterior.many_classes import CalibratedPosterior, CleanCurve, CleanCurves
from peerloss.posterior.noise_posterior import LEAST_SHARE, MAX_GAIN, stable_noise
from peerloss.theory import noisy_joint
from tests.theory.finite_distributions import (
    all_rules,
    balanced_accuracies,
    column_noise,
    random_joint,
    random_noise,
)


def rows_of(clean, noise, n=100_000):
    """Return each (point, noisy label) as one weighted row: exact probabilities, labels, weights."""
    noisy = noisy_joint(clean, noise)
    x, label = np.indices(noisy.shape).reshape(2, -1)
    posterior = noisy / noisy.sum(axis=1, keepdims=True)
    return posterior[x], label, n * noisy.ravel()


def worlds(seed, k, kind, count):
    """Draw worlds whose T is safe to invert as it is."""
    rng = np.random.default_rng(seed)
    while count:
        clean, noise = random_joint(rng, 5, k), kind(rng, k)
        if stable_noise(noise, clean.sum(axis=0) @ noise.transition) == noise:
            count -= 1
            yield clean, noise


@pytest.mark.parametrize("kind", [column_noise, random_noise], ids=["rates e_j", "any T"])
@pytest.mark.parametrize("k", [3, 5])
def test_exact_probabilities_give_the_best_balanced_accuracy(k, kind):
    """With exact noisy probabilities and the true T, the fitted curve loses nothing, in 50 worlds each.

    The estimate of its own balanced accuracy, from noisy labels and T, is exact.
    """
    for clean, noise in worlds(k, k, kind, 50):
        proba, labels, weight = rows_of(clean, noise)
        curves = CleanCurves.fit(proba, labels, weight, noise)
        points = proba[:: clean.shape[1]]
        chosen = curves.balanced(points).argmax(axis=1)
        best = balanced_accuracies(all_rules(5, k), clean).max()
        assert balanced_accuracies(chosen[None], clean)[0] > best - 0.005
        prior = clean.sum(axis=0) @ noise.transition
        known = NoisePosterior(noise.transition[None], np.ones(1))
        decider = CleanMap("balanced_accuracy", None, prior, known, curves)
        level, low, high = decider.accuracy(proba, labels, weight, seed=0)
        assert level == pytest.approx(balanced_accuracies(chosen[None], clean)[0], abs=1e-9)
        assert low <= level <= high


def test_the_curve_stays_inside_the_simplex():
    """Certain predictions under heavy noise leave the simplex if T is inverted; those of the curve do not."""
    noise = NoiseModel.uniform(3, 0.5)
    labels = np.tile(np.arange(3), 20)
    curve, _ = CleanCurve.fit(np.eye(3)[labels], labels, np.ones(60), noise)
    clean = curve.transform(np.vstack([np.eye(3), np.full((1, 3), 1 / 3)]))
    assert (clean > 0).all()
    np.testing.assert_allclose(clean.sum(axis=1), 1.0)
    np.testing.assert_array_equal(clean[:3].argmax(axis=1), [0, 1, 2])


def test_calibrated_posterior_equals_bayes_rule_with_exact_probabilities():
    """With exact noisy probabilities, the fitted posterior given the label is that of Bayes' rule."""
    for clean, noise in worlds(1, 3, random_noise, 5):
        proba, labels, weight = rows_of(clean, noise)
        rows = np.repeat(np.arange(len(labels)), np.round(weight).astype(int))
        certain = NoisePosterior(noise.transition[None], np.ones(1))
        fitted = CalibratedPosterior.fit(certain, proba[rows], labels[rows])
        np.testing.assert_allclose(
            fitted.given_label(proba, labels), certain.given_label(proba, labels), atol=0.03
        )
        np.testing.assert_allclose(fitted.transform(proba), certain.transform(proba), atol=0.03)


def test_calibrated_posterior_corrects_hesitant_probabilities():
    """Of probabilities that are too hesitant, the expected share of wrong labels is right with the true T."""
    rng = np.random.default_rng(0)
    noise = NoiseModel.uniform(4, 0.3)
    clean = rng.integers(4, size=4000)
    labels = noise.apply(clean, random_state=0)
    proba = 0.6 * np.eye(4)[clean] @ noise.transition + 0.4 * rng.dirichlet(np.ones(4), size=4000)
    certain = NoisePosterior(noise.transition[None], np.ones(1))
    plain, fitted = (
        1.0 - found.given_label(proba, labels)[np.arange(4000), labels].mean()
        for found in (certain, CalibratedPosterior.fit(certain, proba, labels))
    )
    wrong = (labels != clean).mean()
    assert abs(fitted - wrong) < 0.01 < abs(plain - wrong)


def test_noise_is_shrunk_towards_the_identity_only_if_needed():
    """A T with a stable inverse is unchanged; else errors grow by at most 20 and every class remains."""
    stable = NoiseModel.uniform(4, 0.3)
    assert stable_noise(stable, np.full(4, 0.25)) == stable
    unstable = NoiseModel.uniform(3, 0.66)
    assert np.linalg.cond(unstable.transition) > MAX_GAIN
    assert np.linalg.cond(stable_noise(unstable).transition) <= MAX_GAIN
    rates = np.array([0.0, 0.2, 0.0])
    extreme = NoiseModel((1 - rates.sum()) * np.eye(3) + rates)  # under it, all labels 1 are mistakes
    noisy_prior = np.array([0.6, 0.15, 0.25])
    assert (noisy_prior @ extreme.inverse()).min() < 0
    clean_prior = noisy_prior @ stable_noise(extreme, noisy_prior).inverse()
    assert (clean_prior >= LEAST_SHARE * noisy_prior - 1e-12).all()
