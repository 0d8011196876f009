"""Map a function over processes on this machine (joblib) or on a Ray cluster."""

from __future__ import annotations

import os
import secrets
import threading
import time
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from joblib import Parallel, delayed, effective_n_jobs

from peerloss._installing import install_command
from peerloss._validation import check_choice
from peerloss.exceptions import InvalidInputError, WorkerError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

BACKENDS = ("joblib", "ray")
#: Seconds after which a worker checks again whether its parent process is alive.
WATCH_EVERY = 0.5
#: The exceptions that Ray raises if a worker, its machine or its result is lost.
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
    n_jobs: int = -1,
    address: str | None = None,
) -> Iterator[_Out]:
    """Yield the function's values in the order they are ready; an item is taken when a process is free.

    ``n_jobs=-1`` uses every core (of the cluster, with Ray). With joblib, ``n_jobs=1`` computes in this
    process. With Ray, a cluster is started on this machine if there is no ``address`` and Ray is not yet
    initialised. If a worker is killed, the iterator raises ``WorkerError``.
    """
    check_backend(backend=backend, n_jobs=n_jobs, address=address)
    if backend == "ray":
        return _spread_on_ray(function, items, n_jobs, address)
    if effective_n_jobs(n_jobs) == 1:
        return map(function, items)
    return _spread_on_processes(function, items, n_jobs)


def check_backend(*, backend: str = "joblib", n_jobs: int = -1, address: str | None = None) -> None:
    """Raise ``InvalidInputError`` for options that :func:`spread` does not accept."""
    check_choice(backend, "backend", BACKENDS)
    if not isinstance(n_jobs, int) or (n_jobs < 1 and n_jobs != -1):
        raise InvalidInputError(
            f"`n_jobs` must be a number of processes, or -1 for every core; got {n_jobs!r}."
        )
    if address is not None and backend != "ray":
        raise InvalidInputError(f"`address` is for backend 'ray'; got backend {backend!r}.")


@contextmanager
def worker_errors(
    kinds: tuple[type[Exception], ...] = (BrokenProcessPool,), *, stored: bool = True
) -> Iterator[None]:
    """Turn the exceptions of joblib (or, by ``kinds``, of Ray) for a lost worker into ``WorkerError``."""
    try:
        yield
    except kinds as error:
        raise WorkerError(
            "A worker process was killed, most often by the system because memory ran out. "
            f"{'Finished results are kept' if stored else 'Nothing was stored'}. Run it again, with a "
            "smaller `n_jobs` if memory is short."
        ) from error


def end_with_parent(parent: int) -> None:
    """End this worker process soon after its ``parent`` has ended: a killed parent cannot notify it.

    Only direct children watch: workers of Dask or of a fork server have another parent from the start. (On
    Windows a process cannot see that its parent has ended; a worker ends after some idle minutes.)
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


def _spread_on_processes(
    function: Callable[[_In], _Out], items: Iterable[_In], n_jobs: int
) -> Iterator[_Out]:
    workers = Parallel(n_jobs, return_as="generator_unordered", batch_size=1, pre_dispatch="n_jobs")
    with worker_errors():
        yield from workers(delayed(_in_worker)(function, item, os.getpid()) for item in items)


def _in_worker(function: Callable[[_In], _Out], item: _In, parent: int) -> _Out:
    end_with_parent(parent)
    return function(item)


def _spread_on_ray(
    function: Callable[[_In], _Out], items: Iterable[_In], n_jobs: int, address: str | None
) -> Iterator[_Out]:
    try:
        ray: Any = import_module("ray")
    except ImportError as error:
        raise InvalidInputError(
            f"`backend` 'ray' needs Ray: {install_command('ray')}. Or use the backend 'joblib'."
        ) from error
    if ray.is_initialized():
        yield from _take_from_ray(ray, function, items, n_jobs)
        return
    cores = {} if address is not None else {"num_cpus": effective_n_jobs(n_jobs), "include_dashboard": False}
    with _ray_token(needed=address is None):
        ray.init(address=address, log_to_driver=False, configure_logging=False, **cores)
        try:
            yield from _take_from_ray(ray, function, items, n_jobs)
        finally:
            ray.shutdown()


@contextmanager
def _ray_token(*, needed: bool) -> Iterator[None]:
    """Set a token for a cluster started here if Ray cannot save one in the home folder."""
    needed = needed and not ({"RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"} & set(os.environ) or _has_ray_folder())
    if needed:
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
    try:
        yield
    finally:
        if needed:
            del os.environ["RAY_AUTH_TOKEN"]


def _has_ray_folder() -> bool:
    """Whether Ray's token is in the home folder or can be written there."""
    try:
        folder = Path.home() / ".ray"
        if (folder / "auth_token").is_file():
            return True
        place = folder if folder.exists() else folder.parent
        return place.is_dir() and os.access(place, os.W_OK)
    except (OSError, RuntimeError):  # a home folder without read permission; a user without one
        return False


def _take_from_ray(
    ray: Any, function: Callable[[_In], _Out], items: Iterable[_In], n_jobs: int
) -> Iterator[_Out]:
    with worker_errors(tuple(getattr(ray.exceptions, name) for name in RAY_LOST)):
        limit = n_jobs if n_jobs > 0 else max(1, int(ray.cluster_resources().get("CPU", 1)))
        remote: Any = ray.remote(num_cpus=1)(function)
        left = iter(items)
        waiting: list[Any] = []
        while waiting := [*waiting, *(remote.remote(item) for item in islice(left, limit - len(waiting)))]:
            ready, waiting = ray.wait(waiting)
            yield from ray.get(ready)
