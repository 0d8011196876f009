"""Reports of progress."""

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from peerloss import NoiseModel, PeerClassifier, flip_labels
from peerloss.estimators.portfolio import listening


@pytest.fixture(scope="module")
def task():
    X = np.random.default_rng(0).normal(size=(120, 3))
    return X, flip_labels((X[:, 0] > 0).astype(int), NoiseModel.binary(0.1, 0.3), random_state=0)


def model(n_jobs=None):
    return make_pipeline(StandardScaler(), PeerClassifier(cv=2, n_jobs=n_jobs, random_state=0))


@pytest.mark.parametrize("n_jobs", [None, 2])
def test_listening_changes_nothing(task, n_jobs):
    """Predictions are bit-equal; the reported steps count up to the total, except the later steps."""
    X, y = task
    silent = model().fit(X, y)
    reports = []
    with listening(lambda done, total: reports.append((done, total))):
        listened = model(n_jobs).fit(X, y)
    assert np.array_equal(silent.predict_proba(X), listened.predict_proba(X))
    total = reports[0][1]
    assert reports == [(done, total) for done in range(total)]
    assert total > 10


def test_the_listener_is_removed_after_the_block(task):
    """The listener is also removed after a failed fit."""
    X, y = task
    reports = []
    with (
        pytest.raises(ValueError, match="metric"),
        listening(lambda done, total: reports.append((done, total))),
    ):
        PeerClassifier(metric="nonsense").fit(X, y)
    model().fit(X, y)
    assert not reports
