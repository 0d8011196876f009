"""Cost of a default fit of PeerClassifier, relative to LightGBM and a random forest.

Run ``python benchmarks/bench_fit.py [--rows 500,2000] [--classes 2,6] [--output TABLE.md]``. The ratio is
that of the CPU time of ``PeerClassifier().fit`` to the sum of those of a default ``LGBMClassifier`` and of a
``RandomForestClassifier`` of 200 trees, on the same rows and one thread. Up to 5,000 rows the smaller of two
times counts.

``--large 1000000`` also fits that many rows of 20 features and two classes, and prints time and peak memory.
"""

from __future__ import annotations

import argparse
import resource
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightgbm import LGBMClassifier
from measure import provenance, publish
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier
from threadpoolctl import threadpool_limits

from peerloss import PeerClassifier

#: Up to this many rows, each fit is repeated.
REPEATED_ROWS = 5000


def make_rows(n: int, n_classes: int) -> tuple[Any, Any, Any]:
    """Return features, clean labels, and labels of which a quarter is drawn at random."""
    X, y = make_classification(
        n,
        20,
        n_informative=10,
        n_redundant=2,
        n_classes=n_classes,
        n_clusters_per_class=2 if n_classes == 2 else 1,
        class_sep=1.2,
        flip_y=0,
        random_state=0,
    )
    rng = np.random.default_rng(0)
    return X, y, np.where(rng.random(n) < 0.25, rng.integers(n_classes, size=n), y)


def fit_seconds(model: Any, X: Any, y: Any) -> float:
    """Return the CPU time of a fit on one thread."""
    times = []
    for _ in range(2 if len(y) <= REPEATED_ROWS else 1):
        with threadpool_limits(1):
            start = time.process_time()
            model.fit(X, y)
            times.append(time.process_time() - start)
    return min(times)


def cost_row(n: int, n_classes: int) -> str:
    X, _, noisy = make_rows(n, n_classes)
    lightgbm = fit_seconds(LGBMClassifier(n_jobs=1, verbose=-1), X, noisy)
    forest = fit_seconds(RandomForestClassifier(200, random_state=0), X, noisy)
    ours = fit_seconds(PeerClassifier(random_state=0), X, noisy)
    ratio = ours / (lightgbm + forest)
    return f"| {n:,} | {n_classes} | {lightgbm:.2f} | {forest:.2f} | {ours:.2f} | {ratio:.1f} |"


def large_fit(n: int) -> str:
    X, y, noisy = make_rows(n + 10_000, 2)
    start = time.perf_counter()
    with threadpool_limits(1):
        model = PeerClassifier(random_state=0).fit(X[:n], noisy[:n])
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    table = X.nbytes / 2**30
    accuracy = (model.predict(X[n:]) == y[n:]).mean()
    report = model.report_
    return (
        f"{n:,} rows of 20 features, two classes: {seconds:,.0f} s on one thread, {peak:.1f} GiB peak memory "
        f"of the process (the table has {table:.2f} GiB), accuracy {accuracy:.4f} on 10,000 clean labels "
        f"(own estimate {report.accuracy:.4f}), estimated noise rates {report.noise.e_neg:.3f} and "
        f"{report.noise.e_pos:.3f} (true: 0.125)."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", default="500,2000,5000,20000")
    parser.add_argument("--classes", default="2,6")
    parser.add_argument("--large", type=int, help="also fit this many rows")
    parser.add_argument("--output", type=Path, help="Markdown file to write")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    X, _, noisy = make_rows(200, 2)
    PeerClassifier(random_state=0).fit(X, noisy)  # compiles the loops of the networks
    lines = [
        "# Cost of a default fit",
        "",
        f"Measured with `python benchmarks/bench_fit.py`: {provenance('cpu')}. Times are CPU seconds.",
        "",
        "| rows | classes | LightGBM | forest, 200 trees | PeerClassifier | ratio to their sum |",
        "|---:|---:|---:|---:|---:|---:|",
    ]
    for n in (int(n) for n in arguments.rows.split(",") if n):
        for n_classes in map(int, arguments.classes.split(",")):
            lines.append(cost_row(n, n_classes))
            print(lines[-1], flush=True)
    if arguments.large:
        lines += ["", large_fit(arguments.large)]
        print(lines[-1])
    publish("\n".join([*lines, ""]), arguments.output)


if __name__ == "__main__":
    main()
