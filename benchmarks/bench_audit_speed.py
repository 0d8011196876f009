"""Label issues from given probabilities: time and memory compared with cleanlab.

``python benchmarks/bench_audit_speed.py 1000000x10 50000x1000`` writes synthetic probabilities (float32) to a
folder, maps them into memory, and lets both libraries rank and flag alternately, each run in its own process.
``--only peerloss`` skips cleanlab, which may need too much memory. Memory excludes the mapped file. Memory
and processor seconds include child processes.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Self

import numpy as np
from measure import provenance

METHODS = ("peerloss", "cleanlab")


def write_data(folder: Path, n: int, k: int) -> None:
    """Write probabilities of a model with an accuracy of 80 %, and labels with 20 % noise."""
    rng = np.random.default_rng(0)
    clean = rng.integers(k, size=n)
    noisy = np.where(rng.random(n) < 0.2, rng.integers(k, size=n), clean)
    proba = np.lib.format.open_memmap(folder / "proba.npy", mode="w+", dtype=np.float32, shape=(n, k))
    step = max(1, 10_000_000 // k)
    for start in range(0, n, step):
        rows = slice(start, min(start + step, n))
        size = rows.stop - start
        block = rng.random((size, k), dtype=np.float32) ** 8
        guessed = np.where(rng.random(size) < 0.8, clean[rows], rng.integers(k, size=size))
        block[np.arange(size), guessed] += block.sum(axis=1) * 2
        proba[rows] = block / block.sum(axis=1, keepdims=True)
    proba.flush()
    np.save(folder / "labels.npy", noisy)


class PeakMemory:
    """Record the peak memory in GiB of this process and its children, without mapped files."""

    def __init__(self) -> None:
        self.peak, self._stop = 0.0, threading.Event()
        self._thread = threading.Thread(target=self._poll, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _poll(self) -> None:
        while not self._stop.wait(0.02):
            children = [pid for tasks in Path("/proc/self/task").iterdir() for pid in _children(tasks)]
            self.peak = max(self.peak, sum(_memory_gib(pid) for pid in ["self", *children]))


def _children(task: Path) -> list[str]:
    try:
        return (task / "children").read_text(encoding="ascii").split()
    except OSError:  # the task has ended
        return []


def _memory_gib(pid: str) -> float:
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return 0.0
    held = [line.split()[1] for line in status.splitlines() if line.startswith("RssAnon")]
    return int(held[0]) / 2**20 if held else 0.0


def measure(method: str, folder: Path) -> None:
    """Rank and flag once; print seconds and memory."""
    proba, labels = np.load(folder / "proba.npy", mmap_mode="r"), np.load(folder / "labels.npy")
    if method == "peerloss":
        from peerloss import find_label_issues  # noqa: PLC0415 - each process imports only what it measures

        def run() -> int:
            return int(find_label_issues(labels=labels, pred_proba=proba).table["flagged"].sum())
    else:
        from cleanlab.filter import find_label_issues as flags  # noqa: PLC0415
        from cleanlab.rank import get_label_quality_scores  # noqa: PLC0415

        def run() -> int:
            get_label_quality_scores(labels, proba)
            return int(flags(labels, proba).sum())

    before, started = os.times(), time.perf_counter()
    with PeakMemory() as memory:
        flagged = run()
    wall, after = time.perf_counter() - started, os.times()
    processor = sum(after[:4]) - sum(before[:4])
    print(json.dumps({"wall": wall, "processor": processor, "gib": memory.peak, "flagged": flagged}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("sizes", nargs="*", default=["200000x10"], help="rows x classes")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=METHODS)
    parser.add_argument("--measure", choices=METHODS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help="folder for the synthetic probabilities")
    options = parser.parse_args()
    if options.measure:
        measure(options.measure, options.folder)
        return
    print(f"{provenance('cpu')}; medians of {options.rounds} alternating rounds.\n")
    print("| rows x classes | | seconds | processor seconds | memory, GiB |\n|---|---|---|---|---|")
    for size in options.sizes:
        n, k = (int(part) for part in size.split("x"))
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            write_data(Path(folder), n, k)
            found: dict[str, list[dict[str, float]]] = {
                method: [] for method in METHODS if options.only in {None, method}
            }
            for _ in range(options.rounds):
                for method, results in found.items():
                    command = [sys.executable, __file__, "--measure", method, "--folder", folder]
                    run = subprocess.run(command, capture_output=True, text=True, check=True)
                    results.append(json.loads(run.stdout.splitlines()[-1]))
        medians = {
            method: [
                statistics.median(result[what] for result in results) for what in ("wall", "processor", "gib")
            ]
            for method, results in found.items()
        }
        for method, (wall, processor, gib) in medians.items():
            print(f"| {size} | {method} | {wall:.2f} | {processor:.2f} | {gib:.2f} |")
        if len(medians) == 2:
            ratios = (a / b for a, b in zip(*(medians[method] for method in METHODS), strict=True))
            print(f"| {size} | ratio | {' | '.join(f'{ratio:.2f}' for ratio in ratios)} |", flush=True)


if __name__ == "__main__":
    main()
