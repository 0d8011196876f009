"""Accuracy against ε: labels released by randomised response, and training with differential privacy.

Run ``python benchmarks/privacy.py [--seeds 0-4] [--runs RUNS.jsonl] [--output TABLE.md]``. Finished cells are
stored in RUNS and skipped in later runs. The second table needs ``peerloss[privacy]``.
"""

from __future__ import annotations

import argparse
import json
import math
import warnings
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from measure import provenance, publish
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV, StratifiedKFold, train_test_split
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from peerloss import NoiseModel, PeerLoss, PlainLoss, RobustMLPClassifier, flip_labels, load_dataset
from peerloss.noise import private_label_frequencies

if TYPE_CHECKING:
    from peerloss.integrations.opacus import PrivateTraining

EPSILONS = (0.5, 1.0, 2.0, 4.0, math.inf)
TABLES = ("twonorm", "image", "digits")
TRAIN_ROWS = 1200
#: Settings that each method chooses from, by the accuracy on held-out released labels.
GRID = {"learning_rate": [7e-4, 3e-3], "weight_decay": [0.1, 1.0, 3.0]}
METHODS: dict[str, dict[str, Any]] = {
    "plain": {"alpha": [0.0]},
    "peer": {"alpha": [1.0]},
    "backward": {"loss": ["backward"]},
    "forward": {"loss": ["forward"]},
}
#: The private training: rows, epochs, mean batch size, learning rate, and the share of ε of the frequencies.
PRIVATE_ROWS, EPOCHS, BATCH_SIZE, LEARNING_RATE, PRIOR_SHARE = 4000, 10, 200, 1.0, 0.1
DELTA = 1e-5
LABEL_NOISE = NoiseModel.binary(0.1, 0.4)
HEADER = """# Privacy: accuracy against ε

Measured with `benchmarks/privacy.py`: {versions}; seeds {seeds}. Accuracy on
clean test labels, mean ± standard error over the seeds.

## Labels released under local differential privacy

Every training label is released by `NoiseModel.randomized_response(K, ε)`, simulated with `flip_labels`, so
that the numbers can be reproduced. `backward` and `forward` know ε; `plain` and `peer` (α = 1) do not.
Networks with two hidden layers of 32 units, 1000 steps, three members; 1200 training rows, the rest is the
test set. Each method chooses its learning rate (7e-4, 3e-3) and weight decay (.1, 1, 3) by the accuracy on
held-out released labels in three folds. No clean label takes part. *kept* is the share of labels that the
release does not change.

{released}

Differences from `plain` on the same released labels, mean over the finite ε:

{gains}

## Differentially private training

{private}
"""
PRIVATE_TEXT = """Opacus {opacus}, {rows} rows of twonorm with label noise (e_neg = .1, e_pos = .4), one
hidden layer of 32 units, {epochs} epochs of DP-SGD, mean batch size {batch}, learning rate {rate}, clipping
norm 1, δ = 10⁻⁵. ε is the total; for peer loss (α = 1) {share:.0%} of it pays for the label frequencies
(`private_label_frequencies`). *spent* is the total ε of peer loss: that of Opacus's accountant plus that of
the frequencies. At ε = ∞ training has neither clipping nor noise. The settings are the same in all cells and
were fixed before any result was known. The noise of the frequencies has no seed, so the numbers of peer loss
cannot be repeated exactly.
"""


def load_table(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return features and class codes."""
    if name == "digits":
        X, y = load_digits(return_X_y=True)
        return X, y
    data = load_dataset(name)
    return np.asarray(data.X, dtype=np.float64), np.asarray(data.y)


def run_released(name: str, epsilon: float, seed: int) -> dict[str, float]:
    """Return the accuracy of each method on clean test labels, and the share of labels kept."""
    X, y = load_table(name)
    X, X_test, y, y_test = train_test_split(X, y, train_size=TRAIN_ROWS, stratify=y, random_state=seed)
    k = int(y.max()) + 1
    noise = NoiseModel.randomized_response(k, epsilon) if math.isfinite(epsilon) else NoiseModel(np.eye(k))
    released = flip_labels(y, noise, random_state=seed)
    found = {"kept": float(noise.transition[0, 0])}
    for method, options in METHODS.items():
        known = noise if "loss" in options else None
        model = RobustMLPClassifier(n_members=3, noise=known, random_state=seed)
        folds = StratifiedKFold(3, shuffle=True, random_state=seed)
        search = GridSearchCV(model, GRID | options, scoring="accuracy", cv=folds).fit(X, released)
        found[method] = float(search.score(X_test, y_test))
    return found


def run_private(epsilon: float, seed: int) -> dict[str, float]:
    """Train with DP-SGD on noisy labels, with cross entropy and with peer loss."""
    X, clean = load_table("twonorm")
    X, X_test, clean, y_test = train_test_split(
        X, clean, train_size=PRIVATE_ROWS, stratify=clean, random_state=seed
    )
    noisy = flip_labels(clean, LABEL_NOISE, random_state=seed)
    rows = torch.tensor(X, dtype=torch.float32), torch.tensor(noisy)
    test = torch.tensor(X_test, dtype=torch.float32)
    found = {}
    for name in ("cross entropy", "peer loss"):
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(20, 32), nn.Tanh(), nn.Linear(32, 2))
        loss: nn.Module = PlainLoss()
        cost = None
        if name == "peer loss":
            cost = PRIOR_SHARE * epsilon
            prior = np.bincount(noisy) / len(noisy)
            if math.isfinite(epsilon):
                prior = private_label_frequencies(noisy, cost, classes=[0, 1])
            loss = PeerLoss(noisy_prior=prior)
        spent = train_privately(model, loss, rows, epsilon, cost)
        found[name] = float((model(test).argmax(dim=1).numpy() == y_test).mean())
        found["spent"] = spent
    return found


def train_privately(
    model: nn.Module, loss: nn.Module, rows: tuple[torch.Tensor, ...], epsilon: float, cost: float | None
) -> float:
    """Train the model in place and return the total ε; an infinite ε trains without Opacus."""
    optimizer: Any = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    loader: Any = DataLoader(TensorDataset(*rows), BATCH_SIZE, shuffle=True)
    trained: Any = model
    private: PrivateTraining | None = None
    if math.isfinite(epsilon):
        from peerloss.integrations.opacus import make_private  # noqa: PLC0415 (optional)

        budget: dict[str, Any] = {"target_epsilon": epsilon, "target_delta": DELTA}
        private = make_private(model, optimizer, loader, loss, epochs=EPOCHS, prior_epsilon=cost, **budget)
        trained, optimizer, loader = private.model, private.optimizer, private.loader
    for _ in range(EPOCHS):
        for X, y in loader:
            optimizer.zero_grad()
            loss(trained(X), y).backward()
            optimizer.step()
    return math.inf if private is None else private.epsilon(DELTA)


def read_runs(path: Path | None) -> tuple[dict[tuple[str, float, int], dict[str, float]], list[str]]:
    """Return finished cells, table, ε and seed → accuracies, and where they were measured."""
    text = path.read_text(encoding="utf-8") if path is not None and path.exists() else ""
    records = [json.loads(line) for line in text.splitlines()]
    cells = {(r["table"], float(r["epsilon"]), r["seed"]): r["found"] for r in records}
    return cells, [r["provenance"] for r in records]


def table_of(runs: dict[Any, dict[str, float]], names: tuple[str, ...], plain: str) -> list[str]:
    """Return a Markdown table of means and standard errors; ``plain`` is the column without them."""
    frame = pd.DataFrame([{"table": t, "epsilon": e, **found} for (t, e, _), found in runs.items()])
    columns = [column for column in frame.columns[2:] if column != plain]
    lines = [f"| table | ε | {plain} | {' | '.join(columns)} |", "|" + "---|" * (len(columns) + 3)]
    for name, epsilon in product(names, EPSILONS):
        part = frame[(frame["table"] == name) & (frame["epsilon"] == epsilon)]
        errors = part[columns].std() / math.sqrt(len(part))
        cells = [f"{part[c].mean():.3f} ± {errors[c]:.3f}" for c in columns]
        shown = "∞" if math.isinf(epsilon) else f"{epsilon:g}"
        middle = "∞" if math.isinf(part[plain].mean()) else f"{part[plain].mean():.2f}"
        lines.append(f"| {name} | {shown} | {middle} | {' | '.join(cells)} |")
    return lines


def gains_of(runs: dict[Any, dict[str, float]]) -> list[str]:
    """Return a table of paired differences from plain training; the standard error is over seeds."""
    frame = pd.DataFrame(
        [{"table": t, "seed": s, **found} for (t, e, s), found in runs.items() if math.isfinite(e)]
    )
    methods = [method for method in METHODS if method != "plain"]
    lines = [f"| table | {' | '.join(methods)} |", "|" + "---|" * (len(methods) + 1)]
    for name in TABLES:
        means = frame[frame["table"] == name].groupby("seed")[list(METHODS)].mean()
        gains = means[methods].sub(means["plain"], axis=0)
        errors = gains.std() / math.sqrt(len(gains))
        lines.append(
            f"| {name} | {' | '.join(f'{gains[m].mean():+.3f} ± {errors[m]:.3f}' for m in methods)} |"
        )
    return lines


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
    runs, places = read_runs(args.runs)
    here = provenance("cpu")
    private = "private training"
    for cell in product((*TABLES, private), EPSILONS, range(first, last + 1)):
        if cell in runs:
            continue
        name, epsilon, seed = cell
        runs[cell] = run_private(epsilon, seed) if name == private else run_released(*cell)
        print(cell, runs[cell], flush=True)
        places.append(here)
        if args.runs is not None:
            record = {"table": name, "epsilon": str(epsilon), "seed": seed, "found": runs[cell]}
            record["provenance"] = here
            with args.runs.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")
    released = {cell: found for cell, found in runs.items() if cell[0] in TABLES}
    trained = {cell: found for cell, found in runs.items() if cell[0] == private}
    settings = {"rows": PRIVATE_ROWS, "epochs": EPOCHS, "batch": BATCH_SIZE, "rate": f"{LEARNING_RATE:g}"}
    text = PRIVATE_TEXT.format(opacus=version("opacus"), share=PRIOR_SHARE, **settings)
    publish(
        HEADER.format(
            versions="; ".join(dict.fromkeys(places)),
            seeds=f"{first} to {last}",
            released="\n".join(table_of(released, TABLES, "kept")),
            gains="\n".join(gains_of(released)),
            private="\n".join([text, *table_of(trained, (private,), "spent")]),
        ),
        args.output,
    )


if __name__ == "__main__":
    main()
