"""Time and memory of a table of millions of reports, for ``bench_annotators.py scale``."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd


def scale_rows(n_reports: int) -> list[str]:
    """Measure a large table in Python and with the command line, each in a separate process."""
    rows = [
        f"{n_reports:,} reports, ten per task, ten labels, {n_reports // 500:,} workers.",
        "",
        "| operation | processor seconds | peak memory |",
        "|---|---|---|",
    ]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "crowd.parquet")
        _large_table(n_reports).to_parquet(path)
        for what, code in SCALE.items():
            command = [sys.executable, "-c", code, str(path), folder]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            seconds, peak = done.stdout.split()[-2:]
            rows.append(f"| {what} | {float(seconds):.0f} | {float(peak) / 2**20:.2f} GiB |")
    return rows


_END = """
import resource
used = resource.getrusage(resource.RUSAGE_SELF)
print(used.ru_utime + used.ru_stime - start, used.ru_maxrss)
"""
_BEGIN = """
import resource, sys
import pandas as pd
from peerloss.crowd import aggregate_labels, dawid_skene, score_annotators, find_copiers
table = pd.read_parquet(sys.argv[1])
used = resource.getrusage(resource.RUSAGE_SELF)
start = used.ru_utime + used.ru_stime
"""
SCALE = {
    "the table alone": _BEGIN + _END,
    "dawid_skene": _BEGIN + "dawid_skene(table)" + _END,
    "aggregate_labels": _BEGIN + "aggregate_labels(table)" + _END,
    "score_annotators": _BEGIN + "score_annotators(table, random_state=0)" + _END,
    "find_copiers": _BEGIN + "find_copiers(table)" + _END,
    "peerloss annotators --aggregate": """
import sys
from peerloss.cli import app
from typer.testing import CliRunner
start = 0.0
done = CliRunner().invoke(app, ["annotators", sys.argv[1], "-o", sys.argv[2] + "/s.csv",
                                "--aggregate", sys.argv[2] + "/l.csv"])
assert done.exit_code == 0, done.output
"""
    + _END,
}


def _large_table(n_reports: int) -> pd.DataFrame:
    """Return reports of workers with different accuracies; ten workers answer each task."""
    rng = np.random.default_rng(0)
    n_tasks, n_workers = n_reports // 10, max(20, n_reports // 500)
    truth = rng.integers(10, size=n_tasks)
    task = np.repeat(np.arange(n_tasks, dtype=np.int32), 10)
    step = rng.integers(1, n_workers // 10, size=n_tasks)
    worker = np.repeat(rng.integers(n_workers, size=n_tasks), 10) + np.repeat(step, 10) * np.tile(
        range(10), n_tasks
    )
    worker = (worker % n_workers).astype(np.int32)
    skill = rng.uniform(0.3, 0.95, n_workers)
    right = rng.random(len(task)) < skill[worker]
    label = np.where(right, truth[task], rng.integers(10, size=len(task))).astype(np.int8)
    return pd.DataFrame({"task": task, "worker": worker, "label": label})
