"""Experiments that are stopped, killed, run twice or in parallel end with the same records."""

import multiprocessing
import os
import time
import warnings

import numpy as np
import pytest

from peerloss.exceptions import InvalidInputError
from peerloss.experiments import (
    METHODS,
    EstimatorMethod,
    Store,
    StoreWarning,
    load_experiment,
    run_experiment,
)
from peerloss.experiments.tables._execute_runs import execute_runs
from tests.experiments.tiny import CIRCUMSTANCES, lines, results, run_tiny, run_when_ready


@pytest.fixture(scope="module")
def processes():
    """Return a context that starts processes quickly: their server has imported everything."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.experiments.tiny", "peerloss.training.small._numba_loop"])
    return context


def without_circumstances(record):
    return {name: value for name, value in record.items() if name not in CIRCUMSTANCES}


def test_every_run_has_one_record(spec, undisturbed):
    """Two rows, two priors, four methods, two seeds."""
    runs = load_experiment(spec).runs()
    assert len(runs) == 2 * 2 * 4 * 2
    assert set(undisturbed) == {run.key for run in runs}


def test_finished_runs_are_skipped(spec, tmp_path):
    """The second time there is nothing to do, and nothing is written."""
    first = run_tiny(spec, tmp_path)
    before = lines(tmp_path)
    second = run_tiny(spec, tmp_path)
    assert (first.skipped, first.done) == (0, 32)
    assert (second.skipped, second.done) == (32, 0)
    assert lines(tmp_path) == before


def test_runs_done_by_another_process_are_not_left(spec, tmp_path):
    """They count as done, and not in the remaining cost from which the remaining time is estimated."""
    others = []

    def finish_all(_):
        if not others:
            others.append(run_tiny(spec, tmp_path))

    summary = run_tiny(spec, tmp_path, on_record=finish_all)
    assert (summary.skipped, summary.done) == (0, 32)
    assert others[0].done == 32 - others[0].skipped > 0
    assert summary.remaining_cost == 0


def test_results_do_not_depend_on_the_batches(spec, undisturbed):
    """A run alone has bit-equal results, also with DMI, which is trained in stacks."""
    runs = load_experiment(spec).runs()
    for run in np.random.default_rng(0).choice(runs, 16, replace=False):
        (record,) = execute_runs([run])
        assert without_circumstances(record) == undisturbed[run.key]


def test_results_do_not_depend_on_the_number_of_processes(spec, undisturbed, tmp_path):
    """Two processes give the results of one."""
    run_tiny(spec, tmp_path, n_jobs=2)
    assert results(tmp_path) == undisturbed


def start(processes, spec, folder):
    """Start a process and wait until it is about to begin."""
    ready = processes.Event()
    process = processes.Process(target=run_when_ready, args=(ready, spec, folder))
    process.start()
    assert ready.wait(60)
    return process


def test_twenty_kills_lose_nothing(spec, undisturbed, tmp_path, processes):
    """SIGKILL at random times, twenty times; then one run to the end has exactly the undisturbed records."""
    complete = start(processes, spec, tmp_path / "undisturbed")
    started = time.monotonic()
    complete.join()
    length = time.monotonic() - started
    folder, pause, counts = tmp_path / "killed", np.random.default_rng(1), []
    for _ in range(20):
        process = start(processes, spec, folder)
        time.sleep(pause.uniform(0.0, length / 2))  # in a quarter nothing may be finished
        process.kill()
        process.join()
        counts.append(len(Store(folder).done()))
    assert counts == sorted(counts), "finished runs stay finished"
    assert counts[-1] > 0, "some were killed while they were working"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StoreWarning)  # a line may have been cut
        run_tiny(spec, folder)
    assert results(folder) == undisturbed
    assert len(lines(folder)) == len(undisturbed), "no run was repeated"


def test_two_processes_can_share_a_store(spec, undisturbed, tmp_path, processes):
    """One of them is killed; the other ends with the undisturbed records."""
    first, second = (start(processes, spec, tmp_path) for _ in range(2))
    time.sleep(0.2)
    first.kill()
    second.join()
    first.join()
    assert second.exitcode == 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StoreWarning)
        assert results(tmp_path) == undisturbed


def test_two_processes_share_the_runs(spec, undisturbed, tmp_path, processes):
    """Both end without errors and with the undisturbed records, few of which are duplicates."""
    started = [start(processes, spec, tmp_path) for _ in range(2)]
    for process in started:
        process.join()
    assert [process.exitcode for process in started] == [0, 0]
    assert results(tmp_path) == undisturbed
    assert len(lines(tmp_path)) < 2 * len(undisturbed)


def test_an_error_in_one_run_does_not_stop_the_others(spec, tmp_path, monkeypatch):
    """It is reported with its traceback, is not stored, and is tried again next time."""
    experiment = load_experiment(spec, methods=["pam", "c-svm"])

    def broken(_, **__):
        raise ZeroDivisionError("on purpose")

    with monkeypatch.context() as patched, Store(tmp_path) as store:
        patched.setitem(METHODS, "pam", EstimatorMethod("PAM", broken))
        summary = run_experiment(experiment, store, n_jobs=1)
    assert (summary.done, len(summary.failed)) == (8, 8)
    assert all("on purpose" in trace for trace in summary.failed.values())
    with Store(tmp_path) as store:
        again = run_experiment(experiment, store, n_jobs=1)
    assert (again.skipped, again.done, again.failed) == (8, 8, {})


def test_an_interrupted_run_leaves_a_usable_store(spec, undisturbed, tmp_path):
    """Ctrl-C is not caught, and the next call executes only the missing runs."""

    def interrupt(summary):
        if summary.done >= 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_tiny(spec, tmp_path, on_progress=interrupt)
    left = run_tiny(spec, tmp_path)
    assert left.skipped >= 5
    assert left.skipped + left.done == len(undisturbed)
    assert results(tmp_path) == undisturbed


def test_networks_of_a_row_are_one_batch(spec):
    """The engine trains them together; runs of other methods are executed one by one."""
    experiment = load_experiment(spec)
    sizes = sorted(len(batch) for batch in experiment.batches(experiment.runs()))
    assert sizes == [1] * 16 + [4] * 4


def test_ray_gives_the_same_results(spec, undisturbed, tmp_path, monkeypatch):
    """A local Ray cluster with two workers, with a home folder that is not writable."""
    pytest.importorskip("ray", reason="Ray is not installed")
    (tmp_path / "no-home").touch()
    monkeypatch.setenv("HOME", str(tmp_path / "no-home"))
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    monkeypatch.delenv("RAY_AUTH_TOKEN_PATH", raising=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ray warns about its future versions
        run_tiny(spec, tmp_path / "runs", n_jobs=2, backend="ray")
    assert results(tmp_path / "runs") == undisturbed
    assert "RAY_AUTH_TOKEN" not in os.environ


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"backend": "dask"}, "`backend` must be one of 'joblib', 'ray'"),
        ({"n_jobs": 0}, "`n_jobs` must be"),
        ({"resources": object()}, "`resources` does not apply to tiny"),
        ({"address": "auto"}, "`address` is for backend 'ray'"),
    ],
)
def test_wrong_options_are_rejected(spec, tmp_path, options, message):
    """Before anything runs."""
    with pytest.raises(InvalidInputError, match=message):
        run_tiny(spec, tmp_path, **options)
    assert not list(tmp_path.iterdir())
