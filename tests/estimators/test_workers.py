"""``n_jobs`` and ``random_state`` of PeerClassifier: what is refused, and how many workers are started."""

import numpy as np
import pytest
from joblib import Parallel, cpu_count, parallel_config

from peerloss._device import n_workers
from peerloss.estimators import PeerClassifier
from peerloss.estimators.portfolio import _fit_portfolio
from peerloss.exceptions import InvalidInputError
from tests.estimators.blobs import blobs


def cross_fit(model, X, y):
    return model.cross_val_noisy_proba(X, y)


@pytest.mark.parametrize("call", [PeerClassifier.fit, cross_fit])
@pytest.mark.parametrize("n_jobs", [0, 1.5, "all", True], ids=str)
def test_a_wrong_number_of_jobs_is_refused(call, n_jobs):
    """The message names the argument, the values that are accepted, and the value received."""
    X, y = blobs(40)
    expected = f"`n_jobs` must be an integer other than 0, or None; got {n_jobs!r}. Use 1"
    with pytest.raises(InvalidInputError, match=expected):
        call(PeerClassifier(n_jobs=n_jobs), X, y)


@pytest.mark.parametrize("call", [PeerClassifier.fit, cross_fit])
@pytest.mark.parametrize("seed", [-1, 2**32, "x", 0.5], ids=str)
def test_a_wrong_seed_is_refused(call, seed):
    """The message names the argument, the range of seeds, and the value received."""
    X, y = blobs(40)
    with pytest.raises(InvalidInputError, match=rf"`random_state` must be .* 2\*\*32 - 1.* got {seed!r}"):
        call(PeerClassifier(random_state=seed), X, y)


@pytest.mark.parametrize("seed", [0, 2**32 - 1, np.int64(3), np.random.RandomState(1), None], ids=str)
def test_seeds_of_scikit_learn_are_accepted(seed, small_portfolio):  # noqa: ARG001 (a fixture)
    """Integers, a RandomState and None are accepted."""
    X, y = blobs(40)
    assert PeerClassifier(random_state=seed).fit(X, y).score(X, y) > 0.5


def test_there_are_no_more_workers_than_tasks_or_cores():
    """The number of workers is at most that of the tasks and of the cores, and at least one."""
    cores = cpu_count()
    assert n_workers(100, 1000) == cores
    assert n_workers(100, 1) == 1
    assert n_workers(-1, 1000) == cores
    assert n_workers(-1000, 10) == 1
    assert n_workers(None, 10) == n_workers(1, 10) == 1
    assert n_workers(4, 0) == 1
    with parallel_config(n_jobs=2):
        assert n_workers(None, 10) == min(2, cores)


@pytest.mark.parametrize("verbose", [False, True])
def test_many_jobs_start_few_workers(verbose, small_portfolio, monkeypatch):  # noqa: ARG001 (a fixture)
    """The portfolio is fitted with as many workers as cores, and the result is that of one worker."""
    started = []

    def recorded(n_jobs=None, **options):
        started.append(n_jobs)
        return Parallel(n_jobs=1, **options)

    monkeypatch.setattr(_fit_portfolio, "Parallel", recorded)
    X, y = blobs(60)
    many, one = (
        PeerClassifier(n_jobs=n_jobs, random_state=0, verbose=verbose).fit(X, y).predict_proba(X)
        for n_jobs in (100, 1)
    )
    assert started == [min(cpu_count(), 20), 1]
    np.testing.assert_array_equal(many, one)
