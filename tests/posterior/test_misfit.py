"""Whether class-conditional noise explains the labels: a test against exact posteriors, and the warning."""

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.linear_model import LogisticRegression

from peerloss import NoiseModel, PeerClassifier
from peerloss.estimators import _peer
from peerloss.exceptions import IdentifiabilityWarning
from peerloss.posterior import _clean_map
from peerloss.posterior.decision import CleanMap
from peerloss.posterior.misfit import LEVEL, measure_misfit


def draw(proba, rng):
    """Draw a label from each row of probabilities."""
    return (rng.random((len(proba), 1)) > proba.cumsum(axis=1)).sum(axis=1)


def world(rng, n=400, k=3):
    """Return clean posteriors, an invertible T, and the noisy posteriors they give."""
    clean = rng.dirichlet(np.full(k, 0.5), size=n)
    transition = 0.7 * np.eye(k) + 0.3 * rng.dirichlet(np.ones(k), size=k)
    return clean, transition, clean @ transition


def test_the_loss_is_the_difference_of_log_likelihoods():
    """Against a loop over rows; weights count, rows of weight 0 do not."""
    rng = np.random.default_rng(0)
    direct, explained = rng.dirichlet(np.ones(3), size=(2, 50))
    codes, weight = rng.integers(3, size=50), rng.integers(3, size=50).astype(float)
    found = measure_misfit(direct, explained, codes, weight)
    lost = [
        np.log(max(direct[i, c], 1e-3) / np.maximum(direct[i], 1e-3).sum())
        - np.log(max(explained[i, c], 1e-3) / np.maximum(explained[i], 1e-3).sum())
        for i, c in enumerate(codes)
    ]
    mean = np.average(lost, weights=weight)
    error = np.sqrt((weight**2 * (np.array(lost) - mean) ** 2).sum()) / weight.sum()
    assert found.loss == pytest.approx(mean)
    assert found.p_value == pytest.approx(norm.sf(mean / error))
    assert measure_misfit(direct, direct, codes, weight).p_value == 1.0


def test_exact_class_conditional_noise_is_rarely_rejected():
    """With the true noisy posterior and the true T nothing is lost, in 200 random worlds of 2 to 5 classes.

    A direct prediction with an estimation error loses, so that the test errs on the side of silence.
    """
    rejected = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        _, _, noisy = world(rng, k=2 + seed % 4)
        estimate = np.exp(np.log(noisy) + 0.2 * rng.normal(size=noisy.shape))
        estimate /= estimate.sum(axis=1, keepdims=True)
        rejected += measure_misfit(estimate, noisy, draw(noisy, rng), np.ones(len(noisy))).p_value < LEVEL
    assert rejected <= 2


def test_noise_that_depends_on_the_row_is_rejected():
    """Half of the rows have clean labels, half are noisier: one T loses in nearly all of 200 worlds."""
    found = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        clean, transition, noisy = world(rng, n=1000, k=2 + seed % 4)
        mixed = np.where(np.arange(len(clean))[:, None] % 2, clean, clean @ transition @ transition)
        found += measure_misfit(mixed, noisy, draw(mixed, rng), np.ones(len(mixed))).p_value < LEVEL
    assert found >= 190


def test_what_the_noise_explains_is_the_clean_posterior_times_t():
    """For several classes inside the simplex of T's rows it is the noisy posterior itself."""
    _, transition, noisy = world(np.random.default_rng(1), k=4)
    mapped = _clean_map.CleanMap("accuracy", None, np.full(4, 0.25), NoiseModel(transition), None)
    np.testing.assert_allclose(mapped.explained(noisy), noisy, atol=1e-4)


@pytest.fixture
def quick(monkeypatch):
    """One candidate instead of the portfolio."""
    monkeypatch.setattr(_peer, "portfolio", lambda *_, **__: {"only": LogisticRegression()})
    monkeypatch.setattr(_peer, "fit_networks", lambda *_, **__: {})


def blobs(n=900, seed=0):
    """Three classes that a linear model tells apart."""
    rng = np.random.default_rng(seed)
    y = rng.integers(3, size=n)
    return rng.normal(size=(n, 2)) + 3.0 * np.array([[0, 1], [1, -1], [-1, -1]])[y], y


@pytest.mark.usefixtures("quick")
def test_a_noise_model_that_does_not_fit_is_said(monkeypatch):
    """A T that the labels contradict: a warning, words in the report, and an interval that is wider."""
    X, y = blobs()
    fitted = PeerClassifier(random_state=0).fit(X, y)
    assert fitted.report_.fits
    assert "if the noise depends on the true class alone." in str(fitted.report_)
    assert "compare with plain training" not in str(fitted.report_)
    monkeypatch.setattr(_clean_map, "estimate_noise", lambda *_: NoiseModel.uniform(3, 0.4))
    with pytest.warns(IdentifiabilityWarning, match="labels are not explained by noise of that kind"):
        wrong = PeerClassifier(random_state=0).fit(X, y)
    assert not wrong.report_.fits
    assert wrong.report_.misfit_p_value < LEVEL
    assert "Do not rely on the estimates of noise and accuracy" in str(wrong.report_)
    claimed = wrong.clean_map_.accuracy(wrong.oof_proba_, seed=0)
    as_labelled = wrong.clean_map_.accuracy(wrong.oof_proba_, seed=0, as_labelled=True)
    assert wrong.report_.accuracy_low <= min(claimed[1], as_labelled[1]) + 0.01
    assert wrong.report_.accuracy_high >= max(claimed[2], as_labelled[2]) - 0.01


@pytest.mark.usefixtures("quick")
def test_class_conditional_noise_of_two_classes_fits():
    """No warning in any of ten draws."""
    for seed in range(10):
        rng = np.random.default_rng(seed)
        y = rng.integers(2, size=300)
        X = rng.normal(size=(300, 2)) + 2.0 * y[:, None]
        noisy = NoiseModel.binary(0.1, 0.3).apply(y, random_state=seed)
        assert PeerClassifier(random_state=0, cv=3).fit(X, noisy).report_.fits


def test_without_a_row_to_explain_nothing_is_refused():
    """If every label is known to be right, the check has no rows, and the noise model is not blamed."""
    proba = np.full((5, 2), 0.5)
    assert measure_misfit(proba, proba, np.zeros(5, dtype=int), np.zeros(5)) == (0.0, 1.0)


def test_a_nearly_singular_noise_that_is_true_fits():
    """Exact posteriors under the true T of ten classes, hard to invert, raise no alarm."""
    rng = np.random.default_rng(0)
    noise = NoiseModel.uniform(10, 0.88)
    noisy = rng.dirichlet(np.full(10, 0.3), size=20_000) @ noise.transition
    codes = (noisy.cumsum(axis=1) < rng.random((20_000, 1))).sum(axis=1).clip(max=9)
    mapped = CleanMap("accuracy", None, np.full(10, 0.1), noise, None)
    assert measure_misfit(noisy, mapped.explained(noisy), codes, np.ones(20_000)).p_value > 0.01
