"""Spread work over processes of this machine (joblib) or over a Ray cluster; results come when ready."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from joblib import Parallel, delayed, effective_n_jobs

from peerloss._validation import check_choice
from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

BACKENDS = ("joblib", "ray")
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
        Of a running Ray cluster; ``None`` starts one on this machine.
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
    workers = Parallel(jobs, return_as="generator_unordered", batch_size=1, pre_dispatch="n_jobs")
    values: Iterator[_Out] = workers(delayed(function)(item) for item in items)
    return values


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
    ours = not ray.is_initialized()
    if ours:
        ray.init(address=address, log_to_driver=False, configure_logging=False, **cores)
    try:
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
    finally:
        if ours:
            ray.shutdown()
