"""Tell a listener how far a fit has come, through pipelines and whatever else lies between them."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from joblib import Parallel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    #: Called with the number of steps done and the number of all.
    Listener = Callable[[int, int], None]

_LISTENER: ContextVar[Listener | None] = ContextVar("listener", default=None)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Call ``listener(done, total)`` as fits inside the block go on."""
    token = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(token)


def in_parallel(calls: list[Any], n_jobs: int | None, *, further: int) -> list[Any]:
    """Run joblib's delayed calls and return their results in order.

    Parameters
    ----------
    calls
        What ``delayed`` made.
    n_jobs
        Processes; ``None`` is one.
    further
        Steps that follow after these, so that the listener is not told the end too early.
    """
    listener = _LISTENER.get()
    if listener is None:
        return list(Parallel(n_jobs=n_jobs)(calls))
    results: list[Any] = []
    total = len(calls) + further
    listener(0, total)
    for result in Parallel(n_jobs=n_jobs, return_as="generator")(calls):
        results.append(result)
        listener(len(results), total)
    return results
