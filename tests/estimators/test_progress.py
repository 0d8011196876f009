"""A listener hears how far a fit has come, and changes nothing."""

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from peerloss import NoiseModel, PeerClassifier, flip_labels
from peerloss.estimators.progress import listening


@pytest.fixture(scope="module")
def task():
    X = np.random.default_rng(0).normal(size=(120, 3))
    return X, flip_labels((X[:, 0] > 0).astype(int), NoiseModel.binary(0.1, 0.3), random_state=0)


def model(n_jobs=None):
    return make_pipeline(StandardScaler(), PeerClassifier(cv=2, n_jobs=n_jobs, random_state=0))


@pytest.mark.parametrize("n_jobs", [None, 2])
def test_listening_changes_nothing(task, n_jobs):
    """Predictions are equal to the last bit; steps count up to the total, less what follows."""
    X, y = task
    alone = model().fit(X, y)
    heard = []
    with listening(lambda done, total: heard.append((done, total))):
        told = model(n_jobs).fit(X, y)
    assert np.array_equal(alone.predict_proba(X), told.predict_proba(X))
    total = heard[0][1]
    assert heard == [(done, total) for done in range(total)]
    assert total > 10


def test_the_listener_is_gone_after_the_block(task):
    """Also when a fit has failed in between."""
    X, y = task
    heard = []
    with (
        pytest.raises(ValueError, match="metric"),
        listening(lambda done, total: heard.append((done, total))),
    ):
        PeerClassifier(metric="nonsense").fit(X, y)
    model().fit(X, y)
    assert not heard
