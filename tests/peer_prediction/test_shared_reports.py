"""The contribution of each report to its worker's correlated agreement."""

import numpy as np
import pytest

from peerloss.peer_prediction import correlated_agreement, shared_reports
from tests.crowd.crowds import coded, others_of, random_crowd


@pytest.mark.parametrize("chunk", [4, 1 << 20])
@pytest.mark.parametrize("seed", range(3))
def test_influence_equals_its_definition(monkeypatch, chunk, seed):
    """n/(n − 1)·(u − ū)·(v − v̄), in loops over the reports, for a matrix without symmetry."""
    monkeypatch.setattr(shared_reports, "CHUNK", chunk)
    frame = random_crowd(seed)
    score = np.random.default_rng(seed).normal(size=(3, 3))
    shared = shared_reports.SharedReports(coded(frame))
    kept = [row for row in frame.index if others_of(frame, row)]
    u = np.array([score[frame.loc[row, "label"]] for row in kept])
    v = np.array(
        [np.bincount(others_of(frame, row), minlength=3) / len(others_of(frame, row)) for row in kept]
    )
    who = frame.loc[kept, "worker"].to_numpy()
    expected = np.empty(len(kept))
    for worker in set(who):
        mine = who == worker
        n = mine.sum()
        expected[mine] = n / (n - 1) * ((u[mine] - u[mine].mean(0)) * (v[mine] - v[mine].mean(0))).sum(axis=1)
    np.testing.assert_allclose(
        shared_reports.ca_influence(shared, shared_reports.common_matrix(score)), expected, atol=1e-12
    )


def test_mean_influence_is_the_score():
    """Averaged over a worker's tasks the influences give correlated agreement."""
    frame = random_crowd(5, n_tasks=40)
    delta = np.eye(3) - 0.4
    shared = shared_reports.SharedReports(coded(frame))
    values = shared_reports.ca_influence(shared, shared_reports.common_matrix(np.eye(3)))
    expected = correlated_agreement(frame, delta=delta)["score"]
    np.testing.assert_allclose(shared.mean_by_worker(values), expected, atol=1e-12)
