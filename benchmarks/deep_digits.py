"""The sieve of the deep loop on small images that its settings were not chosen on: handwritten digits.

Run ``python benchmarks/deep_digits.py [--seeds 4] [--output FILE]`` (20 minutes on two cores). A small
ResNet on scikit-learn's digits under thirteen kinds of noise. Nothing is chosen here: all methods have the
recipe below.
"""

from __future__ import annotations

import argparse
import statistics
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from joblib import Parallel, delayed
from measure import provenance
from sklearn.datasets import load_digits

from peerloss import BaseLoss, NoiseModel, PeerLoss, flip_labels
from peerloss.models import ResNet
from peerloss.noise import InstanceNoise
from peerloss.training import Augment, DeepRecipe, Sieve, predict_logits, train_deep

PLAIN = DeepRecipe(
    epochs=60, batch_size=64, learning_rate=0.1, augment=Augment(crop=1, flip=False), average=0.95
)
PEER = replace(PLAIN, alpha=((0.35, 0.0), (1.0, 1.0)))
SIEVE = Sieve(start=0.3, augment=Augment(crop=1, flip=False, cutout=3, affine=15.0, colour=0.3, share=0.5))
RECIPES = {
    "cross entropy": PLAIN,
    "cross entropy, 20 epochs": replace(PLAIN, epochs=20),
    "peer loss": PEER,
    **{
        name: replace(PLAIN, alpha=((0.1, 0.0), (0.3, 1.0)), sieve=sieve)
        for name, sieve in {
            "sieve, targets fixed": replace(SIEVE, renew=0),
            "sieve, trust 0": replace(SIEVE, trust=0.0),
            "**sieve** (trust ½)": SIEVE,
            "sieve, trust 1": replace(SIEVE, trust=1.0),
            "sieve, balanced": replace(SIEVE, balance=True),
        }.items()
    },
}
DEFAULT, SHARES_KNOWN = "**sieve** (trust ½)", "sieve, shares known"
KINDS = (
    "none", "uniform .2", "uniform .4", "uniform .6", "pairs .2", "pairs .4", "features .2", "features .4",
    "one side .4", "skewed, none", "skewed, uniform .4", "skewed, pairs .3", "skewed, one side .3",
)  # fmt: skip
TEST_ROWS = 597


def noisy_labels(kind: str, X: np.ndarray, y: np.ndarray, seed: int) -> np.ndarray:
    name, _, rate = kind.rpartition(", ")[2].partition(" ")
    if name == "none":
        return y
    if name == "one":  # side: five classes lose labels to the five others
        rate = rate.removeprefix("side ")
        transition = np.eye(10)
        transition[:5] = (1.0 - float(rate)) * np.eye(10)[:5] + float(rate) * np.eye(10)[5:]
        return np.asarray(flip_labels(y, NoiseModel(transition), random_state=seed))
    if name == "features":
        pixels = X.reshape(len(X), -1).astype(float)
        noise = InstanceNoise.from_features(pixels, y, rate=float(rate), random_state=seed)
        return np.asarray(noise.apply(y, random_state=seed))
    make = {"uniform": NoiseModel.uniform, "pairs": NoiseModel.pair_flip}[name]
    return np.asarray(flip_labels(y, make(10, float(rate)), random_state=seed))


def accuracies(kind: str, seed: int) -> dict[str, float]:
    """Return the clean test accuracy of each method, with averaged weights after the last epoch."""
    torch.set_num_threads(1)
    digits = load_digits()
    X = np.repeat((15 * digits.images).astype(np.uint8)[..., None], 3, axis=3)
    y = digits.target
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(y))
    test, train = order[:TEST_ROWS], order[TEST_ROWS:]
    if kind.startswith("skewed"):  # a quarter of the digits from five on
        train = train[rng.random(len(train)) < np.where(y[train] < 5, 1.0, 0.25)]
    noisy = noisy_labels(kind, X[train], y[train], seed)
    shares = tuple(np.bincount(y[train], minlength=10) / len(train))
    known = replace(RECIPES[DEFAULT], sieve=replace(SIEVE, balance=shares))
    found = {}
    for name, recipe in (RECIPES | {SHARES_KNOWN: known}).items():
        torch.manual_seed(seed)
        model = ResNet((1, 1), width=16)
        loss = PeerLoss() if recipe.alpha else BaseLoss()
        result = train_deep(model, loss, X[train], noisy, recipe=replace(recipe, seed=seed), device="cpu")
        model.load_state_dict(result.weights["average"])
        predicted = predict_logits(model, torch.as_tensor(X[test])).argmax(dim=1).numpy()
        found[name] = 100.0 * float((predicted == y[test]).mean())
    return found


def main() -> None:
    """Run everything and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=KINDS)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    cells = [(kind, seed) for kind in options.kinds for seed in seeds]
    where = provenance("cpu")  # of the code that runs; a commit may follow meanwhile
    found = Parallel(options.jobs, verbose=5)(delayed(accuracies)(*cell) for cell in cells)
    by_cell = dict(zip(cells, found, strict=True))
    methods = [*RECIPES, SHARES_KNOWN]
    lines = [
        "# The sieve on handwritten digits",
        "",
        f"`python benchmarks/deep_digits.py`; {where}; one thread a run; seeds {seeds[0]} to {seeds[-1]}.",
        "",
        "| noise | " + " | ".join(methods) + " |",
        "|" + " --- |" * (len(methods) + 1),
    ]
    errors = []
    for kind in options.kinds:
        columns = [[by_cell[kind, seed][name] for seed in seeds] for name in methods]
        lines.append(f"| {kind} | " + " | ".join(f"{statistics.fmean(c):.1f}" for c in columns) + " |")
        errors += [statistics.stdev(c) / len(c) ** 0.5 for c in columns] if len(seeds) > 1 else []
    if errors:
        lines += [
            "",
            f"Standard errors over seeds: median {statistics.median(errors):.1f}, largest {max(errors):.1f}.",
        ]
    text = "\n".join([*lines, ""])
    print(text)
    if options.output:
        options.output.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
