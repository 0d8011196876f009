"""Time of training many small networks compared with MLPClassifier of scikit-learn.

Run ``python benchmarks/bench_engine.py [--quick] [--output FILE]``. All candidates use one thread. A network
is 23-8-8-1 on 250 rows, trained for 1000 steps with batch size 64. Times are medians over rounds in which all
candidates take turns. Compilation and caching happen before the measurement.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from measure import median_times, provenance, publish
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier
from threadpoolctl import threadpool_limits

from peerloss import PeerBoostingClassifier, RobustMLPClassifier
from peerloss.noise import NoiseModel, flip_labels
from peerloss.training import Net, train_nets
from peerloss.training.small._step_backends import has_numba

if TYPE_CHECKING:
    from collections.abc import Callable

STEPS, BATCH, ROWS, FEATURES = 1000, 64, 250, 23


def data(n: int = ROWS, d: int = FEATURES) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d))
    return X, flip_labels((X[:, 0] + X[:, 1] > 0).astype(int), NoiseModel.binary(0.1, 0.3), random_state=1)


def sklearn_fit(X: Any, y: Any, hidden: tuple[int, ...]) -> Callable[[], object]:
    """Return a fit of MLPClassifier with the same shape, batch and number of steps."""
    epochs = STEPS // -(-len(X) // BATCH)
    model = MLPClassifier(
        hidden,
        batch_size=BATCH,
        max_iter=epochs,
        tol=0.0,
        n_iter_no_change=epochs + 1,
        learning_rate_init=7e-4,
        random_state=0,
    )

    def fit() -> None:
        with warnings.catch_warnings(), threadpool_limits(1):
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(X, y)

    return fit


def grid_rows(rounds: int) -> list[str]:
    """Time grids of 1, 16 and 160 networks against one MLPClassifier."""
    X, y = data()
    calls: dict[str, Callable[[], object]] = {"MLPClassifier": sklearn_fit(X, y, (8, 8))}
    sizes = {"MLPClassifier": 1}
    for backend in ("numba", "torch") if has_numba() else ("torch",):
        for count in (1, 16, 160):
            nets = [Net(y, alpha=(0.0, 0.5, 1.0, 2.0)[i % 4], random_state=i) for i in range(count)]
            name = f"train_nets, {backend}, {count} network{'s' if count > 1 else ''}"
            sizes[name] = count
            calls[name] = _call(X, nets, backend)
    times = median_times(calls, rounds=rounds, device="cpu")
    rows = [
        "| method | total | per network | times faster than MLPClassifier | minimum (goal) |",
        "|---|---|---|---|---|",
    ]
    for name, seconds in times.items():
        each = seconds / sizes[name]
        goal = "≥ 12 (40)" if sizes[name] == 160 else ""
        ratio = times["MLPClassifier"] / each
        rows.append(f"| {name} | {seconds * 1e3:.1f} ms | {each * 1e3:.2f} ms | {ratio:.1f} | {goal} |")
    return rows


def _call(X: Any, nets: list[Net], backend: str) -> Callable[[], object]:
    return lambda: train_nets(
        X, nets, n_classes=2, hidden_layer_sizes=(8, 8), batch_size=BATCH, max_steps=STEPS, backend=backend
    )


def fit_rows(rounds: int) -> list[str]:
    """Time the estimator: one fit, an ensemble, the search for α."""
    X, y = data()
    rows = ["| hidden layers | method | time | × MLPClassifier | × single fit |", "|---|---|---|---|---|"]
    for hidden in ((8, 8), (32, 32)):
        model = partial(RobustMLPClassifier, hidden_layer_sizes=hidden, random_state=0)
        calls: dict[str, Callable[[], object]] = {
            "MLPClassifier": sklearn_fit(X, y, hidden),
            "RobustMLPClassifier()": partial(model().fit, X, y),
            "n_members=10": partial(model(n_members=10).fit, X, y),
            'alpha="auto" (12 × 5 + 1 networks)': partial(model(alpha="auto").fit, X, y),
        }
        times = median_times(calls, rounds=rounds, device="cpu")
        for name, seconds in times.items():
            against = seconds / times["MLPClassifier"], seconds / times["RobustMLPClassifier()"]
            rows.append(
                f"| {hidden} | {name} | {seconds * 1e3:.1f} ms | {against[0]:.2f} | {against[1]:.1f} |"
            )
    return rows


def growth_rows(sizes: tuple[int, ...]) -> list[str]:
    """Time fits with more rows: networks for a fixed number of steps and for one epoch, and boosting."""
    rows = [
        "| rows × 20 | 1000 steps | one epoch | per row | predict | boosting, 50 trees | per row |",
        "|---|---|---|---|---|---|---|",
    ]
    for n in sizes:
        X, y = data(n, 20)
        fixed = RobustMLPClassifier(random_state=0)
        epoch = RobustMLPClassifier(random_state=0, max_steps=max(1, n // BATCH))
        boosting = PeerBoostingClassifier(alpha=1.0, n_estimators=50, random_state=0)
        calls: list[Callable[..., object]] = [epoch.fit, fixed.fit, boosting.fit]
        one, steps, trees = (_median_seconds(partial(call, X, y)) for call in calls)
        predicting = _median_seconds(partial(epoch.predict, X))
        rows.append(
            f"| {n:,} | {steps:.3f} s | {one:.3f} s | {one / n * 1e6:.2f} µs "
            f"| {predicting:.3f} s | {trees:.3f} s | {trees / n * 1e6:.2f} µs |"
        )
    return rows


def feature_rows(sizes: tuple[int, ...]) -> list[str]:
    """Time fits of 10,000 rows with more features."""
    rows = [
        "| 10,000 × | one epoch | per feature | boosting, 50 trees | per feature |",
        "|---|---|---|---|---|",
    ]
    for d in sizes:
        X, y = data(10_000, d)
        net = RobustMLPClassifier(random_state=0, max_steps=10_000 // BATCH)
        boosting = PeerBoostingClassifier(alpha=1.0, n_estimators=50, random_state=0)
        one, trees = (_median_seconds(partial(call, X, y)) for call in (net.fit, boosting.fit))
        rows.append(
            f"| {d} | {one:.3f} s | {one / d * 1e3:.2f} ms | {trees:.3f} s | {trees / d * 1e3:.2f} ms |"
        )
    return rows


def _median_seconds(call: Callable[[], object]) -> float:
    times = []
    for _ in range(3):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds, up to 10⁵ rows")
    parser.add_argument("--output", type=Path, help="also write the tables here")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    sizes = (1000, 10_000, 100_000) if arguments.quick else (1000, 10_000, 100_000, 1_000_000)
    text = "\n".join(
        [
            "# Cost of many small networks, compared with MLPClassifier",
            "",
            f"Measured with `python benchmarks/bench_engine.py`: {provenance('cpu')}.",
            "",
            f"## A grid of trainings ({FEATURES}-8-8-1, {ROWS} rows, {STEPS} steps, batch {BATCH})",
            "",
            *grid_rows(1 if arguments.quick else 5),
            "",
            "## One fit",
            "",
            *fit_rows(1 if arguments.quick else 5),
            "",
            "## Growth with the number of rows",
            "",
            *growth_rows(sizes),
            "",
            "## Growth with the number of features",
            "",
            *feature_rows((20, 80, 320)),
            "",
        ]
    )
    publish(text, arguments.output)


if __name__ == "__main__":
    main()
