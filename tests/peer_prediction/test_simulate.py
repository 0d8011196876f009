"""Simulated workers."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binomtest

from peerloss.exceptions import InvalidInputError
from peerloss.noise import NoiseModel
from peerloss.peer_prediction import (
    constant,
    majority_guess,
    permuted,
    random_guess,
    simulate_reports,
    truthful,
)

NOISE = NoiseModel.binary(0.1, 0.3)
WORKERS = {"ann": truthful(NOISE), "bob": constant(1), "cy": random_guess()}


def test_table_has_one_report_per_task_and_worker():
    """By default every worker answers every task once."""
    table = simulate_reports(50, WORKERS, clean_prior=0.4, random_state=0)
    assert list(table.columns) == ["task", "worker", "label"]
    answered = table.groupby("worker", sort=False)["task"].apply(list).to_dict()
    assert answered == {name: list(range(50)) for name in WORKERS}


def test_tasks_per_worker():
    """Each worker answers the given number of different tasks."""
    table = simulate_reports(50, WORKERS, clean_prior=0.4, tasks_per_worker=7, random_state=0)
    assert table.groupby("worker")["task"].nunique().tolist() == [7, 7, 7]


def test_same_seed_same_reports():
    """The same seed gives the same table, another seed another one."""
    one, two, three = (simulate_reports(50, WORKERS, clean_prior=0.4, random_state=s) for s in (0, 0, 1))
    pd.testing.assert_frame_equal(one, two)
    assert not one.equals(three)


def test_strategies_follow_their_definitions():
    """Frequencies of each strategy given the clean label agree with its definition (exact binomial test)."""
    rng = np.random.default_rng(0)
    clean = np.repeat([0, 1], 5000)
    honest = truthful(NOISE)(clean, rng)
    swapped = permuted(NOISE, [1, 0])(clean, rng)
    coin = random_guess()(clean, rng)
    rare = random_guess([0.9, 0.05, 0.05])(clean, rng)
    for count, rate in [
        (honest[:5000].sum(), 0.1),
        (5000 - honest[5000:].sum(), 0.3),
        (swapped[:5000].sum(), 0.9),
        (coin[:5000].sum(), 0.5),
        ((rare[:5000] == 0).sum(), 0.9),
    ]:
        assert binomtest(int(count), 5000, rate).pvalue > 1e-9
    assert (constant(2)(clean, rng) == 2).all()
    assert (majority_guess(NOISE, 0.9)(clean, rng) == 1).all()
    assert (majority_guess(NOISE, 0.1)(clean, rng) == 0).all()


def test_a_strategy_cannot_change_the_tasks():
    """A strategy gets a copy of the clean labels, so that writing to it does not affect other workers."""

    def vandal(clean, _rng):
        clean[:] = 0
        return clean

    table = simulate_reports(20, {"v": vandal, "t": truthful(np.eye(2))}, clean_prior=1.0, random_state=0)
    assert (table.loc[table["worker"] == "t", "label"] == 1).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: simulate_reports(0, WORKERS, clean_prior=0.5), "`n_tasks`"),
        (lambda: simulate_reports(5, {}, clean_prior=0.5), "`workers`.*at least one"),
        (lambda: simulate_reports(5, ["ann"], clean_prior=0.5), "`workers`.*map"),
        (lambda: simulate_reports(5, {"ann": 3}, clean_prior=0.5), "`workers`.*'ann' has 3"),
        (
            lambda: simulate_reports(5, {"ann": lambda y, _: y[1:]}, clean_prior=0.5),
            "`workers`.*returned 4 for 5",
        ),
        (lambda: simulate_reports(5, {"ann": lambda y, _: y - 9}, clean_prior=0.5), r"`workers\['ann'\]`"),
        (lambda: simulate_reports(5, WORKERS, clean_prior=1.5), "`clean_prior`"),
        (lambda: simulate_reports(5, WORKERS, clean_prior=0.5, tasks_per_worker=0), "`tasks_per_worker`"),
        (lambda: simulate_reports(5, WORKERS, clean_prior=0.5, tasks_per_worker=6), "`tasks_per_worker`.*6"),
        (lambda: simulate_reports(5, WORKERS, clean_prior=0.5, random_state=-1), "`random_state`"),
        (lambda: constant(-1), "`label`"),
        (lambda: random_guess([0.5, 0.6]), "`probabilities`"),
        (lambda: truthful([[1.0]]), "`noise`"),
        (lambda: majority_guess(NOISE, [1.0]), "`clean_prior`"),
        (lambda: permuted(NOISE, [0, 0]), "`permutation`.*once"),
        (lambda: permuted(NOISE, [0, 2]), "`permutation`"),
    ],
)
def test_bad_arguments_are_refused(call, message):
    """Each message names the argument."""
    with pytest.raises(InvalidInputError, match=message):
        call()
