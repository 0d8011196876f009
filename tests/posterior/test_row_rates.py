"""Rates that depend on the row, against noise whose rates are known."""

import numpy as np
import pytest
from scipy.stats import spearmanr

from peerloss.exceptions import InvalidInputError
from peerloss.noise import InstanceNoise
from peerloss.posterior import row_rates_from_annotators, row_rates_from_margins, row_transitions


def crowd(seed, k=2, n=2000, annotators=4):
    """Return features, reports and the true rates of noise near the boundary."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, size=(n, 3))
    scores = 3.0 * X[:, 0] if k == 2 else 3.0 * X
    y = (X[:, 0] > 0).astype(int) if k == 2 else X.argmax(axis=1)
    noise = InstanceNoise.from_margins(y, scores, rate=0.2)
    reports = np.stack([noise.apply(y, random_state=rng) for _ in range(annotators)], axis=1)
    return X, y, scores, reports, noise.flip_rates


@pytest.mark.parametrize("seed", range(3))
def test_annotators_reveal_the_rates_of_rows(seed):
    """The estimates are close to the true rates, closer than their mean, and have the same order."""
    X, _, _, reports, truth = crowd(seed)
    rates = row_rates_from_annotators(X, reports, random_state=0)
    assert abs(rates.mean() - truth.mean()) < 0.03
    assert spearmanr(rates, truth).statistic > 0.85
    assert np.abs(rates - truth).mean() < 0.5 * np.abs(truth - truth.mean()).mean()


def test_constant_rates_are_found_constant():
    """If all rows have the same rate, so do the estimates, up to noise; three classes."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(3000, 2)), rng.integers(3, size=3000)
    wrong = rng.random((3000, 4)) < 0.3
    reports = np.where(wrong, (y[:, None] + rng.integers(1, 3, size=(3000, 4))) % 3, y[:, None])
    rates = row_rates_from_annotators(X, reports, random_state=0)
    assert abs(rates.mean() - 0.3) < 0.02
    assert rates.std() < 0.05


def test_missing_reports_and_rows_with_one_report():
    """Pairs are counted per row; a row with fewer than two labels gets the rate of similar rows."""
    X, _, _, reports, truth = crowd(5)
    rng = np.random.default_rng(1)
    reports = np.where(rng.random(reports.shape) < 0.4, -1, reports)
    few = (reports >= 0).sum(axis=1) < 2
    assert 100 < few.sum() < 1000
    rates = row_rates_from_annotators(X, reports, random_state=0)
    assert np.isfinite(rates).all()
    assert spearmanr(rates[few], truth[few]).statistic > 0.7


@pytest.mark.parametrize("k", [2, 3])
def test_margins_of_the_right_model_reveal_the_rates(k):
    """With the probabilities of a model that predicts the clean class, the mean and the order are right."""
    _, _, scores, reports, truth = crowd(2, k=k)
    columns = np.column_stack([-scores / 2, scores / 2]) if k == 2 else scores
    proba = np.exp(columns) / np.exp(columns).sum(axis=1, keepdims=True)
    rates = row_rates_from_margins(proba, reports[:, 0])
    assert abs(rates.mean() - truth.mean()) < 0.03
    assert np.abs(rates - truth).mean() < 0.5 * np.abs(truth - truth.mean()).mean()


def test_rates_fall_with_the_margin():
    """Rows with a larger margin never have a larger rate, and equal margins have equal rates."""
    rng = np.random.default_rng(0)
    proba = rng.dirichlet(np.ones(3), size=500).round(2)
    top = np.sort(proba, axis=1)
    margin = top[:, 2] - top[:, 1]
    rates = row_rates_from_margins(proba, rng.integers(3, size=500))
    assert (np.diff(rates[np.argsort(margin, kind="stable")]) <= 1e-12).all()
    assert rates.max() <= 2 / 3


def test_transitions_have_the_rates_of_the_rows():
    """Each T(x) is a stochastic matrix with 1 − e on its diagonal."""
    rates = np.array([0.0, 0.3, 0.6])
    tables = row_transitions(rates, 4)
    np.testing.assert_allclose(tables.sum(axis=2), 1.0)
    np.testing.assert_allclose(tables[:, range(4), range(4)], (1.0 - rates)[:, None].repeat(4, axis=1))
    assert (tables >= 0).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: row_rates_from_annotators(np.zeros((50, 1)), np.full((50, 1), 0)),
            "`reports` must have at lea",
        ),
        (
            lambda: row_rates_from_annotators(np.zeros((50, 1)), np.full((50, 2), 0.5)),
            "`reports` must hold .*0.5",
        ),
        (lambda: row_rates_from_annotators(np.zeros((9, 1)), np.zeros((8, 2))), "X"),
        (lambda: row_rates_from_annotators(np.zeros((50, 1)), np.ones((50, 2)), n_classes=1), "`n_classes`"),
        (lambda: row_rates_from_margins([[1.0]], [0]), r"`probabilities` must have .*\(1, 1\)"),
        (lambda: row_rates_from_margins([[0.5, 0.5]], [2]), "`labels` must"),
        (lambda: row_transitions([1.2], 2), r"`rates` must lie in \[0, 1\]; .* 1.2"),
    ],
)
def test_bad_arguments_are_named(call, message):
    """The message names the argument, what was expected and what was received."""
    with pytest.raises(InvalidInputError, match=message):
        call()
