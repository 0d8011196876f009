"""Curves over ranks: the most probable curve against an independent optimiser, and rates of known worlds."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit

from peerloss import NoiseModel
from peerloss.posterior import fit_clean_posterior, rate_curves
from peerloss.posterior.rate_curves import RankScale, fit_rank_curves, group_by_rank


def groups_of(n=600, seed=0):
    """Return groups of noisy labels of two overlapping classes."""
    rng = np.random.default_rng(seed)
    clean = rng.integers(2, size=n)
    score = rng.normal(size=n) + 1.5 * clean
    noisy = NoiseModel.binary(0.1, 0.3).apply(clean, random_state=seed)
    weight = np.ones(n)
    return group_by_rank(
        RankScale.fit(score, weight).transform(score), noisy, weight, np.zeros(n, dtype=bool)
    )


@pytest.mark.parametrize("pair", [(0.0, 0.0), (0.1, 0.3), (0.3, 0.05)])
def test_the_curve_is_the_most_probable_one(pair):
    """Another optimiser, from five starts, finds no curve with a clearly higher posterior.

    A difference of .05 in the log posterior changes the weight of a pair of rates by 5 %.
    """
    groups, prior = groups_of(), rate_curves._Prior.of_curves()
    e_neg, e_pos = pair

    def loss(at):
        clean = expit(groups.design @ np.exp(at[:-1]) + at[-1])
        p = np.clip(e_neg + (1 - e_neg - e_pos) * clean, rate_curves.CLIP, 1 - rate_curves.CLIP)
        fit = groups.ones @ np.log(p) + groups.zeros @ np.log1p(-p)
        return -rate_curves.EVIDENCE * fit - prior.log_density(at[None])[0]

    found = fit_rank_curves(groups, np.array([pair]))[0][0]
    starts = np.random.default_rng(0).normal(size=(5, len(found))) * 0.5 + prior.mean
    best = min(minimize(loss, start, method="BFGS").fun for start in starts)
    assert loss(found) < best + 0.05


@pytest.mark.parametrize(("e_neg", "e_pos"), [(0.0, 0.0), (0.05, 0.25), (0.3, 0.1)])
def test_rates_improve_with_rows_if_the_score_has_flattened_itself(e_neg, e_pos):
    """The score is the exact noisy posterior: it levels off at the rates, and their error falls with n."""
    errors = []
    for n in (300, 3_000, 30_000):
        off = []
        for seed in range(4):
            rng = np.random.default_rng(seed)
            log_odds = 5.0 * rng.normal(size=n)
            clean = (rng.random(n) < expit(log_odds)).astype(int)
            noisy = NoiseModel.binary(e_neg, e_pos).apply(clean, random_state=seed)
            score = e_neg + (1 - e_neg - e_pos) * expit(log_odds)
            noise = fit_clean_posterior(noisy, score).noise
            off.append([noise.e_neg - e_neg, noise.e_pos - e_pos])
        errors.append(np.sqrt(np.mean(np.square(off))))
    assert errors[2] < errors[0]
    assert errors[2] < 0.02


def test_clean_labels_of_overlapping_classes_show_little_noise():
    """Two normal distributions with a Bayes error of .16: both rates are below .05 with 20,000 rows."""
    rng = np.random.default_rng(0)
    labels = rng.integers(2, size=20_000)
    score = rng.normal(size=20_000) + 2.0 * labels
    noise = fit_clean_posterior(labels, score).noise
    assert max(noise.e_neg, noise.e_pos) < 0.05


def test_equal_scores_share_their_rank():
    """Z is the normal quantile of the mean rank, weights count as rows, and new scores are interpolated."""
    scale = RankScale.fit(np.array([3.0, 1.0, 1.0, 2.0]), np.ones(4))
    same = RankScale.fit(np.array([3.0, 1.0, 2.0]), np.array([1.0, 2.0, 1.0]))
    np.testing.assert_allclose(scale.z, same.z)
    assert scale.transform(np.array([1.5]))[0] == pytest.approx((scale.z[0] + scale.z[1]) / 2)
    assert scale.transform(np.array([0.0, 9.0])).tolist() == [scale.z[0], scale.z[2]]


def test_a_single_label_is_accepted():
    """If all labels are equal, the estimate is finite."""
    noise = fit_clean_posterior(np.zeros(40, dtype=int), np.arange(40.0)).noise
    assert np.isfinite(noise.transition).all()
