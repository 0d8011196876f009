"""Killed workers are reported; workers whose parent is killed end."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from peerloss.exceptions import WorkerError
from peerloss.experiments import _parallel
from peerloss.experiments._parallel import _take_from_ray, end_with_parent, spread

#: A parent that starts two workers, which write their process numbers and sleep for an hour.
PARENT = """
import os, sys, time
from pathlib import Path
from peerloss.experiments._parallel import spread

folder = sys.argv[1]

def work(number):
    Path(folder, f"{number}").write_text(str(os.getpid()))
    time.sleep(3600)

for _ in spread(work, range(2), n_jobs=2):
    pass
"""


def kill_itself(number):
    if number == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def is_alive(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    # A zombie has ended; its new parent has not fetched its exit code yet.
    try:
        return (
            Path(f"/proc/{process}/stat").read_text("ascii", "replace").rpartition(")")[2].split()[0]
            not in "ZX"
        )
    except OSError:
        return True


def wait_for(condition, seconds=120.0):
    """Return whether the condition became true; the limit suits a busy machine."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.05)
    return False


needs_kill = pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="this system cannot kill")


@needs_kill
def test_parallel_end_when_their_parent_is_killed(tmp_path):
    """A parent killed by SIGKILL cannot end them: they notice it themselves, as those of Ray do."""
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path)], stderr=subprocess.PIPE)
    try:
        started = wait_for(
            lambda: all((tmp_path / name).exists() for name in "01") or parent.poll() is not None
        )
        assert started, "the workers did not start"
        assert parent.poll() is None, parent.stderr.read().decode()
        assert wait_for(lambda: all((tmp_path / name).read_text() for name in "01"))
        workers = [int((tmp_path / name).read_text()) for name in "01"]
        assert all(map(is_alive, workers))
    finally:
        parent.kill()
        parent.communicate()
    assert wait_for(lambda: not any(map(is_alive, workers)))


@needs_kill
def test_a_killed_worker_is_reported():
    """The error explains what may have happened and how to continue."""
    with pytest.raises(WorkerError, match=r"process was killed.*Run it again, with a smaller `n_jobs`"):
        list(spread(kill_itself, range(2), n_jobs=2))


def test_a_worker_lost_by_ray_is_reported_in_the_same_way():
    """Errors of the function itself are not changed."""
    exceptions = pytest.importorskip("ray", reason="Ray is not installed").exceptions

    def lost(_):
        raise exceptions.WorkerCrashedError

    def failed(_):
        raise exceptions.RayTaskError("work", "a traceback", ZeroDivisionError())

    for get, expected in ((lost, WorkerError), (failed, exceptions.RayTaskError)):
        remote = SimpleNamespace(remote=lambda item: item)
        ray = SimpleNamespace(
            exceptions=exceptions,
            remote=lambda **_: lambda _: remote,
            wait=lambda waiting: (waiting[:1], waiting[1:]),
            get=get,
        )
        with pytest.raises(expected):
            list(_take_from_ray(ray, str, range(2), 1))


def test_only_a_direct_child_watches_its_parent(monkeypatch):
    """Workers of Dask or of a fork server have another parent; they must not end at once."""
    watched = []
    monkeypatch.setattr(_parallel, "_watch", watched.append)
    for process in (os.getpid(), -1):
        end_with_parent(process)
        assert watched == []
    end_with_parent(os.getppid())
    assert watched == [os.getppid()]


def test_one_process_computes_here():
    """Nothing is watched."""
    assert list(spread(str, range(3), n_jobs=1)) == ["0", "1", "2"]
