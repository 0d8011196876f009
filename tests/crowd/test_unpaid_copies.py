"""A copier is not paid for its copies, and honest workers are paid as before."""

import numpy as np
import pandas as pd
import pytest

from peerloss.crowd import score_annotators
from peerloss.crowd._copies import CopyGroups
from peerloss.crowd._unpaid_copies import find_imitators, paid_shares
from peerloss.exceptions import InvalidInputError
from peerloss.peer_prediction import Reports
from tests.crowd.test_copies import as_table, crowd

BUDGET = 10_000


def with_copier(seed, share, n_tasks=400):
    """Return a crowd of ten honest workers and one who copies this share of w2's answers and guesses."""
    rng = np.random.default_rng(seed)
    answers = crowd(rng, 10, n_tasks)
    copied = rng.random(n_tasks) < share
    answers["copier"] = np.where(copied, answers["w2"], rng.integers(4, size=n_tasks))
    return as_table(answers), copied


def pay(table, **options):
    return score_annotators(table, budget=BUDGET, n_bootstrap=20, random_state=0, **options)


@pytest.mark.parametrize("seed", range(4))
def test_a_copier_is_paid_for_its_own_answers_only(seed):
    """Who copies 80 % and guesses the rest is paid for about the rest; its source and all others in full."""
    table, copied = with_copier(seed, 0.8)
    usual, paid = pay(table, pay_copies=True), pay(table)
    honest = usual.index != "copier"
    assert (usual["paid_tasks"] == 400).all()
    pd.testing.assert_series_equal(paid["payment"][honest], usual["payment"][honest])
    same = table.pivot_table(index="task", columns="worker", values="label")
    assert paid.loc["copier", "paid_tasks"] == (same["copier"] != same["w2"]).sum() <= (~copied).sum()
    expected = usual.loc["copier", "payment"] * paid.loc["copier", "paid_tasks"] / 400
    assert paid.loc["copier", "payment"] == pytest.approx(expected, abs=0.02)


def test_identical_answers_are_paid_once_if_nobody_knows_who_copied():
    """The two workers share the pay of one; all others are paid as before."""
    table, _ = with_copier(0, 1.0)
    usual, paid = pay(table, pay_copies=True), pay(table)
    pair = ["w2", "copier"]
    assert paid.loc[pair, "paid_tasks"].tolist() == [200.0, 200.0]
    assert paid.loc[pair, "payment"].sum() == pytest.approx(usual.loc["w2", "payment"], abs=0.03)
    pd.testing.assert_series_equal(paid["payment"].drop(pair), usual["payment"].drop(pair))


def test_honest_crowds_are_paid_as_before():
    """In 40 crowds without copiers, few payments change at all (a pair is listed in at most 5 %)."""
    changed = 0
    for seed in range(40):
        table = as_table(crowd(np.random.default_rng(seed), 9, 80, (0.3, 0.5, 0.8)))
        changed += bool((paid_shares(Reports.from_table(table)) < 1).any())
    assert changed <= 5, "P(more than 5 of 40 at 5 %) is below 1.5 %"


def test_copying_never_pays_more_than_working():
    """In each crowd the copier earns little more than half as much as an honest worker, or far less."""
    copier, honest = [], []
    for seed in range(6):
        paid = pay(with_copier(seed, 0.9)[0])
        copier.append(paid.loc["copier", "payment"])
        honest.append(paid["payment"].drop("copier").mean())
    assert max(copier) < 0.6 * min(honest)
    assert np.median(copier) < 0.2 * min(honest)


def test_debts_stay_owed():
    """With a negative floor a worker may owe money for a task; copies do not reduce the debt."""
    rng = np.random.default_rng(0)
    answers = crowd(rng, 10, 300)
    answers["w8"] = (answers["w0"] + 1) % 4  # always wrong where w0 is right
    answers["w9"] = answers["w8"].copy()
    table = as_table(answers)
    terms = {"floor": -BUDGET / 3300 * 1.2}
    usual, paid = pay(table, pay_copies=True, **terms), pay(table, **terms)
    assert usual.loc["w9", "payment"] < 0
    assert paid.loc["w9", "paid_tasks"] < 300
    assert paid.loc["w9", "payment"] == usual.loc["w9", "payment"]


def small(rows):
    return Reports.from_table(rows)


def test_shares_of_a_group_sum_to_one_answer(monkeypatch):
    """Enumerated: a group of three on one task, with and without a known copier."""
    rows = [("t", "a", 1), ("t", "b", 1), ("t", "c", 0), ("u", "a", 0), ("u", "c", 0), ("t", "z", 1)]
    reports = small(rows)
    groups = CopyGroups(np.array([0, 0, 0, 1]), np.array([[0, 1], [1, 2]]))
    monkeypatch.setattr("peerloss.crowd._unpaid_copies.copy_groups", lambda _: groups)
    assert paid_shares(reports).tolist() == [0.5, 0.5, 1.0, 0.5, 0.5, 1.0]
    copiers = np.array([False, True, True, False])
    monkeypatch.setattr("peerloss.crowd._unpaid_copies.find_imitators", lambda *_: copiers)
    assert paid_shares(reports).tolist() == [1.0, 0.0, 1.0, 1.0, 0.0, 1.0]
    everyone = np.array([True, True, True, False])
    monkeypatch.setattr("peerloss.crowd._unpaid_copies.find_imitators", lambda *_: everyone)
    assert paid_shares(reports).tolist() == [0.5, 0.5, 1.0, 0.5, 0.5, 1.0]


@pytest.mark.parametrize("seed", range(10))
def test_an_honest_source_is_not_taken_for_the_copier(seed):
    """Whatever the share of copies; a copier who works on the rest is not accused either."""
    for share in (0.8, 0.9, 1.0):
        table, copied = with_copier(seed, share)
        reports = Reports.from_table(table)
        group = np.array([2 if name == "copier" else i for i, name in enumerate(reports.workers)])
        names = list(reports.workers)
        groups = CopyGroups(group, np.array([[names.index("w2"), names.index("copier")]]))
        found = find_imitators(reports, groups)
        assert not found[names.index("w2")]
        assert found.sum() <= 1
        table.loc[(table["worker"] == "copier") & ~copied[table["task"]], "label"] = table.loc[
            (table["worker"] == "w5") & ~copied[table["task"]], "label"
        ].to_numpy()
        assert not find_imitators(Reports.from_table(table), groups).any()


def test_the_split_of_a_budget_leaves_copies_out():
    """Without affine payments the copier's weight is that of its own answers; the budget is paid in full."""
    table, _ = with_copier(1, 0.8)
    usual = pay(table, payment="untruthful_split", pay_copies=True)
    paid = pay(table, payment="untruthful_split")
    assert paid["payment"].sum() == pytest.approx(BUDGET)
    assert paid.loc["copier", "payment"] < 0.4 * usual.loc["copier", "payment"]


def test_the_option_is_a_flag():
    """Other values are refused before anything is computed."""
    with pytest.raises(InvalidInputError, match="`pay_copies` must be True or False"):
        score_annotators([(0, "a", 1), (0, "b", 0)], pay_copies="no")
