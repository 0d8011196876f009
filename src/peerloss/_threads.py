"""Limit the number of threads for small computations."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

import torch
from threadpoolctl import threadpool_limits

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def one_thread(*, blas: bool = False) -> Iterator[None]:
    """Limit torch to one thread; with ``blas`` also the thread pools of NumPy, SciPy and scikit-learn.

    Small operations become ten times slower on two threads if another process uses the second core. The other
    thread pools are an option because finding them takes milliseconds.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1) if blas else nullcontext():
            yield
    finally:
        torch.set_num_threads(before)
