"""Runs that are stopped, killed, doubled and spread end with the cells of an undisturbed run."""

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
from peerloss.experiments._runner import _grouped
from peerloss.experiments._work import run_cells
from tests.experiments.tiny import CIRCUMSTANCES, figures, lines, run_tiny, run_when_ready


@pytest.fixture(scope="module")
def processes():
    """Return a way to start processes at once: their server has imported everything."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.experiments.tiny", "peerloss.training.small._numba_loop"])
    return context


def without_circumstances(record):
    return {name: value for name, value in record.items() if name not in CIRCUMSTANCES}


def test_a_run_has_every_cell_once(spec, undisturbed):
    """Two rows, two priors, four methods, two seeds."""
    cells = load_experiment(spec).cells()
    assert len(cells) == 2 * 2 * 4 * 2
    assert set(undisturbed) == {cell.key for cell in cells}


def test_finished_cells_are_skipped(spec, tmp_path):
    """The second time there is nothing to do, and nothing is written."""
    first = run_tiny(spec, tmp_path)
    before = lines(tmp_path)
    second = run_tiny(spec, tmp_path)
    assert (first.skipped, first.done) == (0, 32)
    assert (second.skipped, second.done) == (32, 0)
    assert lines(tmp_path) == before


def test_figures_do_not_depend_on_the_grouping(spec, undisturbed):
    """Each cell alone, to the last bit what it is among others: DMI too, which is trained in stacks."""
    cells = load_experiment(spec).cells()
    for cell in np.random.default_rng(0).choice(cells, 16, replace=False):
        (record,) = run_cells([cell])
        assert without_circumstances(record) == undisturbed[cell.key]


def test_figures_do_not_depend_on_the_number_of_processes(spec, undisturbed, tmp_path):
    """Two processes find what one did."""
    run_tiny(spec, tmp_path, jobs=2)
    assert figures(tmp_path) == undisturbed


def start(processes, spec, folder):
    """Start a runner and wait until it is about to begin."""
    ready = processes.Event()
    runner = processes.Process(target=run_when_ready, args=(ready, spec, folder))
    runner.start()
    assert ready.wait(60)
    return runner


def test_twenty_kills_lose_nothing(spec, undisturbed, tmp_path, processes):
    """SIGKILL at random moments, twenty times; then one run to the end has exactly the undisturbed cells."""
    whole = start(processes, spec, tmp_path / "whole")
    started = time.monotonic()
    whole.join()
    length = time.monotonic() - started
    folder, pause, counts = tmp_path / "killed", np.random.default_rng(1), []
    for _ in range(20):
        runner = start(processes, spec, folder)
        time.sleep(pause.uniform(0.0, length / 4))
        runner.kill()
        runner.join()
        counts.append(len(Store(folder).done()))
    assert counts == sorted(counts), "what was finished stays finished"
    assert counts[-1] > 0, "some were killed at work"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StoreWarning)  # a kill may have hit a line
        run_tiny(spec, folder)
    assert figures(folder) == undisturbed
    assert len(lines(folder)) == len(undisturbed), "no cell was run again"


def test_two_runners_do_not_harm_each_other(spec, undisturbed, tmp_path, processes):
    """Two at once, one of them killed on the way: the other ends with the undisturbed cells."""
    first, second = (start(processes, spec, tmp_path) for _ in range(2))
    time.sleep(0.2)
    first.kill()
    second.join()
    first.join()
    assert second.exitcode == 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StoreWarning)
        assert figures(tmp_path) == undisturbed


def test_two_runners_share_the_work(spec, undisturbed, tmp_path, processes):
    """Two that live: both end well, the cells are the undisturbed ones, and few were found twice."""
    runners = [start(processes, spec, tmp_path) for _ in range(2)]
    for runner in runners:
        runner.join()
    assert [runner.exitcode for runner in runners] == [0, 0]
    assert figures(tmp_path) == undisturbed
    assert len(lines(tmp_path)) < 2 * len(undisturbed)


def test_an_error_in_one_cell_does_not_end_the_run(spec, tmp_path, monkeypatch):
    """It is told with its traceback, is not stored, and is tried again next time."""
    experiment = load_experiment(spec, methods=["pam", "c-svm"])

    def broken(_, **__):
        raise ZeroDivisionError("on purpose")

    with monkeypatch.context() as patched, Store(tmp_path) as store:
        patched.setitem(METHODS, "pam", EstimatorMethod("PAM", broken))
        summary = run_experiment(experiment, store, jobs=1)
    assert (summary.done, len(summary.failed)) == (8, 8)
    assert all("on purpose" in trace for trace in summary.failed.values())
    with Store(tmp_path) as store:
        again = run_experiment(experiment, store, jobs=1)
    assert (again.skipped, again.done, again.failed) == (8, 8, {})


def test_an_interrupted_run_leaves_a_usable_store(spec, undisturbed, tmp_path):
    """Ctrl-C comes through, and the next run does only what is left."""

    def interrupt(summary):
        if summary.done >= 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_tiny(spec, tmp_path, on_progress=interrupt)
    left = run_tiny(spec, tmp_path)
    assert left.skipped >= 5
    assert left.skipped + left.done == len(undisturbed)
    assert figures(tmp_path) == undisturbed


def test_networks_of_a_row_are_one_piece_of_work(spec):
    """So that the engine trains them together; other methods are spread cell by cell."""
    pieces = _grouped(load_experiment(spec).cells())
    sizes = sorted(len(piece) for piece in pieces)
    assert sizes == [1] * 16 + [4] * 4


def test_ray_finds_the_same(spec, undisturbed, tmp_path, monkeypatch):
    """A local Ray of two workers, where the home folder cannot be written."""
    pytest.importorskip("ray", reason="Ray is not installed")
    (tmp_path / "no-home").touch()
    monkeypatch.setenv("HOME", str(tmp_path / "no-home"))
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    monkeypatch.delenv("RAY_AUTH_TOKEN_PATH", raising=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ray warns of its own future
        run_tiny(spec, tmp_path / "runs", jobs=2, backend="ray")
    assert figures(tmp_path / "runs") == undisturbed
    assert "RAY_AUTH_TOKEN" not in os.environ


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"backend": "dask"}, "`backend` must be one of 'joblib', 'ray'"),
        ({"jobs": 0}, "`jobs` must be"),
        ({"address": "auto"}, "`address` is for backend 'ray'"),
    ],
)
def test_wrong_options_are_refused(spec, tmp_path, options, told):
    """Before anything runs."""
    with pytest.raises(InvalidInputError, match=told):
        run_tiny(spec, tmp_path, **options)
    assert not list(tmp_path.glob("records-*"))
