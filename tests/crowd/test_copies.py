"""The pairwise test for copied answers."""

import numpy as np
import pandas as pd
import pytest

from peerloss.crowd import _copies, find_copiers
from peerloss.exceptions import InvalidInputError
from peerloss.peer_prediction import Reports, shared_reports
from tests.crowd.crowds import others_of, random_crowd


def as_table(answers):
    return pd.DataFrame(
        [(task, name, label) for name, labels in answers.items() for task, label in enumerate(labels)],
        columns=["task", "worker", "label"],
    )


def crowd(rng, n_workers, n_tasks, accuracies=(0.6,)):
    truth = rng.integers(4, size=n_tasks)
    return {
        f"w{i}": np.where(
            rng.random(n_tasks) < accuracies[i % len(accuracies)], truth, rng.integers(4, size=n_tasks)
        )
        for i in range(n_workers)
    }


@pytest.mark.parametrize("chunk", [5, 1 << 20])
def test_outvoted_answers_equal_plain_loops(monkeypatch, chunk):
    """Tasks, agreements and expectations of every (a, b, label) equal those of loops over pairs."""
    monkeypatch.setattr(shared_reports, "CHUNK", chunk)
    frame = random_crowd(0, n_tasks=15, answered=0.8)
    expected = {}
    for row, own in frame.iterrows():
        others = others_of(frame, row)
        same = others.count(own["label"])
        rival = max((others.count(label) for label in set(others) - {own["label"]}), default=0)
        if same == 0 or rival <= same:
            continue
        for _, peer in frame[(frame["task"] == own["task"]) & (frame["worker"] != own["worker"])].iterrows():
            sums = expected.setdefault((own["worker"], peer["worker"], own["label"]), [0, 0, 0.0])
            sums[0] += 1
            sums[1] += int(peer["label"] == own["label"])
            sums[2] += same / len(others)
    reports = Reports.from_table(frame)
    found = _copies._outvoted_answers(reports)
    keys = zip(
        reports.workers[found.first],
        reports.workers[found.second],
        reports.labels[found.label],
        strict=True,
    )
    sums = zip(found.tasks, found.agreed, found.expected, strict=True)
    assert {
        tuple(map(int, key)): pytest.approx(list(value)) for key, value in zip(keys, sums, strict=True)
    } == {tuple(map(int, key)): value for key, value in expected.items()}


def test_finds_only_copiers():
    """Two workers who copy most answers are each listed with their source; independent workers are not."""
    rng = np.random.default_rng(0)
    answers = crowd(rng, 10, 400)
    answers["copier"] = np.where(rng.random(400) < 0.8, answers["w2"], rng.integers(4, size=400))
    answers["other copier"] = answers["w7"].copy()
    found = find_copiers(as_table(answers))
    assert {frozenset(pair) for pair in found[["worker", "other"]].to_numpy()} == {
        frozenset({"w2", "copier"}),
        frozenset({"w7", "other copier"}),
    }
    assert (found["agreements"] > found["expected"]).all()
    assert found["p_value"].is_monotonic_increasing


def test_constant_answers_are_not_copies():
    """Two workers who always give the same label share outvoted answers, but not only with each other."""
    answers = crowd(np.random.default_rng(1), 8, 300)
    answers |= {"always 0": np.zeros(300, int), "also 0": np.zeros(300, int)}
    assert find_copiers(as_table(answers)).empty


def test_false_positives_stay_below_the_stated_rate():
    """In 60 crowds without copiers, with workers of different accuracy, few list a pair (5 % allowed)."""
    false_positives = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        false_positives += len(find_copiers(as_table(crowd(rng, 9, 80, (0.3, 0.5, 0.8))))) > 0
    assert false_positives <= 7, "P(more than 7 of 60 at 5 %) is below 2 %"


def test_nothing_to_test_gives_an_empty_table():
    """If no answer is both outvoted and shared, no pair is listed."""
    table = find_copiers([(0, "a", 1), (0, "b", 1), (1, "a", 0), (1, "b", 1)])
    assert table.empty
    assert list(table) == ["worker", "other", "n_tasks", "agreements", "expected", "p_value"]


def test_refuses_a_rate_outside_the_unit_interval():
    """The rate is a probability."""
    with pytest.raises(InvalidInputError, match="`false_positive_rate` must lie in"):
        find_copiers(random_crowd(0), false_positive_rate=2)
