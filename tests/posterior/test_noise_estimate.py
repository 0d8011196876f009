"""Classifiers and audit report the same noise for the same data."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression
from typer.testing import CliRunner

from peerloss import NoiseModel, PeerClassifier, find_label_issues
from peerloss.cli import app
from peerloss.estimators import PeerPlugInClassifier
from peerloss.estimators.portfolio import _fit_portfolio
from peerloss.exceptions import IdentifiabilityWarning
from peerloss.posterior import estimate_class_noise
from peerloss.posterior.decision import automatic_alpha
from peerloss.posterior.many_classes import shrink_to_uniform
from peerloss.theory import optimal_alpha_from_noisy_prior

NOISES = {2: NoiseModel.binary(0.1, 0.3), 3: NoiseModel.uniform(3, 0.3)}


@pytest.fixture
def quick(monkeypatch):
    """Train one candidate instead of the portfolio."""
    monkeypatch.setattr(_fit_portfolio, "candidate_models", lambda *_, **__: {"only": LogisticRegression()})
    monkeypatch.setattr(_fit_portfolio, "fit_networks", lambda *_, **__: {})


def noisy_table(k, n=400, seed=0):
    """Return features and noisy labels."""
    rng = np.random.default_rng(seed)
    clean = rng.choice(k, size=n, p=np.arange(k + 1, 1, -1) / np.arange(k + 1, 1, -1).sum())
    X = rng.normal(size=(n, 3))
    X[np.arange(n), clean] += 2.5
    return pd.DataFrame(X, columns=list("abc")), NOISES[k].apply(clean, random_state=seed)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("k", [2, 3])
def test_fit_and_audit_estimate_the_same_noise(k):
    """PeerClassifier and audit of one table report one T, from the table and from its probabilities."""
    X, y = noisy_table(k)
    model = PeerClassifier(random_state=0).fit(X, y)
    audit = find_label_issues(X, y, random_state=0)
    # The audit encodes a DataFrame first, which changes the last digits of the features.
    np.testing.assert_allclose(audit.noise.transition, model.noise_.transition, rtol=1e-9)
    np.testing.assert_array_equal(model.report_.noise.transition, model.noise_.transition)
    again = find_label_issues(labels=y, pred_proba=model.oof_proba_)
    np.testing.assert_array_equal(again.noise.transition, model.noise_.transition)
    if k == 2:
        assert audit.outlook.alpha == pytest.approx(model.alpha_)
        assert audit.outlook.accuracy_corrected == pytest.approx(model.report_.accuracy)


@pytest.mark.parametrize("k", [2, 3])
def test_the_plug_in_uses_the_noise_of_the_audit(k):
    """α* of ``PeerPlugInClassifier(alpha="auto")`` is that of the audit's T for the same probabilities."""
    X, y = noisy_table(k)
    model = PeerPlugInClassifier(LogisticRegression(), alpha="auto").fit(X, y)
    audit = find_label_issues(labels=y, pred_proba=model.oof_proba_)
    found = automatic_alpha(model.oof_proba_, y, np.ones(len(y)), model.noisy_prior_)
    np.testing.assert_array_equal(found.noise.transition, audit.noise.transition)
    if k == 2:
        assert model.alpha_ == optimal_alpha_from_noisy_prior(audit.noise, audit.noisy_prior)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("k", [2, 3])
def test_the_commands_fit_and_audit_report_the_same_noise(k, tmp_path):
    """``peerloss fit --json`` and ``peerloss audit --json`` of one file agree to the printed digits."""
    X, y = noisy_table(k)
    X.assign(label=y).to_csv(tmp_path / "data.csv", index=False)
    reports = {}
    for command in ("fit", "audit"):
        arguments = [tmp_path / "data.csv", "--target", "label", "-o", tmp_path / command, "--json"]
        result = CliRunner().invoke(app, [command, *map(str, arguments)])
        assert result.exit_code == 0, result.output
        reports[command] = json.loads(result.stdout)
    np.testing.assert_allclose(reports["audit"]["noise"], reports["fit"]["noise"], rtol=0, atol=1e-6)


@pytest.mark.parametrize("k", [2, 3])
def test_reported_numbers_are_consistent_with_the_noise(k):
    """Intervals contain T, the clean prior and T give the label frequencies, and errors follow from both."""
    X, y = noisy_table(k, n=2000)
    audit = find_label_issues(X, y, estimator=LogisticRegression())
    assert (audit.noise_low <= audit.noise.transition).all()
    assert (audit.noise.transition <= audit.noise_high).all()
    np.testing.assert_allclose(audit.clean_prior @ audit.noise.transition, audit.noisy_prior, atol=0.05)
    expected = len(y) * (audit.clean_prior @ audit.noise.flip_rates)
    assert audit.expected_errors == pytest.approx(expected)
    refitted = find_label_issues(X, y, estimator=LogisticRegression(), refit=True)
    assert refitted.expected_errors == audit.expected_errors


def test_intervals_contain_the_true_rates():
    """Over 40 draws of 300 rows, the intervals contain the true rates at least eight times in ten."""
    truth, contained = NOISES[2].transition, []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        score = 4.0 * rng.normal(size=300)
        clean = (rng.random(300) < 1 / (1 + np.exp(-score))).astype(int)
        one = 1 / (1 + np.exp(-0.4 * score))
        found = estimate_class_noise(
            np.column_stack([1 - one, one]), NOISES[2].apply(clean, random_state=rng)
        )
        contained.append((found.low <= truth + 1e-9) & (truth <= found.high + 1e-9))
    assert np.mean(contained) >= 0.8


def test_rows_without_weight_are_excluded():
    """Weight 0 excludes a row of any number of classes."""
    for k in (2, 3):
        X, y = noisy_table(k)
        proba = LogisticRegression().fit(X, y).predict_proba(X)
        weight = (np.arange(len(y)) < 300).astype(float)
        weighted = estimate_class_noise(proba, y, weight=weight).noise.transition
        np.testing.assert_allclose(weighted, estimate_class_noise(proba[:300], y[:300]).noise.transition)


@pytest.mark.parametrize("seed", range(5))
def test_rows_of_t_sum_to_one_if_some_prior_strengths_are_dropped(seed):
    """The weights of the remaining strengths are renormalised."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 10 ** rng.integers(1, 5), size=(3, 3)).astype(float) + 300 * np.eye(3)
    assert shrink_to_uniform(counts, counts).sum(axis=1) == pytest.approx(np.ones(3), abs=1e-12)


def test_unlearnable_labels_of_several_classes_are_warned_of():
    """Constant probabilities of three classes: a warning that points at the caller."""
    y = np.tile([0, 0, 0, 1, 1, 2], 60)  # every fold has the same frequencies
    model = PeerPlugInClassifier(DummyClassifier(), alpha="auto")
    with pytest.warns(IdentifiabilityWarning, match="no better than chance") as caught:
        model.fit(np.zeros((len(y), 1)), y)
    assert {w.filename for w in caught} == {__file__}
