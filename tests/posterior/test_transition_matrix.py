"""T of several classes, in worlds with known noise and exact noisy probabilities."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import softmax

from peerloss import NoiseModel, estimate_noise
from peerloss.posterior import estimate_class_noise
from peerloss.posterior.transition_matrix import _rows_above_drop

NOISES = {
    "none": lambda _, k: NoiseModel(np.eye(k)),
    "uniform": lambda _, k: NoiseModel.uniform(k, 0.3),
    "pair flips": lambda _, k: NoiseModel.pair_flip(k, 0.25),
    "unequal": lambda rng, k: NoiseModel(
        np.diag(1 - (e := rng.uniform(0.0, 0.4, size=k))) + e[:, None] * (1 - np.eye(k)) / (k - 1)
    ),
}


def world(noise, n, *, sharpness=8.0, seed=0):
    """Return exact noisy probabilities and noisy labels of classes that overlap somewhat."""
    rng = np.random.default_rng(seed)
    clean_proba = softmax(sharpness * rng.normal(size=(n, noise.n_classes)), axis=1)
    clean = (rng.random((n, 1)) > clean_proba.cumsum(axis=1)).sum(axis=1).clip(max=noise.n_classes - 1)
    return clean_proba @ noise.transition, noise.apply(clean, random_state=seed), clean


@pytest.mark.parametrize("k", [3, 10])
@pytest.mark.parametrize("name", NOISES)
def test_t_is_found_from_many_rows(name, k):
    """With 1,000 rows per class, each entry is within .12 and nearly all intervals contain the truth."""
    noise = NOISES[name](np.random.default_rng(1), k)
    proba, noisy, _ = world(noise, 1000 * k)
    found = estimate_class_noise(proba, noisy)
    assert np.abs(found.noise.transition - noise.transition).max() < 0.12
    diagonal = np.diag_indices(k)
    inside = (found.low[diagonal] - 0.01 <= noise.transition[diagonal]) & (
        noise.transition[diagonal] <= found.high[diagonal] + 0.01
    )
    assert inside.mean() >= 0.8


def test_overlap_of_clean_classes_is_not_noise():
    """Clean labels of three normal distributions: much less noise than the confident joint finds."""
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=6000)
    means = np.array([[0.0, 0.0], [1.4, 0.0], [0.7, 1.2]])
    X = rng.normal(size=(6000, 2)) + means[labels]
    proba = softmax(X @ means.T - (means**2).sum(axis=1) / 2, axis=1)
    ours = estimate_class_noise(proba, labels).noise.flip_rates
    counted = estimate_noise(labels, pred_proba=proba).flip_rates
    assert ours.mean() < 0.1 < counted.mean()


def test_known_clean_labels_make_t_more_certain():
    """A hundred pairs of clean and noisy labels narrow the intervals and bring T closer to the truth."""
    noise = NoiseModel.pair_flip(3, 0.4)
    proba, noisy, clean = world(noise, 300, sharpness=3.0)
    without = estimate_class_noise(proba, noisy)
    known = np.arange(100)
    gold = estimate_class_noise(proba, noisy, gold=(clean[known], noisy[known]))
    assert (gold.high - gold.low).mean() < (without.high - without.low).mean()
    errors = [np.abs(found.noise.transition - noise.transition).mean() for found in (gold, without)]
    assert errors[0] < errors[1]


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 1000), n=st.integers(20, 150), k=st.integers(3, 5))
def test_t_is_a_transition_matrix_whatever_the_labels(seed, n, k):
    """Rows of every candidate sum to one, entries are probabilities, intervals contain the mean."""
    rng = np.random.default_rng(seed)
    proba = softmax(rng.normal(size=(n, k)), axis=1)
    found = estimate_class_noise(proba, rng.integers(k, size=n))
    assert found.posterior.transitions.sum(axis=2) == pytest.approx(1.0)
    assert (found.posterior.transitions >= 0).all()
    assert (found.low <= found.noise.transition + 1e-12).all()
    assert (found.noise.transition <= found.high + 1e-12).all()


def test_many_classes_are_counted():
    """With more than 100 classes T is counted from confident rows, in a fraction of the time."""
    noise = NoiseModel.uniform(120, 0.2)
    proba, noisy, _ = world(noise, 3000, sharpness=20.0)
    found = estimate_class_noise(proba, noisy)
    assert found.posterior.transitions.shape == (1, 120, 120)
    assert found.noise.flip_rates.mean() == pytest.approx(0.2, abs=0.1)


def test_a_class_of_which_two_fifths_have_another_label():
    """Its level is found although more rows belong to the class than have its label."""
    rates = np.array([0.4, 0.02, 0.02, 0.02, 0.02])
    noise = NoiseModel(np.diag(1 - rates) + rates[:, None] * (1 - np.eye(5)) / 4)
    proba, noisy, _ = world(noise, 5000, sharpness=20.0)
    assert estimate_class_noise(proba, noisy).noise.flip_rates[0] == pytest.approx(0.4, abs=0.05)


def test_two_classes_whose_labels_are_exchanged():
    """Their rates are found, although the largest drop of a label is that behind the rows of both classes."""
    T = np.eye(4)
    T[2:, 2:] = [[0.7, 0.3], [0.3, 0.7]]
    proba, noisy, _ = world(NoiseModel(T), 3000, sharpness=20.0)
    found = estimate_class_noise(proba, noisy).noise.flip_rates
    np.testing.assert_allclose(found, [0.0, 0.0, 0.3, 0.3], atol=0.05)


def test_rows_above_the_drop_are_those_before_the_label_becomes_rare():
    """The split has the likeliest two levels; without a lower second level there is none."""
    assert _rows_above_drop(np.repeat([True, False], [30, 70])) == 30
    often, seldom = np.arange(60) % 5 > 1, np.arange(140) % 10 == 0
    assert _rows_above_drop(np.r_[often, seldom]) == pytest.approx(60, abs=3)
    assert _rows_above_drop(np.repeat([False, True], [50, 50])) == 100
