import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from peerloss.exceptions import InvalidInputError
from peerloss.theory import rademacher_linear, rademacher_two_layer
from tests.theory.finite_distributions import exact


def all_signs(n):
    """Every vector of n signs."""
    return np.array(list(itertools.product([-1.0, 1.0], repeat=n)))


@exact
@given(st.integers(1, 10), st.integers(1, 3), st.floats(0.0, 4.0), st.integers(0, 2**16))
def test_linear_bound_covers_the_enumerated_complexity(n, dimension, weight_norm, seed):
    """B·R/√N is at least the exact mean over all 2^N sign vectors of (B/N)·‖Σ σ_i x_i‖."""
    inputs = np.random.default_rng(seed).normal(size=(n, dimension))
    exact_value = weight_norm / n * np.linalg.norm(all_signs(n) @ inputs, axis=1).mean()
    largest = np.linalg.norm(inputs, axis=1).max()
    assert exact_value <= rademacher_linear(n, weight_norm=weight_norm, input_norm=largest) + 1e-12


def test_linear_bound_is_met_by_orthogonal_inputs():
    """For orthogonal inputs of equal norm ‖Σ σ_i x_i‖ is R√N for every sign vector: the bound is exact."""
    inputs = 3.0 * np.eye(6)
    exact_value = 2.0 / 6 * np.linalg.norm(all_signs(6) @ inputs, axis=1).mean()
    assert rademacher_linear(6, weight_norm=2.0, input_norm=3.0) == pytest.approx(exact_value, abs=1e-12)


@exact
@given(st.lists(st.floats(-2.0, 2.0), min_size=1, max_size=10), st.floats(0.0, 3.0), st.floats(0.0, 3.0))
def test_two_layer_bound_covers_the_enumerated_complexity_in_one_dimension(points, output_norm, hidden_norm):
    """In 1-D the supremum is A·B·max(|Σ_{x>0} σx|, |Σ_{x<0} σx|)/N; its exact mean is under 2ABR/√N."""
    x, n = np.array(points), len(points)
    signs = all_signs(n)
    right, left = np.abs(signs @ np.maximum(x, 0.0)), np.abs(signs @ np.maximum(-x, 0.0))
    exact_value = output_norm * hidden_norm / n * np.maximum(right, left).mean()
    largest = np.abs(x).max()
    bound = rademacher_two_layer(n, output_norm=output_norm, hidden_norm=hidden_norm, input_norm=largest)
    assert exact_value <= bound + 1e-12


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: rademacher_linear(0, weight_norm=1, input_norm=1), "`n_samples` must be an integer"),
        (
            lambda: rademacher_linear(5, weight_norm=-1, input_norm=1),
            "`weight_norm` must be zero or positive",
        ),
        (
            lambda: rademacher_linear(5, weight_norm=1, input_norm=np.inf),
            "`input_norm` must be a finite number",
        ),
        (
            lambda: rademacher_two_layer(5, output_norm=-1, hidden_norm=1, input_norm=1),
            "`output_norm` must be zero or positive",
        ),
        (
            lambda: rademacher_two_layer(5, output_norm=1, hidden_norm=-1, input_norm=1),
            "`hidden_norm` must be zero or positive",
        ),
    ],
)
def test_wrong_arguments_are_named(call, match):
    """Every refusal names the argument and what it expects."""
    with pytest.raises(InvalidInputError, match=match):
        call()
