"""The sieve of the deep loop on handwritten digits, on which its settings were not chosen.

Run ``python benchmarks/deep_digits.py [--seeds 4] [--output FILE]`` (an hour on two cores). A small
ResNet is trained on scikit-learn's digits under thirteen kinds of noise. No setting is tuned: all methods use
the recipe below, and f-divergences first train with cross entropy, as in ``peerloss reproduce cifar10n``.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from joblib import Parallel, delayed
from measure import provenance, publish
from sklearn.datasets import load_digits
from torch import nn

from peerloss import NoiseModel, PeerLoss, PlainLoss, flip_labels
from peerloss.losses import FDivergenceLoss
from peerloss.models import Ensemble, ResNet
from peerloss.noise import InstanceNoise
from peerloss.training import Augment, DeepRecipe, Growth, Sieve, predict_logits, train_deep

PLAIN = DeepRecipe(
    epochs=60, batch_size=64, learning_rate=0.1, augment=Augment(crop=1, flip=False), average=0.95
)
SIEVE = Sieve(start=0.3, augment=Augment(crop=1, flip=False, cutout=3, affine=15.0, colour=0.3, share=0.5))
#: The sieve of `peer+growth` in `peerloss reproduce`, without pasting and with changes that suit digits.
GROWING = Sieve(
    start=0.15,
    refresh_every=4,
    memory=0.7,
    trust=1.0,
    augment=replace(SIEVE.augment, share=1.0),
    growth=Growth(guessed=(0.5, 0.95), final_trust="auto"),
)
KINDS = (
    "none", "uniform .2", "uniform .4", "uniform .6", "pairs .2", "pairs .4", "features .2", "features .4",
    "one side .4", "skewed, none", "skewed, uniform .4", "skewed, pairs .3", "skewed, one side .3",
)  # fmt: skip
TEST_ROWS = 597
#: The method that trains two networks which predict together.
PAIR = "sieve, two networks, 120 epochs"
#: The losses of a method in order, each with its recipe.
Stages = list[tuple[nn.Module, DeepRecipe]]


def methods_of(shares: tuple[float, ...]) -> dict[str, Stages]:
    """Return all methods by name; one uses the true shares of the classes."""
    sieves = {
        "sieve, targets fixed": replace(SIEVE, refresh_every=0),
        "sieve, trust 0": replace(SIEVE, trust=0.0),
        "**sieve** (trust ½)": SIEVE,
        "sieve, trust 1": replace(SIEVE, trust=1.0),
        "sieve, balanced": replace(SIEVE, balance=True),
        "sieve, shares known": replace(SIEVE, balance=shares),
    }
    rising = ((0.1, 0.0), (0.3, 1.0))
    start = replace(PLAIN, epochs=20)
    long = replace(PLAIN, alpha=rising, sieve=SIEVE, epochs=120)
    growing = replace(long, alpha=((0.05, 0.0), (0.15, 1.0)), sieve=GROWING)
    # Each network sees half of a batch. These are the steps of one network for each of them.
    size, rate, decay = 2 * PLAIN.batch_size, 2 * PLAIN.learning_rate, PLAIN.weight_decay / 2
    pair = replace(long, batch_size=size, learning_rate=rate, weight_decay=decay)
    rest = replace(PLAIN, epochs=40, learning_rate=PLAIN.learning_rate / 2, warm_up=0.0)
    return {
        "cross entropy": [(PlainLoss(), PLAIN)],
        "cross entropy, 20 epochs": [(PlainLoss(), start)],
        "total variation": [(PlainLoss(), start), (FDivergenceLoss("total_variation"), rest)],
        "Jensen–Shannon": [(PlainLoss(), start), (FDivergenceLoss("jensen_shannon"), rest)],
        "peer loss": [(PeerLoss(), replace(PLAIN, alpha=((0.35, 0.0), (1.0, 1.0))))],
        **{name: [(PeerLoss(), replace(PLAIN, alpha=rising, sieve=sieve))] for name, sieve in sieves.items()},
        "sieve, 120 epochs": [(PeerLoss(), long)],
        PAIR: [(PeerLoss(), pair)],
        "growing sieve, 120 epochs": [(PeerLoss(), growing)],
        "growing sieve, 120 epochs, shares known": [
            (PeerLoss(), replace(growing, sieve=replace(GROWING, balance=shares)))
        ],
    }


def one_sided(n_classes: int, rate: float) -> NoiseModel:
    """Return noise that flips labels of the first half of the classes to the second half."""
    half = n_classes // 2
    transition = np.eye(n_classes)
    transition[:half] = (1.0 - rate) * transition[:half] + rate * transition[half:]
    return NoiseModel(transition)


MODELS = {"uniform": NoiseModel.uniform, "pairs": NoiseModel.pair_flip, "one side": one_sided}


def noisy_labels(kind: str, X: np.ndarray, y: np.ndarray, seed: int) -> np.ndarray:
    """Return the labels with the noise of the given kind."""
    name, _, rate = kind.removeprefix("skewed, ").rpartition(" ")
    if rate == "none":
        return y
    if name == "features":
        pixels = X.reshape(len(X), -1).astype(float)
        features = np.random.default_rng(seed)
        noise = InstanceNoise.from_features(pixels, y, rate=float(rate), random_state=features)
        return np.asarray(noise.apply(y, random_state=np.random.default_rng(seed)))
    # Generators, not seeds, so that the labels stay those of the published tables.
    rng = np.random.default_rng(seed)
    return np.asarray(flip_labels(y, MODELS[name](10, float(rate)), random_state=rng))


def network() -> nn.Module:
    """Return a small ResNet with new weights."""
    return ResNet((1, 1), width=16)


def accuracies(kind: str, seed: int, methods: list[str] | None = None) -> dict[str, float]:
    """Return the clean test accuracy of each method, with averaged weights after the last epoch."""
    torch.set_num_threads(1)
    digits = load_digits()
    X = np.repeat((15 * digits.images).astype(np.uint8)[..., None], 3, axis=3)
    y = digits.target
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(y))
    test, train = order[:TEST_ROWS], order[TEST_ROWS:]
    if kind.startswith("skewed"):  # keep a quarter of the digits 5 to 9
        train = train[rng.random(len(train)) < np.where(y[train] < 5, 1.0, 0.25)]
    noisy = noisy_labels(kind, X[train], y[train], seed)
    shares = tuple(np.bincount(y[train], minlength=10) / len(train))
    found = {}
    for name, stages in methods_of(shares).items():
        if methods is not None and name not in methods:
            continue
        torch.manual_seed(seed)
        model = Ensemble(network() for _ in range(2)) if name == PAIR else network()
        for loss, recipe in stages:
            seeded = replace(recipe, random_state=seed)
            result = train_deep(model, loss, X[train], noisy, recipe=seeded, device="cpu")
        model.load_state_dict(result.weights["average"])
        predicted = predict_logits(model, torch.as_tensor(X[test])).argmax(dim=1).numpy()
        found[name] = 100.0 * float((predicted == y[test]).mean())
    return found


def main() -> None:
    """Run all cells and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=KINDS)
    parser.add_argument("--methods", nargs="+", choices=list(methods_of((0.1,) * 10)))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    cells = [(kind, seed) for kind in options.kinds for seed in seeds]
    where = provenance("cpu")  # before the run, during which the commit may change
    found = Parallel(options.jobs, verbose=5)(delayed(accuracies)(*cell, options.methods) for cell in cells)
    by_cell = dict(zip(cells, found, strict=True))
    methods = list(found[0])
    lines = [
        "# The sieve on handwritten digits",
        "",
        f"`python benchmarks/deep_digits.py`; {where}; one thread per run; seeds {seeds[0]} to {seeds[-1]}.",
        "",
        "| noise | " + " | ".join(methods) + " |",
        "|" + " --- |" * (len(methods) + 1),
    ]
    scores = np.array(
        [[[by_cell[kind, seed][m] for seed in seeds] for m in methods] for kind in options.kinds]
    )
    means = scores.mean(axis=2)
    rows = [*zip(options.kinds, means, strict=True), ("mean", means.mean(axis=0))]
    lines += [f"| {kind} | " + " | ".join(f"{mean:.1f}" for mean in row) + " |" for kind, row in rows]
    if len(seeds) > 1:
        errors = scores.std(axis=2, ddof=1) / len(seeds) ** 0.5
        lines += [
            "",
            f"Standard errors over seeds: median {np.median(errors):.1f}, largest {errors.max():.1f}.",
        ]
    text = "\n".join([*lines, ""])
    publish(text, options.output)


if __name__ == "__main__":
    main()
