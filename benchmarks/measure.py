"""Shared helpers of the benchmarks: medians of time, peak memory, provenance, output."""

from __future__ import annotations

import os
import platform
import shutil
import statistics
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch.profiler import ProfilerActivity, profile

import peerloss

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def median_times(
    functions: Mapping[str, Callable[[], object]], *, rounds: int, device: str
) -> dict[str, float]:
    """Return the median seconds of each function. They are called alternately, so that drift affects all."""
    times = _times(functions, rounds, device)
    return {name: statistics.median(values) for name, values in times.items()}


def paired_ratios(
    functions: Mapping[str, Callable[[], object]], reference: str, *, rounds: int, device: str
) -> tuple[dict[str, float], dict[str, float]]:
    """Return the median seconds of each function, and the median of its ratio to ``reference`` by round.

    All functions run once per round, so on a busy machine a round slows them down together, and the ratios
    vary less than the times.
    """
    times = _times(functions, rounds, device)
    ratios = {
        name: statistics.median(a / b for a, b in zip(values, times[reference], strict=True))
        for name, values in times.items()
    }
    return {name: statistics.median(values) for name, values in times.items()}, ratios


def _times(functions: Mapping[str, Callable[[], object]], rounds: int, device: str) -> dict[str, list[float]]:
    """Return the seconds of each function in each round, after three calls that are not measured."""
    for function in functions.values():
        for _ in range(3):
            function()
    times: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(rounds):
        for name, function in functions.items():
            times[name].append(_seconds(function, device))
    return times


def _seconds(function: Callable[[], object], device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    function()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def peak_bytes(function: Callable[[], object], *, device: str) -> int:
    """Return the peak memory of a call beyond the memory in use before it."""
    function()  # the first call allocates workspaces that are kept
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        function()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        function()
    held = peak = 0
    assert record.profiler is not None  # noqa: S101 (set after the profiler has run)
    events = [e for e in record.profiler.kineto_results.events() if e.name() == "[memory]"]
    for event in sorted(events, key=lambda e: e.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak


def provenance(device: str) -> str:
    """Return commit, versions and machine, for the head of a table."""
    machine = torch.cuda.get_device_name() if device == "cuda" else _processor()
    threads = ""
    if device != "cuda":
        count = torch.get_num_threads()
        threads = f", {count} thread{'s' if count > 1 else ''}"
    return (
        f"commit {_commit()}, peerloss {peerloss.__version__}, torch {torch.__version__}, "
        f"Python {platform.python_version()}, {machine}{threads}"
    )


def _commit() -> str:
    """Return the commit from git, else from the environment variable PEERLOSS_COMMIT."""
    git = shutil.which("git")
    root = str(Path(__file__).resolve().parent.parent)

    def run_git(*command: str) -> str:
        if git is None:
            return ""
        run = subprocess.run([git, "-C", root, *command], capture_output=True, text=True, check=False)
        return run.stdout.strip()

    commit = run_git("rev-parse", "--short", "HEAD")
    if not commit:
        return os.environ.get("PEERLOSS_COMMIT", "unknown")
    return f"{commit} with changes" if run_git("status", "--porcelain") else commit


def publish(text: str, path: Path | None) -> None:
    """Print a text; also write it to ``path`` unless it is ``None``."""
    print(text)
    if path is not None:
        path.write_text(text, encoding="utf-8")


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()
