"""Payments: the affine rule keeps the incentive, the split of a budget does not."""

from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from peerloss.crowd import affine_payments, payment_terms, untruthful_split
from peerloss.exceptions import InvalidInputError
from peerloss.noise import NoiseModel
from peerloss.peer_prediction import (
    constant,
    correlated_agreement,
    majority_guess,
    random_guess,
    simulate_reports,
    truthful,
)

BUDGET = 100
NOISE, PRIOR, N_WORKERS = NoiseModel.binary(0.05, 0.05), 0.05, 10
UNINFORMED = {
    "always 0": constant(0),
    "always 1": constant(1),
    "majority": majority_guess(NOISE, PRIOR),
    "coin": random_guess(),
    "biased coin": random_guess(0.2),
    "crowd frequencies": random_guess(NOISE.noisy_prior(PRIOR)),
}


def earned(choice, n_tasks, seeds):
    """Pay one worker who chose this strategy among honest ones, by both rules; one row per seed."""
    base, rate = payment_terms(BUDGET, n_tasks * N_WORKERS)
    paid = []
    for seed in seeds:
        workers = {"you": choice} | {f"honest {i}": truthful(NOISE) for i in range(N_WORKERS - 1)}
        table = simulate_reports(n_tasks, workers, clean_prior=PRIOR, random_state=seed)
        scores = np.zeros(N_WORKERS)
        if table["label"].nunique() > 1:  # otherwise all labels are the same and all scores are 0
            scores = correlated_agreement(table)["score"].to_numpy()
        split = untruthful_split(scores, BUDGET)[0] if (scores > 0).any() else 0.0
        paid.append((affine_payments(scores, [n_tasks] * N_WORKERS, base=base, rate=rate)[0], split))
    return np.array(paid)


@pytest.mark.parametrize(("n_tasks", "n_seeds"), [(10, 200), (200, 20)])
def test_honest_work_earns_most_by_the_affine_payment(n_tasks, n_seeds):
    """Uninformed strategies earn the base on average, honest work earns more by five standard errors.

    With the split of a budget and few tasks, random guesses earn more than honest work.
    """
    honest = earned(truthful(NOISE), n_tasks, range(n_seeds))
    base_pay = BUDGET / N_WORKERS / 2  # for all tasks
    for name, choice in UNINFORMED.items():
        few = {"always 0": 3, "always 1": 3, "majority": 3, "biased coin": 60, "crowd frequencies": 60}
        seeds = range(min(n_seeds, few.get(name, n_seeds)))
        other = earned(choice, n_tasks, seeds)
        gap = honest[:, 0].mean() - other[:, 0].mean()
        error = np.hypot(*(x[:, 0].std() / np.sqrt(len(x)) for x in (honest, other)))
        assert gap > 5 * error, name
        assert abs(other[:, 0].mean() - base_pay) < 4 * other[:, 0].std() / np.sqrt(len(other)) + 1e-9, name
        if name == "coin" and n_tasks == 10:
            assert other[:, 1].mean() > honest[:, 1].mean()


@given(
    st.lists(st.tuples(st.floats(-1, 1), st.integers(0, 50)), min_size=1, max_size=20),
    st.integers(1, 10**6),
    st.floats(-5, 0.1),
)
def test_affine_payments_keep_floor_and_budget(workers, cents, floor):
    """For any scores in [−1, 1], each pay is at least the floor, and the total is at most the budget."""
    scores, n_tasks = map(np.array, zip(*workers, strict=True))
    n_reports = int(n_tasks.sum()) or 1
    budget = Decimal(cents) / 100 + n_reports
    base, rate = payment_terms(budget, n_reports, floor=floor)
    paid = affine_payments(scores, n_tasks, base=base, rate=rate)
    assert (paid >= floor * n_tasks - 1e-9).all()
    assert paid.sum() <= float(budget) * (1 + 1e-12) + 1e-9
    worst = affine_payments(np.ones(len(scores)), n_tasks, base=base, rate=rate).sum()
    assert n_tasks.sum() == 0 or worst == pytest.approx(float(budget))


@pytest.mark.parametrize(("own", "score"), [([0, 1], 1.0), ([1, 0], -1.0)])
def test_both_ends_of_the_score_are_reached(own, score):
    """The bounds −1 and 1 of correlated agreement are attained."""
    rows = [(t, "peer", t) for t in range(2)] + [(t, "you", own[t]) for t in range(2)]
    assert correlated_agreement(rows)["score"]["you"] == pytest.approx(score)


def test_missing_scores_are_paid_the_base():
    """A worker without a score is paid like a score of 0."""
    assert affine_payments([np.nan, 0.5], [4, 4], base=1, rate=0.5).tolist() == [4.0, 5.0]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: payment_terms(10, 0), "`n_reports` must be an integer of at least 1"),
        (
            lambda: payment_terms(10, 5, floor=2),
            "`budget` must exceed 5 reports times the `floor` of 2; got 10",
        ),
        (lambda: payment_terms(10, 5, floor="a"), "`floor` must be a finite number"),
        (lambda: payment_terms(-1, 5), "`budget` must be a positive sum in whole cents"),
        (lambda: affine_payments([2.0], [1], base=1, rate=1), r"`scores` must lie in \[-1, 1\].*got 2"),
        (lambda: affine_payments([0.0], [-1], base=1, rate=1), "`n_tasks` must not be negative; got -1"),
        (lambda: affine_payments([0.0], [1, 2], base=1, rate=1), "must be equally long"),
        (lambda: affine_payments([0.0], [1], base=1, rate=0), "`rate` must lie in"),
        (lambda: affine_payments([0.0], [1], base=None, rate=1), "`base` must be a finite number"),
    ],
)
def test_invalid_payments_are_refused(call, message):
    """Each message names the argument."""
    with pytest.raises(InvalidInputError, match=message):
        call()


@given(
    st.lists(st.floats(-5, 1e6), min_size=1, max_size=50).filter(lambda w: max(w) > 0),
    st.integers(1, 10**12),
)
def test_payments_are_whole_cents_that_sum_to_the_budget(weights, cents):
    """For any weights the payments sum to the budget, and each is within a cent of its share."""
    paid = np.rint(untruthful_split(weights, Decimal(cents) / 100) * 100).astype(np.int64)
    assert paid.sum() == cents
    share = np.maximum(weights, 0)
    assert (paid[share == 0] <= 0).all()
    assert (paid >= 0).all()
    np.testing.assert_allclose(paid, share / share.sum() * cents, atol=1.01, rtol=1e-9)


def test_remaining_cents_go_to_the_largest_remainders():
    """Ten cents split 1 : 1 : 4 are 1.67, 1.67, 6.67; two cents go to the first of equal remainders."""
    assert untruthful_split([1, 1, 4], "0.10").tolist() == [0.02, 0.02, 0.06]
    assert untruthful_split([1, 1, 1], 1).tolist() == [0.34, 0.33, 0.33]


def test_negative_and_missing_scores_are_paid_nothing():
    """Missing and negative scores count as zero."""
    assert untruthful_split([np.nan, -3, 2], 7).tolist() == [0, 0, 7]


@pytest.mark.parametrize("budget", [0, -1, 1.005, "ten", float("nan"), float("inf"), 10**14, None])
def test_refuses_an_invalid_budget(budget):
    """Zero, negative, fractions of cents, words and amounts too large for exact cents are refused."""
    with pytest.raises(InvalidInputError, match="`budget` must be a positive sum in whole cents"):
        untruthful_split([1.0], budget)


def test_rounding_loses_no_cent():
    """Shares in whole cents are exact, also if the division rounds."""
    assert untruthful_split(np.full(30_000, 0.1), 300).tolist() == [0.01] * 30_000
    paid = untruthful_split(np.random.default_rng(0).random(20_000), 10**13)
    assert np.rint(paid * 100).sum() == 10**15


def test_refuses_weights_that_are_not_numbers():
    """Words are refused with the name of the argument."""
    with pytest.raises(InvalidInputError, match="`weights` must be an array of numbers"):
        untruthful_split(["many", "few"], 5)


def test_refuses_to_split_without_a_positive_weight():
    """Without a positive weight the shares are undefined."""
    with pytest.raises(InvalidInputError, match="no weight is above zero"):
        untruthful_split([0.0, -1.0], 5)
