"""The mixture over efforts, and q-values."""

import numpy as np
import pytest

from peerloss.crowd._effort_mixture import LEAST_HALF_INFORMED, effort_weights, q_values


def test_weights_are_the_shares_of_well_separated_workers():
    """If the likelihoods leave no doubt, the weights are the shares of the workers."""
    likelihood = np.repeat(np.eye(3), [2, 3, 5], axis=0)
    np.testing.assert_allclose(effort_weights(likelihood), [0.2, 0.3, 0.5], atol=1e-6)


def test_weights_maximise_the_likelihood():
    """No other weights on a grid have a larger likelihood, where the least share is not binding."""
    rng = np.random.default_rng(0)
    likelihood = rng.dirichlet([0.5, 0.5, 0.5], 30)
    weights = effort_weights(likelihood)
    assert weights[1] > LEAST_HALF_INFORMED * (1 - weights[0])
    best = np.log(likelihood @ weights).sum()
    grid = np.linspace(0, 1, 21)
    others = [(a, b, 1 - a - b) for a in grid for b in grid if a + b <= 1 + 1e-9]
    assert best >= max(np.log(np.maximum(likelihood @ np.array(w), 1e-300)).sum() for w in others) - 1e-6


def test_some_workers_are_assumed_to_be_half_informed():
    """If none seems to be half-informed, a tenth of those who do not guess is assumed to be."""
    likelihood = np.repeat(np.eye(3), [2, 0, 8], axis=0)
    np.testing.assert_allclose(effort_weights(likelihood), [0.2, 0.08, 0.72], atol=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_q_values_are_means_over_workers_at_least_as_suspicious(seed):
    """Each q-value equals the mean in a loop; equal probabilities have equal q-values."""
    values = np.random.default_rng(seed).integers(6, size=20) / 5
    expected = [values[values <= value].mean() for value in values]
    np.testing.assert_allclose(q_values(values), expected)
