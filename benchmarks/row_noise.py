"""Accuracy under noise that depends on the row: peer loss at constant α and the methods made for such noise.

Run ``python benchmarks/row_noise.py [--seeds 0-4] [--runs RUNS.jsonl] [--output TABLE.md]``. Finished cells
are stored in RUNS and skipped in later runs.
"""

from __future__ import annotations

import argparse
import json
import math
import warnings
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from measure import provenance, publish
from scipy.stats import spearmanr
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_predict, train_test_split

from peerloss import PeerClassifier, flip_labels, load_dataset
from peerloss.functional import covariance_targets
from peerloss.noise import InstanceNoise
from peerloss.posterior import row_rates_from_annotators, row_rates_from_margins, row_transitions
from peerloss.training import Net, train_nets

TABLES = ("twonorm", "image")
NOISES = ("margin", "region")
TRAIN_ROWS, RATE, STEPS, HIDDEN, FOLDS = 1000, 0.25, 1000, (32, 32), 3
#: Settings that every method chooses from, by the accuracy on held-out noisy labels.
GRID = tuple(product((7e-4, 3e-3), (0.1, 1.0)))
NETWORKS = (
    "cross entropy",
    "bi-tempered",
    "peer",
    "CORES² loss",
    "CAL, labels",
    "CAL, margins",
    "CAL, crowd",
    "CAL, true rates",
)
METHODS = (*NETWORKS, "PeerClassifier")
HEADER = """# Noise that depends on the row

Measured with `benchmarks/row_noise.py`: {versions}; seeds {seeds}. Accuracy on clean test labels, mean ±
standard error over the seeds.

**Data.** {rows} training rows of twonorm and image (two classes), the rest is the test set. *margin*: labels
flip near the boundary of a logistic regression on the clean labels (`InstanceNoise.from_margins`, mean rate
{rate}). *region*: labels flip with probability .45 in the half of the rows with the larger first principal
component, and .05 in the other half.

**Methods.** Networks with two hidden layers of 32 units, {steps} steps. Each method chooses its learning rate
(7e-4, 3e-3) and weight decay (.1, 1) by the accuracy on held-out noisy labels in three folds; no clean label
takes part. *bi-tempered*: t1 = .8, t2 = 1.2, without peers. *peer*: cross entropy, α = 1. *CORES² loss*:
β = 2 after 250 steps of cross entropy, without the sieve. *CAL*: peer loss on `covariance_targets`; the clean
class is the one that a forest, trained on the noisy labels of other rows, predicts. *labels*: no T(x).
*margins*: T(x) from the margins of the forest (`row_rates_from_margins`). *crowd*: T(x) from three more
labels per row (`row_rates_from_annotators`), which the other methods do not see; training uses one label.
*true rates*: the true T(x), which nobody has; it shows what the estimates cost. The forest has seen the
labels that choose the settings of CAL, which is a small advantage. *PeerClassifier*: the portfolio with its
default settings, which is not a single network.

{table}

Differences from *peer* on the same labels, mean over tables and noises with the standard error over seeds:

{gains}

Spearman correlation of the estimated rates of rows with the true ones, and estimated minus true mean rate:

{rates}

In how many runs `PeerClassifier` refused the class-conditional model (`report_.misfit_p_value` < .01), and
the median p-value:

{refused}
"""


def make_noise(kind: str, X: np.ndarray, y: np.ndarray) -> InstanceNoise:
    """Return noise whose rates depend on the row."""
    standard = (X - X.mean(axis=0)) / np.maximum(X.std(axis=0), 1e-9)
    if kind == "margin":
        scores = LogisticRegression(max_iter=2000).fit(standard, y).decision_function(standard)
        return InstanceNoise.from_margins(y, scores / np.abs(scores).mean() * 2.0, rate=RATE)
    first = standard @ np.linalg.svd(standard, full_matrices=False)[2][0]
    rates = np.where(first > np.median(first), 0.45, 0.05)
    return InstanceNoise(np.where(np.eye(2, dtype=bool)[y], 1.0 - rates[:, None], rates[:, None]), y)


def make_net(
    method: str, y: np.ndarray, targets: dict[str, np.ndarray], rows: np.ndarray, **options: Any
) -> Net:
    """Return a net of a method, trained on the given rows of the noisy labels or of the targets."""
    labels = targets.get(method, y)[rows]
    prior = np.bincount(y[rows], minlength=int(y.max()) + 1) / len(rows)
    chosen: dict[str, Any] = {"noisy_prior": prior}  # peer loss, also on corrected targets
    if method.endswith("cross entropy"):
        chosen = {"alpha": 0.0}
    elif method == "bi-tempered":
        chosen = {"alpha": 0.0, "base": "bi_tempered"}
    elif method == "CORES² loss":
        chosen |= {"alpha": 2.0, "eps": 1e-8, "warm_up": STEPS // 4}
    return Net(labels, rows=rows, **chosen, **options)


def corrected_targets(
    X: np.ndarray, y: np.ndarray, crowd: np.ndarray, truth: np.ndarray | None, seed: int
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return the soft targets of the variants of CAL, and the estimated rates of rows.

    Without ``truth``, the true rates, there is no variant that knows them.
    """
    k = int(y.max()) + 1
    forest = RandomForestClassifier(200, min_samples_leaf=5, random_state=seed)
    folds = StratifiedKFold(5, shuffle=True, random_state=seed)
    proba = cross_val_predict(forest, X, y, cv=folds, method="predict_proba")
    rates = {
        "CAL, margins": row_rates_from_margins(proba, y),
        "CAL, crowd": row_rates_from_annotators(X, crowd, random_state=seed),
    }
    if truth is not None:
        rates["CAL, true rates"] = truth
    # If all rates are below one half, the more probable noisy label is the clean class.
    clean = torch.tensor(np.eye(k)[proba.argmax(axis=1)])
    targets = {"CAL, labels": covariance_targets(torch.tensor(y), clean)}
    for method, found in rates.items():
        transitions = torch.tensor(row_transitions(found, k))
        targets[method] = covariance_targets(torch.tensor(y), clean, transitions)
    return {method: table.numpy() for method, table in targets.items()}, rates


def train_networks(
    methods: tuple[str, ...],
    X: np.ndarray,
    y: np.ndarray,
    targets: dict[str, np.ndarray],
    test: tuple[np.ndarray, np.ndarray],
    seed: int,
) -> dict[str, float]:
    """Return the clean test accuracy of each method, with settings chosen on held-out noisy labels."""
    folds = list(StratifiedKFold(FOLDS, shuffle=True, random_state=seed).split(X, y))
    parts = [*(train for train, _ in folds), np.arange(len(y))]  # the last net of a setting has all rows
    k, found = int(y.max()) + 1, {}
    for method in methods:
        nets = [
            make_net(
                method, y, targets, rows, learning_rate=rate, weight_decay=decay, random_state=(seed, part)
            )
            for rate, decay in GRID
            for part, rows in enumerate(parts)
        ]
        trained = train_nets(X, nets, n_classes=k, hidden_layer_sizes=HIDDEN, max_steps=STEPS)
        guesses = trained.logits(X).argmax(axis=2).reshape(len(GRID), len(parts), -1)
        held_out = [(guesses[:, f, rows] == y[rows]).mean(axis=1) for f, (_, rows) in enumerate(folds)]
        best = int(np.mean(held_out, axis=0).argmax())
        last = trained.logits(test[0], nets=[best * len(parts) + FOLDS])[0]
        found[method] = float((last.argmax(axis=1) == test[1]).mean())
    return found


def run_cell(name: str, kind: str, seed: int) -> dict[str, float]:
    """Return the clean test accuracy of each method and how well the rates of rows are estimated."""
    data = load_dataset(name)
    X, clean = np.asarray(data.X, dtype=np.float64), np.asarray(data.y)
    X, X_test, clean, y_test = train_test_split(
        X, clean, train_size=TRAIN_ROWS, stratify=clean, random_state=seed
    )
    centre, scale = X.mean(axis=0), np.maximum(X.std(axis=0), 1e-9)
    X, X_test = (X - centre) / scale, (X_test - centre) / scale
    noise = make_noise(kind, X, clean)
    y = flip_labels(clean, noise, random_state=seed)
    crowd = np.stack([flip_labels(clean, noise, random_state=1000 + 10 * seed + i) for i in range(3)], axis=1)
    targets, rates = corrected_targets(X, y, crowd, noise.flip_rates, seed)
    found = train_networks(NETWORKS, X, y, targets, (X_test, y_test), seed)
    portfolio = PeerClassifier(random_state=seed).fit(X, y)
    found["PeerClassifier"] = float(portfolio.score(X_test, y_test))
    found["p-value"] = portfolio.report_.misfit_p_value
    for method, estimate in rates.items():
        found[f"{method}: correlation"] = float(spearmanr(estimate, noise.flip_rates).statistic)
        found[f"{method}: bias"] = float(estimate.mean() - noise.flip_rates.mean())
    return found


def summarise(runs: dict[tuple[str, str, int], dict[str, float]]) -> dict[str, str]:
    """Return the Markdown tables of means and standard errors."""
    frame = pd.DataFrame([{"table": t, "noise": k, "seed": s, **found} for (t, k, s), found in runs.items()])
    methods, others = list(METHODS), [method for method in METHODS if method != "peer"]
    lines = [f"| table | noise | {' | '.join(methods)} |", "|" + "---|" * (len(methods) + 2)]
    estimates = ["| table | noise | margins | crowd |", "|---|---|---|---|"]
    refused = ["| table | noise | refused | median p-value |", "|---|---|---|---|"]
    for name, kind in product(TABLES, NOISES):
        part = frame[(frame["table"] == name) & (frame["noise"] == kind)]
        cells = [f"{part[m].mean():.3f} ± {part[m].std() / math.sqrt(len(part)):.3f}" for m in methods]
        lines.append(f"| {name} | {kind} | {' | '.join(cells)} |")
        means = part.mean(numeric_only=True)
        cells = [
            f"{means[f'CAL, {kind_}: correlation']:.2f}, {means[f'CAL, {kind_}: bias']:+.3f}"
            for kind_ in ("margins", "crowd")
        ]
        estimates.append(f"| {name} | {kind} | {' | '.join(cells)} |")
        p = part["p-value"]
        refused.append(f"| {name} | {kind} | {(p < 0.01).sum()} of {len(p)} | {p.median():.2f} |")
    by_seed = frame.groupby("seed")[methods].mean()
    gains = by_seed[others].sub(by_seed["peer"], axis=0)
    errors = gains.std() / math.sqrt(len(gains))
    shown = [f"{gains[m].mean():+.3f} ± {errors[m]:.3f}" for m in others]
    compared = [f"| {' | '.join(others)} |", "|" + "---|" * len(others), f"| {' | '.join(shown)} |"]
    tables = {"table": lines, "gains": compared, "rates": estimates, "refused": refused}
    return {key: "\n".join(rows) for key, rows in tables.items()}


def main() -> None:
    """Run what is missing and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="0-4")
    parser.add_argument("--runs", type=Path)
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    first, last = (int(part) for part in args.seeds.split("-"))
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    text = args.runs.read_text(encoding="utf-8") if args.runs is not None and args.runs.exists() else ""
    records = [json.loads(line) for line in text.splitlines()]
    runs = {(r["table"], r["noise"], r["seed"]): r["found"] for r in records}
    places, here = [r["provenance"] for r in records], provenance("cpu")
    for seed, name, kind in product(range(first, last + 1), TABLES, NOISES):
        if (name, kind, seed) in runs:
            continue
        runs[name, kind, seed] = run_cell(name, kind, seed)
        print(name, kind, seed, runs[name, kind, seed], flush=True)
        places.append(here)
        if args.runs is not None:
            record = {"table": name, "noise": kind, "seed": seed, "found": runs[name, kind, seed]}
            with args.runs.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record | {"provenance": here}) + "\n")
    settings = {"rows": TRAIN_ROWS, "rate": RATE, "steps": STEPS, "seeds": f"{first} to {last}"}
    versions = "; ".join(dict.fromkeys(places))
    publish(HEADER.format(versions=versions, **settings, **summarise(runs)), args.output)


if __name__ == "__main__":
    main()
