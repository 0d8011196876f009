"""The final α of peer loss with 10 and with 100 classes, on made data with made noise.

Run ``python benchmarks/hundred_classes.py [--seeds 2] [--output FILE]`` (half an hour on one core). The
recipes of ``peerloss reproduce cifar100`` are those of cifar10, in which α rises to 2. The table shows
whether the effect of α depends on the number of classes. Rows are Gaussian around the means of their
classes. Groups of five classes have similar means, like the superclasses of CIFAR-100. The network has two
hidden layers.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from measure import provenance, publish
from torch import nn

from peerloss import NoiseModel, PeerLoss, flip_labels
from peerloss.training import DeepRecipe, Sieve, predict_logits, train_deep

ALPHAS = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0)
#: Number of classes → scale of the class means, for a clean test accuracy near that of CIFAR-10 or CIFAR-100.
SCALES = {10: 0.5, 100: 0.5}
FEATURES, GROUP, WIDTH = 32, 5, 256
TRAIN, HELD_OUT, TEST = 20_000, 4_000, 10_000
PEER = DeepRecipe(epochs=30, batch_size=256, learning_rate=0.1)
#: As in the recipe peer+sieve, with fewer epochs.
SIEVED = replace(PEER, epochs=60, sieve=Sieve(start=0.15, balance=True))
SCHEDULES = {"peer": (0.35, 1.0), "peer+sieve": (0.0525, 0.15)}


def make_rows(k: int, seed: int) -> tuple[torch.Tensor, np.ndarray]:
    """Return features and clean labels; classes of one group of five have similar means."""
    rng = np.random.default_rng(seed)
    groups = np.repeat(rng.normal(size=(k // GROUP, FEATURES)), GROUP, axis=0)
    means = SCALES[k] * (groups + rng.normal(size=(k, FEATURES)))
    y = rng.integers(k, size=TRAIN + HELD_OUT + TEST)
    X = means[y] + rng.normal(size=(len(y), FEATURES))
    return torch.as_tensor(X, dtype=torch.float32), y


def make_noise(kind: str, k: int) -> NoiseModel:
    """Return uniform noise, or noise that flips to the next class of the group."""
    if kind == "uniform .4":
        return NoiseModel.uniform(k, 0.4)
    flips = np.kron(np.eye(k // GROUP), np.roll(np.eye(GROUP), 1, axis=1))
    return NoiseModel(0.6 * np.eye(k) + 0.4 * flips)


def scores(k: int, kind: str, method: str, alpha: float, seed: int) -> tuple[float, float]:
    """Return the accuracies on held-out noisy labels and on clean test labels, of averaged weights."""
    X, y = make_rows(k, seed)
    noisy = np.asarray(flip_labels(y, make_noise(kind, k), random_state=seed))
    train, held_out = slice(TRAIN), slice(TRAIN, TRAIN + HELD_OUT)
    torch.manual_seed(seed)
    hidden = [(nn.Linear(a, WIDTH), nn.BatchNorm1d(WIDTH), nn.ReLU()) for a in (FEATURES, WIDTH)]
    model = nn.Sequential(*(layer for layers in hidden for layer in layers), nn.Linear(WIDTH, k))
    start, end = SCHEDULES[method]
    recipe = replace(
        PEER if method == "peer" else SIEVED, alpha=((start, 0.0), (end, alpha)), random_state=seed
    )
    result = train_deep(model, PeerLoss(), X[train], noisy[train], recipe=recipe, device="cpu")
    model.load_state_dict(result.weights["average"])
    predicted = predict_logits(model, X).argmax(dim=1).numpy()
    clean = float((predicted[TRAIN + HELD_OUT :] == y[TRAIN + HELD_OUT :]).mean())
    return 100.0 * float((predicted[held_out] == noisy[held_out]).mean()), 100.0 * clean


def main() -> None:
    """Train every combination and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    where = provenance("cpu")  # before the run, during which the commit may change
    lines = [
        "# The final α of peer loss with 10 and with 100 classes",
        "",
        f"`python benchmarks/hundred_classes.py`; {where}; {options.seeds} seeds.",
        "",
        "Accuracy in per cent on held-out noisy labels / on clean test labels, mean over seeds.",
        "With α = 0 the loss is cross entropy.",
        "",
        "| classes | noise | method | " + " | ".join(f"α = {alpha:g}" for alpha in ALPHAS) + " |",
        "|" + " --- |" * (3 + len(ALPHAS)),
    ]
    for k in SCALES:
        for kind in ("uniform .4", "next of five .4"):
            for method in SCHEDULES:
                cells = []
                for alpha in ALPHAS:
                    found = [scores(k, kind, method, alpha, seed) for seed in range(options.seeds)]
                    cells.append(" / ".join(f"{mean:.1f}" for mean in np.mean(found, axis=0)))
                lines.append(f"| {k} | {kind} | {method} | " + " | ".join(cells) + " |")
                print(lines[-1], flush=True)
    publish("\n".join([*lines, ""]), options.output)


if __name__ == "__main__":
    main()
