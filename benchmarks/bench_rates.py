"""Do the estimated noise rates improve with more rows? Error of T on made data, from 300 to 100,000 rows.

Run ``python benchmarks/bench_rates.py --runs RUNS.jsonl [--seeds 0-2] [--output TABLE.md]``. Finished cells
are stored in RUNS and skipped in later runs.

The data are *separable*, *overlapping*, *multi-modal* (three clusters per class) or *unbalanced*, with ten
features. Probabilities of the noisy labels are those of extremely randomised trees, out of bag.
"""

from __future__ import annotations

import argparse
import json
import warnings
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from measure import provenance, publish
from sklearn.ensemble import ExtraTreesClassifier

from peerloss import NoiseModel, estimate_noise, flip_labels
from peerloss.posterior import estimate_class_noise

WORLDS = ("separable", "overlapping", "multi-modal", "unbalanced")
CLASSES = (2, 3, 10)
ROWS = (300, 1_000, 3_000, 10_000, 30_000, 100_000)
NOISES = ("uniform .2", "asymmetric")
N_FEATURES = 10
#: Distance of the centres from the origin, in standard deviations of a cluster.
DISTANCES = {"separable": 5.0, "overlapping": 1.5, "multi-modal": 4.0, "unbalanced": 3.0}
#: In *unbalanced* data each class is this much rarer than the one before it.
RARER = {2: 0.15, 3: 0.4, 10: 0.75}
Cell = tuple[str, int, int, str, int]
COLUMNS = ("data", "classes", "rows", "noise", "seed")


def make_data(world: str, n_classes: int, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return features (n, 10) and clean labels."""
    rng = np.random.default_rng([seed, n_classes, WORLDS.index(world)])
    n_clusters = 3 if world == "multi-modal" else 1
    centres = rng.normal(size=(n_classes, n_clusters, N_FEATURES))
    centres *= DISTANCES[world] / np.linalg.norm(centres, axis=2, keepdims=True)
    shares = RARER[n_classes] ** np.arange(n_classes) if world == "unbalanced" else np.ones(n_classes)
    clean = rng.choice(n_classes, size=n, p=shares / shares.sum())
    cluster = rng.integers(n_clusters, size=n)
    return centres[clean, cluster] + rng.normal(size=(n, N_FEATURES)), clean


def make_noise(name: str, n_classes: int, seed: int) -> NoiseModel:
    """Return uniform noise, or other rates for each class: .05 and .25 of two, .05 to .35 of more."""
    if name == "uniform .2":
        return NoiseModel.uniform(n_classes, 0.2)
    rng = np.random.default_rng([seed, n_classes])
    if n_classes == 2:
        return NoiseModel.binary(*rng.permutation([0.05, 0.25]))
    rates, shares = rng.uniform(0.05, 0.35, size=n_classes), np.zeros((n_classes, n_classes))
    other = ~np.eye(n_classes, dtype=bool)
    shares[other] = rng.dirichlet(np.ones(n_classes - 1), size=n_classes).ravel()
    return NoiseModel(np.diag(1.0 - rates) + rates[:, None] * shares)


def run(cell: Cell) -> dict[str, Any] | None:
    """Estimate T once; ``None`` if a class has no row."""
    warnings.simplefilter("ignore")
    world, n_classes, n, noise_name, seed = cell
    X, clean = make_data(world, n_classes, n, seed)
    labels = flip_labels(clean, make_noise(noise_name, n_classes, seed), random_state=seed)
    if len(np.unique(labels)) < n_classes or len(np.unique(clean)) < n_classes:
        return None
    trees = ExtraTreesClassifier(100, min_samples_leaf=5, bootstrap=True, oob_score=True, random_state=seed)
    proba = np.nan_to_num(trees.fit(X, labels).oob_decision_function_, nan=1.0 / n_classes)
    proba = (proba + 1e-6) / (proba + 1e-6).sum(axis=1, keepdims=True)
    drawn = np.array([np.bincount(labels[clean == c], minlength=n_classes) for c in range(n_classes)])
    truth = drawn / drawn.sum(axis=1, keepdims=True)
    found = estimate_class_noise(proba, labels)
    counted = estimate_noise(labels, pred_proba=proba).transition
    inside = (found.low - 1e-9 <= truth) & (truth <= found.high + 1e-9)
    rate, low, high, true_rate = (
        1.0 - np.diag(T) for T in (found.noise.transition, found.high, found.low, truth)
    )
    return dict(zip(COLUMNS, cell, strict=True)) | {
        "error": float(np.sqrt(((found.noise.transition - truth) ** 2).mean())),
        "error, confident joint": float(np.sqrt(((counted - truth) ** 2).mean())),
        "error of rates": float(np.abs(rate - true_rate).mean()),
        "width": float((high - low).mean()),
        "inside": float(np.diag(inside).mean()),
    }


def summarise(frame: pd.DataFrame) -> list[str]:
    """Return the tables: by data and rows, then the 90 % intervals."""
    lines = []
    for value, title in (
        ("error", "Root mean square error of T"),
        ("error, confident joint", "The same of the confident joint (`estimate_noise`)"),
        ("inside", "Share of the rates 1 − T[i, i] within their 90 % interval"),
        ("width", "Mean width of these intervals"),
    ):
        table = frame.pivot_table(value, ["classes", "data"], "rows")
        lines += [f"## {title}", "", "| classes | data | " + " | ".join(f"{n:,} rows" for n in table) + " |"]
        lines.append("|" + "---|" * (2 + table.shape[1]))
        for name, row in zip(table.index.tolist(), table.to_numpy(), strict=True):
            shown = " | ".join("" if np.isnan(v) else f"{v:.3f}" for v in row)
            lines.append(f"| {name[0]} | {name[1]} | {shown} |")
        means = " | ".join(f"{v:.3f}" for v in table.mean())
        lines += [f"| all | | {means} |", ""]
    return lines


def main() -> None:
    """Run missing cells, then print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--seeds", default="0-2", help="first-last")
    parser.add_argument("--max-rows", type=int, default=max(ROWS))
    parser.add_argument("--n-jobs", type=int, default=1)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    first, last = map(int, options.seeds.split("-"))
    done = [json.loads(line) for line in options.runs.open()] if options.runs.exists() else []
    keys = {tuple(record[name] for name in COLUMNS) for record in done}
    rows = [n for n in ROWS if n <= options.max_rows]
    wanted = [
        (world, k, n, noise, seed)
        for n, seed, world, k, noise in product(rows, range(first, last + 1), WORLDS, CLASSES, NOISES)
        if (world, k, n, noise, seed) not in keys
    ]
    found = Parallel(n_jobs=options.n_jobs, return_as="generator_unordered")(map(delayed(run), wanted))
    for record in found:
        if record is not None:
            done.append(record)
            with options.runs.open("a") as file:
                file.write(json.dumps(record) + "\n")
    head = [f"Measured with `benchmarks/bench_rates.py`: {provenance('cpu')}.", ""]
    publish("\n".join([*head, *summarise(pd.DataFrame(done))]), options.output)


if __name__ == "__main__":
    main()
