"""Report the progress of a fit to a callback, also through pipelines and searches around the estimator."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from joblib import Parallel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    #: Called with the number of finished steps and the total number of steps.
    Listener = Callable[[int, int], None]

_LISTENER: ContextVar[Listener | None] = ContextVar("listener", default=None)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Call ``listener(done, total)`` after each step of the fits inside the block."""
    token = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(token)


def in_parallel(calls: list[Any], n_jobs: int | None, *, n_later_steps: int) -> list[Any]:
    """Run joblib's delayed calls and return their results in order.

    Parameters
    ----------
    calls
        Calls made with ``joblib.delayed``.
    n_jobs
        Processes; ``None`` is one.
    n_later_steps
        Number of steps after these calls. They count in the total, so that progress does not reach it here.
    """
    listener = _LISTENER.get()
    if listener is None:
        return list(Parallel(n_jobs=n_jobs)(calls))
    results: list[Any] = []
    total = len(calls) + n_later_steps
    listener(0, total)
    for result in Parallel(n_jobs=n_jobs, return_as="generator")(calls):
        results.append(result)
        listener(len(results), total)
    return results
