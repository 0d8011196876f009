"""Bootstrap intervals of scores."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from peerloss.crowd import score_annotators, scoring
from peerloss.peer_prediction.shared_reports import SharedReports
from tests.crowd.crowds import coded, random_crowd


def intervals(shared, values, **options):
    options = {"confidence": 0.95, "n_bootstrap": 200, "generator": np.random.default_rng(0)} | options
    return scoring.bootstrap_intervals(shared, values, **options)


def test_intervals_have_the_width_of_student_t():
    """The intervals are as wide as those of Student's t, whatever the number of tasks."""
    rng = np.random.default_rng(0)
    sizes = [3, 5, 20, 200]
    frame = pd.concat(
        pd.DataFrame({"task": np.arange(n), "worker": w, "label": rng.integers(2, size=n)})
        for w, n in enumerate([*sizes, 200])
    )
    shared = SharedReports(coded(frame))
    values = rng.normal(size=len(shared.worker))
    low, high = intervals(shared, values, n_bootstrap=20_000)
    for w, n in enumerate(sizes):
        mine = values[shared.worker == w]
        exact = stats.t.ppf(0.975, n - 1) * mine.std(ddof=1) / np.sqrt(n)
        # Means of a few weighted values have lighter tails than the normal distribution.
        assert (high[w] - low[w]) / 2 == pytest.approx(exact, rel=0.12 if n < 10 else 0.05)


def test_memory_blocks_and_threads_change_nothing(monkeypatch):
    """The same seed gives the same interval in one block or in many, in one thread or in several."""
    shared = SharedReports(coded(random_crowd(1, n_workers=9)))
    values = np.random.default_rng(0).normal(size=len(shared.worker))
    one = intervals(shared, values, n_jobs=1)
    np.testing.assert_array_equal(one, intervals(shared, values, n_jobs=3))
    monkeypatch.setattr(scoring, "MAX_SCORES", 400)
    np.testing.assert_allclose(one, intervals(shared, values), rtol=1e-12)


def test_no_interval_from_two_tasks():
    """Two tasks give a score but no estimate of its error."""
    frame = pd.DataFrame(
        [(t, w, (t + (w == "c" and t == 3)) % 2) for t in range(4) for w in "abc" if w != "b" or t < 2],
        columns=["task", "worker", "label"],
    )
    row = score_annotators(frame, random_state=0).loc["b"]
    assert np.isfinite(row["score"])
    assert np.isnan(row["low"])
    assert np.isnan(row["high"])
