"""Dawid–Skene against a plain reference, and its symmetries."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from peerloss.crowd import DawidSkene, _report_matrix, aggregate_labels, dawid_skene
from peerloss.exceptions import InvalidInputError
from tests.crowd.crowds import random_crowd


def reference(frame, rounds):
    """EM in plain loops, one worker, label and task at a time."""
    tasks, workers, labels = frame["task"].unique(), frame["worker"].unique(), sorted(frame["label"].unique())
    rows = list(frame.itertuples(index=False))
    posterior = {
        t: np.array([sum(r.task == t and r.label == z for r in rows) for z in labels]) for t in tasks
    }
    posterior = {t: votes / votes.sum() for t, votes in posterior.items()}
    for _ in range(rounds):
        prior = sum(posterior.values()) / len(tasks)
        mass = {(w, label): np.zeros(len(labels)) for w in workers for label in labels}
        for r in rows:
            mass[r.worker, r.label] += posterior[r.task]
        pooled = {label: sum(mass[w, label] for w in workers) for label in labels}
        pooled_total = sum(pooled.values())
        posterior = {}
        for t in tasks:
            likelihood = prior.copy()
            for r in rows:
                if r.task == t:
                    total = sum(mass[r.worker, label] for label in labels)
                    likelihood *= (mass[r.worker, r.label] + pooled[r.label] / pooled_total) / (total + 1)
            posterior[t] = likelihood / likelihood.sum()
    return np.array([posterior[t] for t in tasks])


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("rounds", [1, 5])
def test_em_equals_plain_loops(seed, rounds):
    """Sparse products and loops over reports give the same probabilities after each iteration."""
    frame = random_crowd(seed)
    found = dawid_skene(frame, max_iter=rounds)
    np.testing.assert_allclose(found.probabilities, reference(frame, rounds), rtol=1e-9, atol=1e-12)


def test_blocks_of_tasks_change_nothing(monkeypatch):
    """The result does not depend on the size of the blocks in memory."""
    frame = random_crowd(1, n_tasks=40)
    one_block = dawid_skene(frame).probabilities
    monkeypatch.setattr(_report_matrix, "BLOCK", 7)
    np.testing.assert_array_equal(dawid_skene(frame).probabilities, one_block)


@given(st.integers(0, 10_000))
def test_names_and_order_do_not_matter(seed):
    """Renamed labels, shuffled rows and renamed workers give the same probabilities, renamed."""
    frame = random_crowd(seed % 50)
    rng = np.random.default_rng(seed)
    names = rng.permutation(3)
    other = frame.assign(label=names[frame["label"]], worker=frame["worker"] * 7 + 1)
    other = other.sample(frac=1, random_state=seed)
    one, two = dawid_skene(frame, max_iter=10), dawid_skene(other, max_iter=10)
    left = pd.DataFrame(one.probabilities, index=one.reports.tasks, columns=names[one.reports.labels])
    right = pd.DataFrame(two.probabilities, index=two.reports.tasks, columns=two.reports.labels)
    np.testing.assert_allclose(left.loc[right.index, right.columns], right, atol=1e-9)


def test_recovers_confusions_of_a_large_crowd():
    """With many reports the estimated accuracy and class frequencies come close to the true ones."""
    rng = np.random.default_rng(0)
    truth = rng.choice(3, 2000, p=[0.5, 0.3, 0.2])
    right = np.array([0.9, 0.8, 0.7, 0.6, 0.5])
    labels = np.where(rng.random((5, 2000)) < right[:, None], truth, (truth + 1) % 3)
    worker, task = np.indices(labels.shape)
    found = dawid_skene(
        pd.DataFrame({"task": task.ravel(), "worker": worker.ravel(), "label": labels.ravel()}), max_iter=200
    )
    np.testing.assert_allclose(found.accuracy, (labels == truth).mean(axis=1), atol=0.03)
    np.testing.assert_allclose(found.class_prior, np.bincount(truth) / 2000, atol=0.03)
    assert (found.probabilities.argmax(axis=1) == truth).mean() > 0.9


def test_reports_whether_it_converged():
    """EM does not converge in one iteration, but does in a hundred; the result reports it."""
    frame = random_crowd(2, n_tasks=60)
    assert not dawid_skene(frame, max_iter=1).converged
    found = dawid_skene(frame)
    assert found.converged
    assert repr(found) == f"DawidSkene({found.reports!r}, converged after {found.n_iterations} iterations)"


def test_refuses_tables_that_do_not_fit(monkeypatch):
    """Far too many labels give an error with advice instead of exhausting the memory."""
    monkeypatch.setattr(_report_matrix, "MAX_CELLS", 10)
    with pytest.raises(InvalidInputError, match=r"fewer labels for Dawid–Skene.*Group rare labels"):
        dawid_skene(random_crowd(0))


def test_aggregated_labels_of_a_crowd_counted_by_hand():
    """Majority, share and number of workers equal counts by hand; a task without an answer is excluded."""
    frame = pd.DataFrame(
        {
            "item": ["a", "a", "a", "b", "b", "c"],
            "worker": ["x", "y", "z", "x", "y", "z"],
            "label": ["no", "yes", "yes", "yes", "no", None],
        }
    )
    table = aggregate_labels(frame)
    assert table.index.tolist() == ["a", "b"]
    assert table["majority"].tolist() == ["yes", "no"], "of tied labels the first in sorted order"
    assert table["share"].tolist() == [2 / 3, 1 / 2]
    assert table["n_workers"].tolist() == [3, 2]


def test_aggregates_a_fitted_model():
    """A fitted model is not fitted again, and each probability belongs to its label."""
    model = dawid_skene(random_crowd(3))
    assert isinstance(model, DawidSkene)
    table = aggregate_labels(model)
    np.testing.assert_array_equal(table["probability"], model.probabilities.max(axis=1))
    np.testing.assert_array_equal(table["label"], model.reports.labels[model.probabilities.argmax(axis=1)])
