"""Labels that are wrong near the boundary, as a hypothesis for the audit and for the decision."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit

from peerloss.noise import NoiseModel
from peerloss.posterior._noise_rates import TabulatedPosterior, fit_clean_posterior
from peerloss.posterior.boundary_noise import fit_boundary_noise
from peerloss.posterior.decision import CleanMap
from peerloss.posterior.noise_posterior import NoisePosterior


def labels_near_the_boundary(n, seed):
    """Return scores and labels that flip near the boundary, and the clean labels."""
    rng = np.random.default_rng(seed)
    score = expit(3.0 * rng.normal(size=n))
    clean = (rng.random(n) < score).astype(np.int64)
    flipped = rng.random(n) < 2.0 * score * (1.0 - score)
    return score, np.where(flipped, 1 - clean, clean), clean


def fitted(score, codes, **options):
    """Return the hypothesis, compared with class-conditional noise."""
    return fit_boundary_noise(codes, score, fit_clean_posterior(codes, score, **options), **options)


def test_the_decision_has_another_prior_than_the_audit():
    """The share of the plain decision is the posterior with a prior of .35 instead of .05."""
    score, codes, _ = labels_near_the_boundary(200, 0)
    found = fitted(score, codes)
    for probability in (0.0, 0.05, 0.3, 1.0):
        ratio = probability * 0.95 / 0.05 * 0.35
        expected = ratio / (ratio + (1.0 - probability) * 0.65)
        assert replace(found, probability=probability).plain_share == pytest.approx(expected)


def test_a_plain_share_draws_to_the_noisy_probabilities():
    """Clean probabilities are averaged with the noisy ones; a share of 1 is the plain decision."""
    known = NoisePosterior(NoiseModel.binary(0.1, 0.3).transition[None], np.ones(1))
    curve = TabulatedPosterior(np.array([0.2, 0.6]), np.array([0.1, 0.9]))
    one = np.array([0.1, 0.4, 0.7])
    proba = np.column_stack([1 - one, one])
    none, some, all_plain = (
        CleanMap("accuracy", None, np.full(2, 0.5), known, None, curve, share).transform(proba)
        for share in (0.0, 0.25, 1.0)
    )
    np.testing.assert_allclose(some, 0.75 * none + 0.25 * proba)
    np.testing.assert_allclose(all_plain, proba)


def test_the_plain_share_follows_the_kind_of_noise():
    """It is larger if labels flip near the boundary than if they flip at random at the same rate."""
    score, codes, clean = labels_near_the_boundary(3000, 1)
    rng = np.random.default_rng(2)
    at_random = np.where(rng.random(3000) < (codes != clean).mean(), 1 - clean, clean)
    shares = []
    for labels in (codes, at_random):
        prior = np.array([1.0 - labels.mean(), labels.mean()])
        proba = np.column_stack([1.0 - score, score])
        weight = np.ones(3000)
        found = CleanMap.fit(proba, labels, weight, metric="accuracy", alpha=None, noisy_prior=prior)
        shares.append(found.plain_share)
    assert shares[0] > 0.5 > shares[1]


def test_rows_of_weight_zero_do_not_count():
    """The decision equals that of the other rows alone; verified rows keep their place."""
    score, codes, _ = labels_near_the_boundary(300, 3)
    proba, weight, verified = np.column_stack([1.0 - score, score]), np.ones(300), np.arange(300) % 7 == 0
    weight[200:] = 0.0
    options = {"metric": "accuracy", "alpha": None, "noisy_prior": np.full(2, 0.5)}
    found = CleanMap.fit(proba, codes, weight, verified=verified, **options)
    alone = CleanMap.fit(proba[:200], codes[:200], np.ones(200), verified=verified[:200], **options)
    assert found.plain_share == pytest.approx(alone.plain_share)
    np.testing.assert_allclose(found.transform(proba), alone.transform(proba))


def test_weights_count_up_to_their_scale():
    """A weight of 2 is evidence for other rows than equal weights; twice all weights change nothing."""
    score, codes, _ = labels_near_the_boundary(300, 5)
    weight = np.where(np.arange(300) < 150, 2.0, 1.0)
    found, doubled, equal = (fitted(score, codes, weight=w) for w in (weight, 2.0 * weight, np.ones(300)))
    assert doubled.probability == pytest.approx(found.probability)
    assert equal.probability != pytest.approx(found.probability)


def test_known_labels_count():
    """Known pairs with the rates of the hypothesis support it more than pairs with other rates do."""
    score, codes, _ = labels_near_the_boundary(400, 4)
    rates = fitted(score, codes).average_noise(score).flip_rates
    clean = np.repeat([0, 1], 100)
    wrong = np.concatenate([np.arange(100) < round(100 * rate) for rate in rates])
    alike = fitted(score, codes, gold=(clean, np.where(wrong, 1 - clean, clean)))
    unlike = fitted(score, codes, gold=(clean, np.where(np.arange(200) % 100 < 45, 1 - clean, clean)))
    assert alike.probability > unlike.probability
