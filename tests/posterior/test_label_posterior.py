"""The posterior of a label against Bayes' rule in a synthetic world, and the fallback without one."""

import numpy as np
import pytest
from scipy.special import softmax

from peerloss import NoiseModel, _probabilities
from peerloss.posterior.label_posterior import label_posterior


def world(transition, n=4000, sharpness=8.0, seed=0):
    """Return noisy posteriors, noisy labels, clean labels and P(clean ≠ given | x, given), all exact."""
    rng = np.random.default_rng(seed)
    T = np.asarray(transition)
    clean_proba = softmax(sharpness * rng.normal(size=(n, len(T))), axis=1)
    clean = (rng.random(n)[:, None] > clean_proba.cumsum(axis=1)).sum(axis=1)
    noisy = (rng.random(n)[:, None] > T[clean].cumsum(axis=1)).sum(axis=1)
    joint = clean_proba * T[:, noisy].T
    exact = 1.0 - joint[np.arange(n), noisy] / joint.sum(axis=1)
    return clean_proba @ T, noisy, clean, exact


NOISES = {
    "binary": NoiseModel.binary(0.1, 0.3).transition,
    "uniform": NoiseModel.uniform(4, 0.2).transition,
    "pair": NoiseModel.pair_flip(4, 0.25).transition,
}


@pytest.mark.parametrize("name", NOISES)
def test_posterior_is_near_bayes_rule(name):
    """If classes hardly overlap, p_error is close to Bayes' rule with the true T.

    Exact posteriors of two classes level off themselves: only the confident joint shows their noise.
    """
    proba, noisy, _, exact = world(NOISES[name])
    found = label_posterior(proba, noisy)
    within = 0.08 if name == "binary" else 0.04
    assert np.abs(found.p_error - exact).mean() < max(within, 0.06)
    assert np.corrcoef(found.p_error, exact)[0, 1] > 0.95
    assert found.p_error.mean() == pytest.approx(exact.mean(), abs=within)


@pytest.mark.parametrize("name", NOISES)
def test_noise_is_estimated_with_an_interval_around_it(name):
    """Each entry of T is found to within .06 (.12 from exact posteriors of two classes, which hide noise)."""
    proba, noisy, _, _ = world(NOISES[name])
    found = label_posterior(proba, noisy)
    assert np.abs(found.noise.transition - NOISES[name]).max() < (0.12 if name == "binary" else 0.06)
    assert (found.noise_low <= found.noise.transition).all()
    assert (found.noise.transition <= found.noise_high).all()


def test_clean_prior_is_that_of_the_clean_labels():
    """The estimated clean prior is closer to the clean labels than the noisy prior is."""
    proba, noisy, clean, _ = world(NOISES["binary"], sharpness=8.0)
    found = label_posterior(proba, noisy)
    assert abs(found.clean_prior[1] - clean.mean()) < abs(noisy.mean() - clean.mean()) / 2


def test_clean_labels_have_a_low_probability_of_error():
    """Without noise the mean of p_error is below .02."""
    proba, noisy, _, _ = world(np.eye(3), sharpness=8.0)
    assert label_posterior(proba, noisy).p_error.mean() < 0.02


def test_blocks_do_not_change_the_result(monkeypatch):
    """Small blocks of rows give the same posterior as large ones."""
    proba, noisy, _, _ = world(NOISES["uniform"], n=500)
    whole = label_posterior(proba, noisy)
    monkeypatch.setattr(_probabilities, "BLOCK_CELLS", 40)
    parts = label_posterior(proba, noisy)
    assert parts.p_error == pytest.approx(whole.p_error, abs=1e-12)
    assert parts.likeliest_other.tolist() == whole.likeliest_other.tolist()
    assert parts.p_other == pytest.approx(whole.p_other, abs=1e-12)


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("related", [True, False])
def test_the_likeliest_other_class_is_never_the_given_one(k, related):
    """It has the largest probability of the other classes, whether or not the noise can be estimated."""
    rng = np.random.default_rng(0)
    proba = softmax(2.0 * rng.normal(size=(400, k)), axis=1)
    noisy = rng.integers(k, size=400)
    if related:
        noisy = np.where(rng.random(400) < 0.8, proba.argmax(axis=1), noisy)
    found = label_posterior(proba, noisy)
    assert bool(found.reason) != related
    rows = np.arange(400)
    clean = found.clean_given_label(rows)
    assert clean.sum(axis=1) == pytest.approx(1.0)
    assert clean[rows, noisy] == pytest.approx(1.0 - found.p_error)
    assert (found.likeliest_other != noisy).all()
    clean[rows, noisy] = -1.0
    assert found.p_other == pytest.approx(clean.max(axis=1))
    assert clean[rows, found.likeliest_other] == pytest.approx(clean.max(axis=1))


def test_probabilities_at_chance_level_give_no_noise():
    """If probabilities and labels are unrelated: no T, a reason, and the order of self-confidence."""
    rng = np.random.default_rng(1)
    proba = softmax(rng.normal(size=(300, 3)), axis=1)
    codes = rng.integers(3, size=300)
    found = label_posterior(proba, codes)
    assert found.noise is None
    assert "no better than chance" in found.reason
    assert found.p_error == pytest.approx(1 - proba[np.arange(300), codes])
