"""Spread work over processes of this machine (joblib) or over a Ray cluster; results come when ready."""

from __future__ import annotations

import os
import secrets
import threading
import time
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from joblib import Parallel, delayed, effective_n_jobs

from peerloss._validation import check_choice
from peerloss.exceptions import InvalidInputError, WorkerError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

BACKENDS = ("joblib", "ray")
#: Seconds between two looks of a worker at whether its parent process is alive.
WATCH_EVERY = 0.5
#: What Ray raises when a worker, its machine or its result is gone.
RAY_LOST = (
    "LocalRayletDiedError",
    "NodeDiedError",
    "ObjectLostError",
    "OutOfMemoryError",
    "WorkerCrashedError",
)
_In = TypeVar("_In")
_Out = TypeVar("_Out")


def spread(
    function: Callable[[_In], _Out],
    items: Iterable[_In],
    *,
    backend: str = "joblib",
    jobs: int = -1,
    address: str | None = None,
) -> Iterator[_Out]:
    """Yield the function's values in the order they are ready; an item is taken when a worker is free for it.

    Parameters
    ----------
    function, items
        What to compute; both travel to other processes.
    backend
        ``"joblib"`` or ``"ray"``.
    jobs
        Processes; −1 takes every core (of the cluster, with Ray). One works in this process.
    address
        Address of a running Ray cluster; ``None`` starts one on this machine.

    Raises
    ------
    WorkerError
        While values are taken: a worker was killed.
    """
    check_choice(backend, "backend", BACKENDS)
    if not isinstance(jobs, int) or (jobs < 1 and jobs != -1):
        raise InvalidInputError(f"`jobs` must be a number of processes, or -1 for every core; got {jobs!r}.")
    if address is not None and backend != "ray":
        raise InvalidInputError(f"`address` is for backend 'ray'; got backend {backend!r}.")
    if backend == "ray":
        return _spread_on_ray(function, items, jobs, address)
    if effective_n_jobs(jobs) == 1:
        return map(function, items)
    return _spread_on_processes(function, items, jobs)


@contextmanager
def worker_errors(
    kinds: tuple[type[Exception], ...] = (BrokenProcessPool,), *, stored: bool = True
) -> Iterator[None]:
    """Turn what joblib (or, by other ``kinds``, Ray) raises for a lost worker into :class:`WorkerError`.

    The message says whether results are ``stored`` as they come.
    """
    try:
        yield
    except kinds as error:
        raise WorkerError(
            "A worker process was killed, most often by the system because memory ran out. "
            f"{'What is finished is kept' if stored else 'Nothing was stored'}: run the same command again, "
            "with fewer `jobs` if memory is short."
        ) from error


def end_with_parent(parent: int) -> None:
    """End this process, a worker, soon after the process ``parent`` that started it, however that ended.

    A killed parent cannot tell its workers. Only direct children of ``parent`` watch it: others, such as
    workers of Dask or of a fork server, have another parent from the start. (Windows does not show that a
    parent has gone; there a worker ends when it has been idle for some minutes.)
    """
    if os.getppid() == parent:
        _watch(parent)


@cache
def _watch(parent: int) -> None:
    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(WATCH_EVERY)
        os._exit(1)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


def _spread_on_processes(function: Callable[[_In], _Out], items: Iterable[_In], jobs: int) -> Iterator[_Out]:
    workers = Parallel(jobs, return_as="generator_unordered", batch_size=1, pre_dispatch="n_jobs")
    with worker_errors():
        yield from workers(delayed(_in_worker)(function, item, os.getpid()) for item in items)


def _in_worker(function: Callable[[_In], _Out], item: _In, parent: int) -> _Out:
    end_with_parent(parent)
    return function(item)


def _spread_on_ray(
    function: Callable[[_In], _Out], items: Iterable[_In], jobs: int, address: str | None
) -> Iterator[_Out]:
    try:
        ray: Any = import_module("ray")
    except ImportError as error:
        raise InvalidInputError(
            "`backend` 'ray' needs Ray: pip install 'peerloss[ray]'. Or use backend='joblib'."
        ) from error
    cores = {} if address is not None else {"num_cpus": effective_n_jobs(jobs), "include_dashboard": False}
    if ray.is_initialized():
        yield from _take_from_ray(ray, function, items, jobs)
        return
    with _ray_token(needed=address is None):
        ray.init(address=address, log_to_driver=False, configure_logging=False, **cores)
        try:
            yield from _take_from_ray(ray, function, items, jobs)
        finally:
            ray.shutdown()


@contextmanager
def _ray_token(*, needed: bool) -> Iterator[None]:
    """Give a cluster that starts here a token of its own if Ray cannot save one in the home folder."""
    named = "RAY_AUTH_TOKEN" in os.environ or "RAY_AUTH_TOKEN_PATH" in os.environ
    if not needed or named or _has_ray_folder():
        yield
        return
    os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
    try:
        yield
    finally:
        del os.environ["RAY_AUTH_TOKEN"]


def _has_ray_folder() -> bool:
    """Whether Ray's token is in the home folder, or can be written there."""
    try:
        folder = Path.home() / ".ray"
        if (folder / "auth_token").is_file():
            return True
        place = folder if folder.exists() else folder.parent
        return place.is_dir() and os.access(place, os.W_OK)
    except (OSError, RuntimeError):  # a home that may not be looked into; a user without one
        return False


def _take_from_ray(
    ray: Any, function: Callable[[_In], _Out], items: Iterable[_In], jobs: int
) -> Iterator[_Out]:
    with worker_errors(tuple(getattr(ray.exceptions, name) for name in RAY_LOST)):
        limit = jobs if jobs > 0 else max(1, int(ray.cluster_resources().get("CPU", 1)))
        remote: Any = ray.remote(num_cpus=1)(function)
        waiting: list[Any] = []
        for item in items:
            waiting.append(remote.remote(item))
            while len(waiting) >= limit:
                ready, waiting = ray.wait(waiting)
                yield from ray.get(ready)
        while waiting:
            ready, waiting = ray.wait(waiting)
            yield from ray.get(ready)
