"""Sgn(Δ) from the other workers' reports: crowds whose workers have different marginals."""

import itertools

import numpy as np
import pandas as pd
import pytest

from peerloss.peer_prediction import (
    constant,
    correlated_agreement,
    estimate_joint,
    permuted,
    shared_reports,
    simulate_reports,
    truthful,
)
from peerloss.theory import delta_matrix
from tests.crowd.crowds import coded, random_crowd

GOOD, WEAK = [[0.9, 0.1], [0.2, 0.8]], [[0.7, 0.3], [0.3, 0.7]]
CONSTANT = [[0, 4], [0, 4]]


def delta_by_loops(frame, without):
    """Sum the covariance of each pair of other workers over their common tasks, by loops over pairs.

    Marginals are those of each worker over its shared tasks. If no pair of varying workers has a common task,
    the identity is returned.
    """
    k = frame["label"].max() + 1
    shared = frame[frame.groupby("task")["worker"].transform("size") > 1]
    one_hot = {
        worker: pd.DataFrame(np.eye(k)[own["label"]], index=own["task"])
        for worker, own in shared.groupby("worker")
    }
    delta, informative = np.zeros((k, k)), False
    for a, b in itertools.permutations(one_hot, 2):
        common = one_hot[a].index.intersection(one_hot[b].index)
        if without not in (a, b) and len(common):
            x, y = ((one_hot[w] - one_hot[w].mean()).loc[common].to_numpy() for w in (a, b))
            delta += x.T @ y
            informative |= x.any() and y.any()
    return np.where(np.abs(delta) < 1e-9, 0.0, delta) if informative else np.eye(k)


def scores_by_loops(frame):
    """Score each worker with Δ from :func:`delta_by_loops`."""
    return [
        correlated_agreement(frame, delta=delta_by_loops(frame, worker)).loc[worker, "score"]
        for worker in frame["worker"].unique()
    ]


def population(confusions, prior):
    """Return a table in which each combination of reports is exactly as frequent as its probability.

    All probabilities are given as integer counts.
    """
    k = len(prior)
    rows, task = [], 0
    for z, *labels in itertools.product(range(k), repeat=len(confusions) + 1):
        factors = [confusion[z][label] for confusion, label in zip(confusions, labels, strict=True)]
        for _ in range(prior[z] * int(np.prod(factors))):
            rows += [(task, worker, label) for worker, label in enumerate(labels)]
            task += 1
    return pd.DataFrame(rows, columns=["task", "worker", "label"])


def exact_covariance(own, peer, prior):
    """Return Δ of two workers from their conditional probabilities."""
    own, peer, prior = (
        np.asarray(counts) / np.sum(counts, axis=-1, keepdims=True) for counts in (own, peer, prior)
    )
    return delta_matrix(own.T @ np.diag(prior) @ peer)


@pytest.mark.parametrize(
    ("confusions", "prior"),
    [
        ([[[4, 0], [1, 3]], [[3, 1], [1, 3]], [[2, 2], [1, 3]], CONSTANT], [3, 2]),
        ([[[3, 1], [2, 2]], [[3, 1], [1, 3]], [[4, 0], [2, 2]], CONSTANT, CONSTANT], [1, 1]),
        ([[[2, 1, 1], [1, 3, 0], [0, 1, 3]], [[4, 0, 0], [1, 2, 1], [1, 1, 2]], [[0, 0, 4]] * 3], [2, 1, 1]),
    ],
    ids=["two labels", "two constant workers", "three labels"],
)
def test_population_scores_of_honest_workers(confusions, prior):
    """With the exact frequencies of the population, Sgn(Δ) is that of the honest pairs and pays honest work.

    The score of a worker is its expectation with the Sgn(Δ) of the exact sum of covariances of the others.
    The pooled pairs of the others would give Δ a negative diagonal.
    """
    frame = population(confusions, prior)
    pooled = delta_matrix(estimate_joint(frame[frame["worker"] != 0]))
    assert (np.diag(pooled) < 0).any()
    scores, n = correlated_agreement(frame)["score"], frame["task"].nunique()
    workers = range(len(confusions))
    covariance = {
        pair: exact_covariance(confusions[pair[0]], confusions[pair[1]], prior)
        for pair in itertools.permutations(workers, 2)
    }
    for worker in workers:
        others = [pair for pair in covariance if worker not in pair]
        delta = sum(covariance[pair] for pair in others)
        varied = any(np.abs(covariance[pair]).max() > 1e-12 for pair in others)
        signs = delta > 1e-12 if varied else np.eye(len(prior))
        assert np.diag(signs).all()
        expected = np.mean([(signs * covariance[worker, b]).sum() for b in workers if b != worker])
        assert scores[worker] * (n - 1) / n == pytest.approx(expected, abs=1e-12)
        is_constant = np.ptp(confusions[worker], axis=0).max() == 0
        assert scores[worker] == 0.0 if is_constant else scores[worker] > 0.01


def crowd_of_four():
    return {"ann": truthful(GOOD), "bob": truthful(GOOD), "cy": truthful(WEAK), "dee": constant(1)}


def crowd_of_seven():
    honest = {f"honest {i}": truthful([[0.65, 0.35], [0.35, 0.65]]) for i in range(5)}
    return honest | {"dee": constant(1), "eve": constant(1)}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("crowd", [crowd_of_four, crowd_of_seven])
@pytest.mark.parametrize("answered", [1.0, 0.4])
def test_constant_workers_do_not_make_honest_scores_negative(crowd, seed, answered):
    """Honest scores are positive in a crowd with constant workers, also if reports are missing."""
    workers = crowd()
    frame = simulate_reports(4000, workers, clean_prior=0.6, random_state=seed)
    frame = frame[np.random.default_rng(seed + 100).random(len(frame)) < answered]
    scores = correlated_agreement(frame)["score"]
    is_constant = scores.index.isin(["dee", "eve"])
    assert (scores[is_constant] == 0.0).all()
    assert scores[~is_constant].min() > 0.0


@pytest.mark.parametrize("seed", range(3))
def test_liar_scores_below_honest_and_constant_workers(seed):
    """A worker who swaps the labels has a negative score, below constant and honest workers."""
    workers = crowd_of_seven() | {"liar": permuted([[0.65, 0.35], [0.35, 0.65]], [1, 0])}
    scores = correlated_agreement(simulate_reports(4000, workers, clean_prior=0.6, random_state=seed))[
        "score"
    ]
    honest = scores[scores.index.str.startswith("honest")]
    assert scores["liar"] < scores["dee"] == 0.0 < honest.min()


@pytest.mark.parametrize("chunk", [4, 1 << 20])
@pytest.mark.parametrize("answered", [0.2, 0.5, 1.0])
@pytest.mark.parametrize("seed", range(5))
def test_signs_equal_a_loop_over_pairs(monkeypatch, seed, answered, chunk):
    """Sgn(Δ) equals a loop over all pairs of other workers, with missing reports."""
    monkeypatch.setattr(shared_reports, "CHUNK", chunk)
    frame = random_crowd(seed, answered=answered)
    frame.loc[frame["worker"] == 0, "label"] = 1
    np.testing.assert_allclose(correlated_agreement(frame)["score"], scores_by_loops(frame), atol=1e-12)


def test_signs_with_more_labels_than_reports(monkeypatch):
    """Label frequencies that are stored as a sparse table give the same scores as a loop over pairs."""
    frame = random_crowd(0, n_labels=40, answered=1.0, accuracy=0.8)
    monkeypatch.setattr(shared_reports, "CHUNK", 4)
    assert not isinstance(shared_reports.SharedReports(coded(frame)).frequencies, np.ndarray)
    frame["label"] = frame["label"].rank(method="dense").astype(int) - 1  # the loop needs labels without gaps
    np.testing.assert_allclose(correlated_agreement(frame)["score"], scores_by_loops(frame), atol=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_own_reports_do_not_influence_own_signs(seed):
    """If a worker changes its labels, it is still scored with the Sgn(Δ) of the original table."""
    frame = random_crowd(seed)
    rng = np.random.default_rng(seed)
    for worker in frame["worker"].unique():
        changed, own = frame.copy(), frame["worker"] == worker
        changed.loc[own, "label"] = rng.integers(3, size=own.sum())
        given = correlated_agreement(changed, delta=delta_by_loops(frame, worker))
        estimated = correlated_agreement(changed)
        assert estimated.loc[worker, "score"] == pytest.approx(given.loc[worker, "score"], abs=1e-12)


def test_workers_with_one_report_do_not_determine_signs():
    """If every other worker gave one report, Δ cannot be estimated, and Sgn(Δ) is the identity."""
    rows = [(task, "ann", task % 2) for task in range(10)]
    rows += [(task, f"{name}{task}", task % 2) for task in range(10) for name in "ab"]
    assert correlated_agreement(rows).loc["ann", "score"] == pytest.approx(
        correlated_agreement(rows, delta=np.eye(2)).loc["ann", "score"]
    )
