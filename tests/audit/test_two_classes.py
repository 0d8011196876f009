"""Rates and clean curves averaged over candidates: what they find, and how little few rows can tell."""

import numpy as np
import pytest
from scipy.special import expit

from peerloss.audit._posterior import label_posterior
from peerloss.audit._two_classes import RATES, Candidates, _log_prior, fit_candidates


def scored(e_neg, e_pos, n=4000, *, shift=0.0, seed=0):
    """Return log-odds of the clean class squeezed as a linear model would, noisy labels and clean ones."""
    rng = np.random.default_rng(seed)
    log_odds = 4.0 * rng.normal(size=n) + shift
    clean = rng.random(n) < expit(log_odds)
    noisy = np.where(rng.random(n) < np.where(clean, e_pos, e_neg), ~clean, clean)
    one = expit(0.4 * log_odds)
    return np.column_stack([1 - one, one]), noisy.astype(np.int64), clean.astype(np.int64)


@pytest.mark.parametrize("rates", [(0.1, 0.1), (0.1, 0.3), (0.3, 0.1), (0.02, 0.4)])
def test_rates_are_where_the_labels_level_off(rates):
    """With a score that does not level off itself both rates are found to within .06."""
    proba, noisy, _ = scored(*rates)
    assert fit_candidates(proba, noisy).noise.flip_rates == pytest.approx(rates, abs=0.06)


@pytest.mark.parametrize("shift", [-3.0, 3.0])
def test_a_small_class_is_not_taken_for_noise(shift):
    """Unequal classes with equal rates stay so: the rates differ by no more than .08."""
    proba, noisy, clean = scored(0.2, 0.2, shift=shift)
    found = label_posterior(proba, noisy)
    e_neg, e_pos = found.noise.flip_rates
    assert abs(e_neg - e_pos) < 0.08
    assert found.clean_prior[1] == pytest.approx(clean.mean(), abs=0.05)


def test_p_error_is_calibrated():
    """Its mean is the share of wrong labels, overall and among rows that it calls likely wrong."""
    proba, noisy, clean = scored(0.15, 0.3)
    p_error, wrong = label_posterior(proba, noisy).p_error, noisy != clean
    assert p_error.mean() == pytest.approx(wrong.mean(), abs=0.03)
    likely = p_error > 0.5
    assert p_error[likely].mean() == pytest.approx(wrong[likely].mean(), abs=0.1)


def test_posterior_is_bayes_rule_for_one_candidate():
    """A single candidate gives p·T[:, ỹ] over its sum, by hand."""
    only = Candidates(np.array([[0.1, 0.3]]), np.ones(1), np.ones(1), np.zeros(1))
    proba = np.array([[0.6, 0.4], [0.2, 0.8]])
    clean = only.clean(proba)
    assert clean == pytest.approx(proba[:, 1][None])
    found = only.given_label(clean, np.array([1, 0]), None)
    assert found[0] == pytest.approx(0.4 * 0.7 / (0.4 * 0.7 + 0.6 * 0.1))
    assert found[1] == pytest.approx(0.8 * 0.3 / (0.8 * 0.3 + 0.2 * 0.9))


def test_known_likelihoods_take_the_place_of_the_rates():
    """Where more is known of what was said, T is not asked."""
    only = Candidates(np.array([[0.1, 0.3]]), np.ones(1), np.ones(1), np.zeros(1))
    clean = only.clean(np.array([[0.6, 0.4]]))
    found = only.given_label(clean, np.array([1]), np.array([[0.2, 0.5]]))
    assert found[0] == pytest.approx(0.4 * 0.5 / (0.4 * 0.5 + 0.6 * 0.2))


def test_swapping_the_classes_swaps_the_answer():
    """Nothing depends on which class is called 1."""
    proba, noisy, _ = scored(0.1, 0.3, n=500)
    one, other = label_posterior(proba, noisy), label_posterior(proba[:, ::-1], 1 - noisy)
    assert other.p_error == pytest.approx(one.p_error, abs=0.01)
    assert other.noise.flip_rates[::-1] == pytest.approx(one.noise.flip_rates, abs=0.01)


def test_few_rows_leave_wide_intervals():
    """Forty rows tell the rates worse than four thousand do."""
    wide = fit_candidates(*scored(0.1, 0.3, n=40)[:2]).interval()
    narrow = fit_candidates(*scored(0.1, 0.3, n=4000)[:2]).interval()
    assert (wide[1] - wide[0]).max() > 1.5 * (narrow[1] - narrow[0]).max()
    for low, high in (wide, narrow):
        assert ((low >= 0) & (low <= high) & (high <= 1)).all()


def test_prior_is_symmetric_for_equally_many_labels():
    """With as many labels of either class no side is preferred, and alike rates are likeliest."""
    grid = np.array([(n, p) for n in RATES for p in RATES])
    prior = _log_prior(grid, 0.5).reshape(len(RATES), -1)
    assert prior == pytest.approx(prior.T)
    widths = np.gradient(RATES)
    density = prior - np.log(widths[:, None] * widths)
    assert density.argmax(axis=1).tolist() == list(range(len(RATES)))
