"""Whether class-conditional noise explains the labels: the test against exact posteriors, and the warning."""

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.linear_model import LogisticRegression

from peerloss import NoiseModel, PeerClassifier
from peerloss.estimators.portfolio import _fit_portfolio
from peerloss.exceptions import IdentifiabilityWarning
from peerloss.posterior import NoiseEstimate, NoisePosterior, decision
from peerloss.posterior.decision import LEVEL, measure_misfit


def only(noise):
    """Return the posterior that is certain of one T."""
    return NoisePosterior(noise.transition[None], np.ones(1))


def draw(proba, rng):
    """Draw a label from each row of probabilities."""
    return (rng.random((len(proba), 1)) > proba.cumsum(axis=1)).sum(axis=1)


def world(rng, n=400, k=3):
    """Return clean posteriors, an invertible T, and the noisy posteriors they give."""
    clean = rng.dirichlet(np.full(k, 0.5), size=n)
    transition = 0.7 * np.eye(k) + 0.3 * rng.dirichlet(np.ones(k), size=k)
    return clean, transition, clean @ transition


def test_the_loss_is_the_difference_of_log_likelihoods():
    """Compared with a loop over rows; weights count, rows of weight 0 are excluded."""
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

    A direct prediction with an estimation error loses likelihood, so the test is conservative.
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


def test_explained_probabilities_are_the_clean_posterior_times_t():
    """Inside the simplex of T's rows they are the noisy posterior itself; the best candidate is used."""
    rng = np.random.default_rng(1)
    _, transition, noisy = world(rng, k=4)
    candidates = np.stack([NoiseModel.uniform(4, 0.6).transition, transition])
    posterior, codes = NoisePosterior(candidates, np.full(2, 0.5)), draw(noisy, rng)
    np.testing.assert_allclose(posterior.best_explained(noisy, codes, np.ones(400)), noisy, atol=1e-4)


@pytest.fixture
def quick(monkeypatch):
    """One candidate instead of the portfolio."""
    monkeypatch.setattr(_fit_portfolio, "candidate_models", lambda *_, **__: {"only": LogisticRegression()})
    monkeypatch.setattr(_fit_portfolio, "fit_networks", lambda *_, **__: {})


def blobs(n=900, seed=0):
    """Return three classes that a linear model separates."""
    rng = np.random.default_rng(seed)
    y = rng.integers(3, size=n)
    return rng.normal(size=(n, 2)) + 3.0 * np.array([[0, 1], [1, -1], [-1, -1]])[y], y


@pytest.mark.usefixtures("quick")
def test_a_misfit_of_the_noise_model_is_reported(monkeypatch):
    """A T that the labels contradict: a warning, a statement in the report, and a wider interval."""
    X, y = blobs()
    fitted = PeerClassifier(random_state=0).fit(X, y)
    assert fitted.report_.fits
    assert "if the noise depends on the true class alone." in str(fitted.report_)
    assert "compare with plain training" not in str(fitted.report_)
    noise = NoiseModel.uniform(3, 0.4)
    wrong_noise = NoiseEstimate(noise, np.zeros((3, 3)), np.ones((3, 3)), only(noise))
    monkeypatch.setattr(decision, "estimate_class_noise", lambda *_, **__: wrong_noise)
    message = "class-conditional noise .* does not explain the labels"
    with pytest.warns(IdentifiabilityWarning, match=message) as caught:
        wrong = PeerClassifier(random_state=0).fit(X, y)
    assert {w.filename for w in caught} == {__file__}
    assert not wrong.report_.fits
    assert wrong.report_.misfit_p_value < LEVEL
    assert "Do not rely on the estimates of noise and accuracy" in str(wrong.report_)
    rows = wrong.oof_proba_, y, np.ones(len(y))
    claimed = wrong.clean_map_.accuracy(*rows, seed=0)
    as_labelled = wrong.clean_map_.accuracy(*rows, seed=0, as_labelled=True)
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


def test_without_noisy_rows_the_noise_model_fits():
    """If every label is known to be right, the test has no rows and does not reject the noise model."""
    proba = np.full((5, 2), 0.5)
    assert measure_misfit(proba, proba, np.zeros(5, dtype=int), np.zeros(5)) == (0.0, 1.0)


def test_a_nearly_singular_noise_that_is_true_fits():
    """Exact posteriors under the true T of ten classes, which is hard to invert, are not rejected."""
    rng = np.random.default_rng(0)
    noise = NoiseModel.uniform(10, 0.88)
    noisy = rng.dirichlet(np.full(10, 0.3), size=20_000) @ noise.transition
    codes = (noisy.cumsum(axis=1) < rng.random((20_000, 1))).sum(axis=1).clip(max=9)
    explained = only(noise).best_explained(noisy, codes, np.ones(20_000))
    assert measure_misfit(noisy, explained, codes, np.ones(20_000)).p_value > 0.01
