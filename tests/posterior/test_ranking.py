"""Two-class ranking: rates and clean curves averaged over candidates, with many and with few rows."""

import numpy as np
import pytest
from scipy.special import expit
from sklearn.metrics import roc_auc_score

from peerloss.audit import find_label_issues
from peerloss.posterior.label_posterior import (
    RankingPosterior,
    _log_prior,
    fit_ranking,
    label_posterior,
    ranking_score,
)
from peerloss.posterior.score_curves import RANKING


def scored(e_neg, e_pos, n=4000, *, shift=0.0, seed=0):
    """Return probabilities as of a regularised linear model, noisy labels and clean labels."""
    rng = np.random.default_rng(seed)
    log_odds = 4.0 * rng.normal(size=n) + shift
    clean = rng.random(n) < expit(log_odds)
    noisy = np.where(rng.random(n) < np.where(clean, e_pos, e_neg), ~clean, clean)
    one = expit(0.4 * log_odds)
    return np.column_stack([1 - one, one]), noisy.astype(np.int64), clean.astype(np.int64)


def single_candidate(*, is_boundary_noise=False):
    """Return a posterior with one candidate, whose clean curve is the score itself."""
    return RankingPosterior(
        np.array([[0.1, 0.3]]), np.ones(1), np.ones(1), np.zeros(1), 0.0, 1.0, np.array([is_boundary_noise])
    )


@pytest.mark.parametrize("rates", [(0.1, 0.1), (0.1, 0.3), (0.3, 0.1), (0.02, 0.4)])
def test_rates_are_where_the_labels_level_off(rates):
    """If the score does not level off by itself, both rates are found to within .06."""
    proba, noisy, _ = scored(*rates)
    assert fit_ranking(proba, noisy).noise.flip_rates == pytest.approx(rates, abs=0.06)


@pytest.mark.parametrize("shift", [-3.0, 3.0])
def test_a_small_class_is_not_taken_for_noise(shift):
    """For unequal classes with equal rates, the estimated rates differ by at most .08."""
    proba, noisy, clean = scored(0.2, 0.2, shift=shift)
    found = label_posterior(proba, noisy)
    e_neg, e_pos = found.noise.flip_rates
    assert abs(e_neg - e_pos) < 0.08
    assert found.clean_prior[1] == pytest.approx(clean.mean(), abs=0.05)


def test_p_error_is_calibrated():
    """Its mean is the share of wrong labels, overall and among rows with p_error above ½."""
    proba, noisy, clean = scored(0.15, 0.3)
    p_error, wrong = label_posterior(proba, noisy).p_error, noisy != clean
    assert p_error.mean() == pytest.approx(wrong.mean(), abs=0.03)
    likely = p_error > 0.5
    assert p_error[likely].mean() == pytest.approx(wrong[likely].mean(), abs=0.1)


def test_posterior_is_bayes_rule_for_one_candidate():
    """A single candidate gives p·T[:, ỹ] over its sum, by hand."""
    only = single_candidate()
    proba = np.array([[0.6, 0.4], [0.2, 0.8]])
    clean = only.candidates(ranking_score(proba))
    assert clean == pytest.approx(proba[:, 1][None])
    found = only.given_label(clean, np.array([1, 0]), None)
    assert found[0] == pytest.approx(0.4 * 0.7 / (0.4 * 0.7 + 0.6 * 0.1))
    assert found[1] == pytest.approx(0.8 * 0.3 / (0.8 * 0.3 + 0.2 * 0.9))


def test_boundary_noise_depends_on_the_clean_posterior():
    """Labels flip with probability 2η(1 − η), whatever the average rates; by hand."""
    only = single_candidate(is_boundary_noise=True)
    clean = only.candidates(ranking_score(np.array([[0.6, 0.4], [0.2, 0.8]])))
    found = only.given_label(clean, np.array([1, 0]), None)
    assert found[0] == pytest.approx(0.4 * 0.52 / (0.4 * 0.52 + 0.6 * 0.48))
    assert found[1] == pytest.approx(0.8 * 0.32 / (0.8 * 0.32 + 0.2 * 0.68))


def near_boundary(n=4000, *, shift=-2.0, seed=0):
    """Return probabilities of a linear model, labels that are wrong only near the boundary, clean labels."""
    rng = np.random.default_rng(seed)
    margin = 2.0 * rng.normal(size=n) + shift
    clean = margin > 0
    noisy = np.where(rng.random(n) < np.minimum(0.5, 2.0 * np.exp(-np.abs(margin))), ~clean, clean)
    one = expit(margin)
    return np.column_stack([1 - one, one]), noisy.astype(np.int64), clean.astype(np.int64)


def test_boundary_noise_is_distinguished_from_class_noise(tmp_path):
    """It is detected in unequal classes and reported, and the average rates are close to the true ones."""
    proba, noisy, clean = near_boundary()
    audit = find_label_issues(labels=noisy, pred_proba=proba)
    assert audit.near_boundary > 0.9
    assert audit.summary()["near_boundary"] == pytest.approx(audit.near_boundary, abs=1e-6)
    assert "near the boundary" in str(audit)
    audit.to_html(tmp_path / "audit.html")
    assert "near the boundary" in (tmp_path / "audit.html").read_text(encoding="utf-8")
    rates = [(noisy != clean)[clean == k].mean() for k in (0, 1)]
    assert audit.noise.flip_rates == pytest.approx(rates, abs=0.1)
    assert (audit.noise_low <= audit.noise.transition).all()
    assert (audit.noise.transition <= audit.noise_high).all()


def test_near_the_boundary_rows_are_ranked_as_well_as_by_confidence():
    """The AUROC is at most .002 below that of self-confidence."""
    proba, noisy, clean = near_boundary()
    given = proba[np.arange(len(noisy)), noisy]
    ours = roc_auc_score(noisy != clean, label_posterior(proba, noisy).p_error)
    assert ours >= roc_auc_score(noisy != clean, 1 - given) - 0.002


@pytest.mark.parametrize("rates", [(0.02, 0.02), (0.2, 0.2), (0.1, 0.3), (0.02, 0.45)])
@pytest.mark.parametrize("shift", [-3.0, 0.0])
def test_class_noise_is_not_taken_for_boundary_noise(rates, shift):
    """Labels that level off at the ends of the scores are not noise near the boundary."""
    found = fit_ranking(*scored(*rates, shift=shift)[:2])
    assert found.near_boundary < 0.01


def test_few_rows_keep_the_order_of_confidence():
    """Sixty labels do not show that rates differ: equal rates keep most of the weight."""
    found = fit_ranking(*scored(0.1, 0.3, n=60)[:2])
    equal = np.abs(found.rates[:, 0] - found.rates[:, 1]) < 0.06
    assert found.weights[equal].sum() > 0.5


def test_intervals_hold_more_than_their_share_of_the_ranking_weights():
    """The interval contains more than nine tenths of the weights."""
    found = fit_ranking(*scored(0.1, 0.3, n=400)[:2])
    low, high = found.interval()
    inside = (found.rates[:, 0] >= low[0, 1]) & (found.rates[:, 0] <= high[0, 1])
    assert found.weights[inside].sum() > 0.9


def test_known_likelihoods_replace_the_rates():
    """If the likelihood of the reports is given, T is not used."""
    only = single_candidate()
    clean = only.candidates(ranking_score(np.array([[0.6, 0.4]])))
    found = only.given_label(clean, np.array([1]), np.array([[0.2, 0.5]]))
    assert found[0] == pytest.approx(0.4 * 0.5 / (0.4 * 0.5 + 0.6 * 0.2))


def test_swapping_the_classes_swaps_the_result():
    """The result does not depend on which class is called 1."""
    proba, noisy, _ = scored(0.1, 0.3, n=500)
    one, other = label_posterior(proba, noisy), label_posterior(proba[:, ::-1], 1 - noisy)
    assert other.p_error == pytest.approx(one.p_error, abs=0.01)
    assert other.noise.flip_rates[::-1] == pytest.approx(one.noise.flip_rates, abs=0.01)


def test_few_rows_give_wide_intervals():
    """Intervals are wider with forty rows than with four thousand."""
    wide = fit_ranking(*scored(0.1, 0.3, n=40)[:2]).interval()
    narrow = fit_ranking(*scored(0.1, 0.3, n=4000)[:2]).interval()
    assert (wide[1] - wide[0]).max() > 1.5 * (narrow[1] - narrow[0]).max()
    for low, high in (wide, narrow):
        assert ((low >= 0) & (low <= high) & (high <= 1)).all()


def test_prior_is_symmetric_for_equally_many_labels():
    """With equally many labels of both classes no side is preferred, and equal rates are most probable."""
    rates = RANKING.rates
    grid = np.array([(n, p) for n in rates for p in rates])
    prior = _log_prior(grid, 0.5).reshape(len(rates), -1)
    assert prior == pytest.approx(prior.T)
    widths = np.gradient(rates)
    density = prior - np.log(widths[:, None] * widths)
    assert density.argmax(axis=1).tolist() == list(range(len(rates)))


def test_clean_labels_are_not_taken_for_boundary_noise():
    """If hardly any label is wrong, confident labels that are right are evidence for no noise at all."""
    rng = np.random.default_rng(0)
    codes = rng.integers(2, size=2000)
    one = expit(rng.normal(np.where(codes == 1, 6.0, -6.0), 1.5))
    found = fit_ranking(np.column_stack([1.0 - one, one]), codes)
    assert found.near_boundary < 0.1
    assert found.noise.transition[0, 1] < 0.01
