"""Curves over ranks: the most probable curve against an independent optimiser, and rates of known worlds."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit

from peerloss import NoiseModel
from peerloss.posterior import fit_clean_posterior, rate_curves
from peerloss.posterior.rate_curves import (
    RankScale,
    boundary_noise,
    class_noise,
    fit_rank_curves,
    group_by_rank,
    weigh_rate_pairs,
)


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


@pytest.mark.parametrize("step_scale", rate_curves.STEP_SCALES)
@pytest.mark.parametrize("pair", [(0.0, 0.0), (0.1, 0.3), (0.3, 0.05)])
def test_the_curve_is_the_most_probable_one(pair, step_scale):
    """Another optimiser, from five starts, finds no curve with a clearly higher posterior.

    A difference of .05 in the log posterior changes the weight of a pair of rates by 5 %.
    """
    groups, prior = groups_of(), rate_curves._Prior.of_curves(step_scale)
    e_neg, e_pos = pair

    def loss(at):
        clean = expit(groups.design @ np.exp(at[:-1]) + at[-1])
        p = np.clip(e_neg + (1 - e_neg - e_pos) * clean, rate_curves.CLIP, 1 - rate_curves.CLIP)
        fit = groups.ones @ np.log(p) + groups.zeros @ np.log1p(-p)
        return -rate_curves.EVIDENCE * fit - prior.log_density(at[None])[0]

    found = fit_rank_curves(groups, class_noise(np.array([pair])), 1, step_scale)[0][0]
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


def test_evidence_prefers_stiff_curves_where_log_odds_are_linear():
    """Two normal distributions: the stiff curves have more evidence; a kinked curve: the flexible ones."""
    rng, stiff, flexible = np.random.default_rng(0), *sorted(rate_curves.STEP_SCALES)
    z = rng.normal(size=20_000)
    for h, expected in ((2.0 * z, stiff), (np.where(z < 0, 0.3 * z, 6.0 * z), flexible)):
        labels = (rng.random(20_000) < expit(h)).astype(int)
        groups = group_by_rank(z, labels, np.ones(20_000), np.zeros(20_000, dtype=bool))
        clean = class_noise(np.zeros((1, 2)))
        evidence = {s: fit_rank_curves(groups, clean, 1, s)[1][0] for s in (stiff, flexible)}
        assert max(evidence, key=evidence.get) == expected


def test_several_curves_of_one_pair_are_one_candidate():
    """The candidates for T have the weights of their pairs; the table repeats the posterior at its scores."""
    rng = np.random.default_rng(0)
    score = rng.normal(size=300)
    found = fit_clean_posterior((rng.random(300) < expit(2 * score)).astype(int), score)
    posterior, table = found.noise_posterior(), found.tabulate()
    assert len(posterior.weights) < len(found.weights)
    assert posterior.weights.sum() == pytest.approx(1.0)
    np.testing.assert_allclose(posterior.noise.transition, found.noise.transition, atol=1e-12)
    np.testing.assert_allclose(table.transform(score), found.transform(score), atol=1e-9)


def test_slopes_of_the_noise_are_its_derivatives():
    """Both kinds of noise return dη̃/dη, as central differences give it."""
    clean, every = np.linspace(0.05, 0.95, 10)[None], np.zeros(1, dtype=int)
    for noise in (class_noise(np.array([[0.1, 0.3]])), boundary_noise):
        step = (noise(clean + 1e-6, every)[0] - noise(clean - 1e-6, every)[0]) / 2e-6
        np.testing.assert_allclose(np.broadcast_to(noise(clean, every)[1], step.shape), step, atol=1e-8)


def test_curves_that_converge_early_are_those_of_a_single_fit():
    """Each of many curves is the one that it is when it is fitted alone."""
    groups, pairs = groups_of(), np.array([(0.0, 0.0), (0.1, 0.3), (0.3, 0.05), (0.4, 0.4)])
    together = fit_rank_curves(groups, class_noise(pairs), 4, 0.7)
    for i, pair in enumerate(pairs):
        curve, evidence = fit_rank_curves(groups, class_noise(pair[None]), 1, 0.7)
        np.testing.assert_allclose(together[0][i], curve[0], atol=1e-8)
        assert together[1][i] == pytest.approx(evidence[0], abs=1e-8)


@pytest.mark.parametrize("no_noise", [0.01, 0.3, 0.9])
def test_the_prior_of_no_noise_changes_its_odds_only(no_noise):
    """The posterior odds of no noise are the prior odds times one ratio of evidences."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=400)
    rows = z, rng.random(400) < expit(2.0 * z), np.ones(400), np.zeros(400, dtype=bool)

    def log_ratio(prior):
        found = weigh_rate_pairs(*rows, no_noise=prior)
        clean = found.weights[(found.cells == 1).all(axis=1)].sum()  # the candidate that no grid contains
        return np.log(clean / (1 - clean)) - np.log(prior / (1 - prior))

    assert log_ratio(no_noise) == pytest.approx(log_ratio(0.5), abs=0.02)


def test_scores_that_are_almost_zero_have_finite_ranks():
    """Saturated boosting gives probabilities of 1e-320: interpolating between those must not overflow."""
    score = np.array([0.0, 5e-324, 1e-320, 1e-310, 0.2, 0.7, 1.0])
    z = RankScale.fit(score, np.ones(7)).transform(np.append(score, 3e-322))
    assert np.isfinite(z).all()
    assert (np.diff(z[:7]) >= 0).all()
