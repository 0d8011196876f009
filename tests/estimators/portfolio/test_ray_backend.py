"""Models and folds on Ray, through joblib."""

import joblib
import numpy as np
import pytest

from peerloss import PeerClassifier, find_label_issues
from tests.estimators.binary_task import task

ray = pytest.importorskip("ray", reason="Ray is not installed")


@pytest.fixture(scope="module")
def two_workers():
    """Start Ray on this machine with two workers."""
    from ray.util.joblib import register_ray  # noqa: PLC0415 - only if Ray is installed

    ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    register_ray()
    yield
    ray.shutdown()


@pytest.fixture
def stored(monkeypatch):
    """Record what is put into the object store."""
    found, put = [], ray.put
    monkeypatch.setattr(
        ray, "put", lambda value, *args, **options: found.append(value) or put(value, *args, **options)
    )
    return found


@pytest.mark.filterwarnings("ignore::FutureWarning")  # Ray warns about its own future settings
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # and leaves log files open
@pytest.mark.usefixtures("two_workers")
def test_a_fit_on_ray_equals_a_fit_here(stored):
    """Two workers fit the complete portfolio; the data are put into the object store once."""
    X, _, noisy = task(150)
    expected = PeerClassifier(cv=2, random_state=0).fit(X, noisy).predict_proba(X)
    with joblib.parallel_config("ray", n_jobs=2):
        model = PeerClassifier(cv=2, random_state=0).fit(X, noisy)
    np.testing.assert_array_equal(model.predict_proba(X), expected)
    assert [type(value).__name__ for value in stored].count("FitInput") == 1


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.usefixtures("two_workers", "small_portfolio")
def test_an_audit_on_ray_equals_an_audit_here():
    """Out-of-fold probabilities of the audit come from the workers."""
    X, _, noisy = task(150)
    expected = find_label_issues(X, noisy, cv=2, random_state=0).table
    with joblib.parallel_config("ray", n_jobs=2):
        found = find_label_issues(X, noisy, cv=2, random_state=0).table
    assert found.equals(expected)
