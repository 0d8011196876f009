"""Splitting a sum to the cent."""

from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from peerloss.audit import split_budget
from peerloss.exceptions import InvalidInputError


@given(
    st.lists(st.floats(-5, 1e6), min_size=1, max_size=50).filter(lambda w: max(w) > 0),
    st.integers(1, 10**12),
)
def test_payments_are_whole_cents_that_sum_to_the_budget(weights, cents):
    """Whatever the weights, nothing is lost or made, and each part is within a cent of its share."""
    paid = np.rint(split_budget(weights, Decimal(cents) / 100) * 100).astype(np.int64)
    assert paid.sum() == cents
    share = np.maximum(weights, 0)
    assert (paid[share == 0] <= 0).all()
    assert (paid >= 0).all()
    np.testing.assert_allclose(paid, share / share.sum() * cents, atol=1.01, rtol=1e-9)


def test_left_over_cents_go_to_the_largest_remainders():
    """Ten cents between 1, 1 and 4 are 1.67, 1.67, 6.67; two cents go to the first of equal remainders."""
    assert split_budget([1, 1, 4], "0.10").tolist() == [0.02, 0.02, 0.06]
    assert split_budget([1, 1, 1], 1).tolist() == [0.34, 0.33, 0.33]


def test_negative_and_missing_scores_are_paid_nothing():
    """Missing scores and what is below zero count as zero."""
    assert split_budget([np.nan, -3, 2], 7).tolist() == [0, 0, 7]


@pytest.mark.parametrize("budget", [0, -1, 1.005, "ten", float("nan"), float("inf"), 10**14, None])
def test_refuses_a_budget_that_is_no_sum_of_money(budget):
    """Nothing, less than nothing, fractions of cents, words and sums beyond exact cents are refused."""
    with pytest.raises(InvalidInputError, match="`budget` must be a positive sum in whole cents"):
        split_budget([1.0], budget)


def test_rounding_loses_no_cent():
    """Shares that are whole cents come out as they are, also where division rounds."""
    assert split_budget(np.full(30_000, 0.1), 300).tolist() == [0.01] * 30_000
    paid = split_budget(np.random.default_rng(0).random(20_000), 10**13)
    assert np.rint(paid * 100).sum() == 10**15


def test_refuses_weights_that_are_no_numbers():
    """Words are refused with the name of the argument."""
    with pytest.raises(InvalidInputError, match="`weights` must be an array of numbers"):
        split_budget(["many", "few"], 5)


def test_refuses_to_split_among_nobody():
    """Without a positive weight there is no rule to follow."""
    with pytest.raises(InvalidInputError, match="nobody's truthful score is above zero"):
        split_budget([0.0, -1.0], 5)
