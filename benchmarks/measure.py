"""Time and memory as ratios: everything is measured in one run, in turns, and reported as medians."""

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
    """Return the median seconds of each function, called in turns so that drift hits all alike."""
    for function in functions.values():
        for _ in range(3):
            function()
    times: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(rounds):
        for name, function in functions.items():
            times[name].append(_seconds(function, device))
    return {name: statistics.median(values) for name, values in times.items()}


def _seconds(function: Callable[[], object], device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    function()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def peak_bytes(function: Callable[[], object], *, device: str) -> int:
    """Return the most memory that a call holds beyond what was held before it."""
    function()  # first calls allocate workspaces that stay
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
    assert record.profiler is not None  # noqa: S101 (set once the profiler has run)
    events = [e for e in record.profiler.kineto_results.events() if e.name() == "[memory]"]
    for event in sorted(events, key=lambda e: e.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak


def provenance(device: str) -> str:
    """Say what was measured where: commit, versions, machine."""
    machine = torch.cuda.get_device_name() if device == "cuda" else _processor()
    threads = "" if device == "cuda" else f", {torch.get_num_threads()} threads"
    return (
        f"commit {_commit()}, peerloss {peerloss.__version__}, torch {torch.__version__}, "
        f"Python {platform.python_version()}, {machine}{threads}"
    )


def _commit() -> str:
    """Ask git, or where it cannot tell the variable PEERLOSS_COMMIT."""
    git = shutil.which("git")
    root = str(Path(__file__).resolve().parent.parent)

    def ask(*question: str) -> str:
        if git is None:
            return ""
        run = subprocess.run([git, "-C", root, *question], capture_output=True, text=True, check=False)
        return run.stdout.strip()

    commit = ask("rev-parse", "--short", "HEAD")
    if not commit:
        return os.environ.get("PEERLOSS_COMMIT", "unknown")
    return f"{commit} with changes" if ask("status", "--porcelain") else commit


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()
