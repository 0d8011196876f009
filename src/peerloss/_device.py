"""The choice of a device for the whole library, its memory, and the numbers of threads and processes."""

from __future__ import annotations

import math
import os
from contextlib import contextmanager, nullcontext
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from threadpoolctl import ThreadpoolController
from torch import distributed

from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Layers of small networks from this width on train faster on a GPU than in the compiled loop on the CPU
#: (one network, H200 against EPYC).
GPU_WIDTH = 512
#: Files of Linux with the memory limit of a container, in control groups of version 2 and 1.
CONTAINER_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
#: What torch raises for an unknown name, a missing or broken device, a build without it, a missing package.
_DEVICE_ERRORS = (RuntimeError, AssertionError, ImportError, TypeError)


def resolve_device(
    device: str | torch.device | None = "auto", *, width: int | None = None, gpu_width: int = GPU_WIDTH
) -> torch.device:
    """Return the torch device to compute on; a device that is named must work.

    Parameters
    ----------
    device
        ``"auto"`` (or ``None``) chooses the GPU if there is one that works and the work is large enough for
        it, else the CPU. Any other value is what :class:`torch.device` accepts, such as ``"cpu"`` or
        ``"cuda:1"``.
    width, gpu_width
        Size of the work (hidden units or features), and the size from which on a GPU is faster. Without
        ``width``, ``"auto"`` chooses any GPU.

    Examples
    --------
    >>> resolve_device("cpu"), resolve_device("auto", width=8)
    (device(type='cpu'), device(type='cpu'))
    """
    if device is None or device == "auto":
        is_large_enough = width is None or width >= gpu_width
        return torch.device("cuda" if is_large_enough and _has_usable_gpu() else "cpu")
    try:
        chosen = torch.device(device)
        _try_device(chosen)
    except _DEVICE_ERRORS as error:
        raise InvalidInputError(
            f"`device` must be 'auto' or a torch device such as 'cpu' or 'cuda:0'; {device!r} cannot be used "
            f"here ({str(error).partition(chr(10))[0]}). Use 'auto' to use a GPU only if one works."
        ) from error
    return chosen


def _has_usable_gpu() -> bool:
    """Whether a GPU computes; one that torch finds may be full, reserved or too old for this build."""
    if not torch.cuda.is_available():
        return False
    try:
        _try_device(torch.device("cuda"))
    except _DEVICE_ERRORS:
        return False
    return True


def _try_device(device: torch.device) -> None:
    torch.zeros(1, device=device).item()


def available_memory(device: torch.device) -> float:
    """Return the free memory of a GPU, or the memory of the machine or container for the CPU, in bytes.

    It is infinity if it is not known.
    """
    if device.type == "cuda":
        return float(torch.cuda.mem_get_info(device)[0])
    if device.type == "cpu" and hasattr(os, "sysconf"):  # not on Windows
        return min(float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")), _container_limit())
    return math.inf


def _container_limit() -> float:
    """Return the memory limit of the container in bytes, infinity if there is none."""
    for file in CONTAINER_LIMITS:
        try:
            return float(Path(file).read_text(encoding="ascii"))
        except (OSError, ValueError):  # not a container of this kind, or "max"
            continue
    return math.inf


def count_ranks() -> int:
    """Return the number of processes that train together; 1 without ``torch.distributed``."""
    in_group = distributed.is_available() and distributed.is_initialized()
    return distributed.get_world_size() if in_group else 1


@contextmanager
def one_thread(*, blas: bool = False) -> Iterator[None]:
    """Limit torch to one thread; with ``blas`` also the thread pools of NumPy, SciPy and scikit-learn.

    Small operations become many times slower on two threads if another process uses the second core.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with one_blas_thread() if blas else nullcontext():
            yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit the thread pools of NumPy, SciPy and scikit-learn to one thread.

    Small fits are slower on several, and rounding would depend on their number.
    """
    with _thread_pools().limit(limits=1):
        yield


@cache
def _thread_pools() -> ThreadpoolController:
    """Find the thread pools of the process once, since that takes longer than a small fit."""
    return ThreadpoolController()


def n_workers(n_jobs: int | None, n_tasks: int) -> int:
    """Return the number of workers: not more than there are tasks or cores (of the cluster, with Ray)."""
    from joblib import effective_n_jobs  # noqa: PLC0415 (most modules that use this one do not need it)

    return max(1, min(int(effective_n_jobs(n_jobs)), int(effective_n_jobs(-1)), n_tasks))
