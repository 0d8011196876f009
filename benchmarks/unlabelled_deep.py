"""Accuracy of ``train_deep`` against the share of labelled images, with noisy labels.

Run ``python benchmarks/unlabelled_deep.py --runs RUNS.jsonl [--seeds 4] [--output TABLE.md]`` (15 minutes on
one core). Finished runs are stored in RUNS and skipped in later runs. Nothing is chosen on clean labels: the
recipe is that of ``deep_digits.py``, with lengths in steps, so that methods with few labels train as long.
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from deep_digits import PLAIN, SIEVE, TEST_ROWS
from measure import provenance, publish
from sklearn.datasets import load_digits
from unlabelled_rows import NOISES, SHARES, labelled_rows, make_noise

from peerloss import PeerLoss, flip_labels
from peerloss.models import ResNet
from peerloss.training import DeepRecipe, predict_logits, train_deep

#: Steps on the labels before the sieve starts, and epochs of all rows afterwards.
FIRST_STEPS, SIEVE_EPOCHS = 300, 40
ALL = "sieve, all rows"
LABELLED = "sieve, labelled rows"
METHODS = (ALL, LABELLED, "peer loss, labelled rows", "cross entropy, labelled rows")
ABOUT = f"""
**Data.** scikit-learn's digits as images: 1,200 for training, {TEST_ROWS} with clean labels for the test,
drawn by the seed. Noise and share of labels are those of the tables above; the other labels are -1.

**Methods.** `train_deep` with a small ResNet and the recipe of `deep_digits.py`; no setting was chosen here.
All have {FIRST_STEPS} steps, in which the α of peer loss rises from 0 to 1, and then {SIEVE_EPOCHS} epochs of
1,200 rows, or as many steps. *sieve, all rows* trains unlabelled rows on predictions after the first part;
*sieve, labelled rows* is not given them. Both also have stronger augmentation then, which is a part of what
they gain over peer loss. ± is the standard error over seeds, and *gain* the difference of the two sieves,
paired by seed.
"""


def make_recipe(method: str, n_labelled: int, n_rows: int, seed: int) -> DeepRecipe:
    """Return the recipe whose lengths in steps do not depend on the number of labels."""
    per_epoch = math.ceil(n_labelled / PLAIN.batch_size)
    first = math.ceil(FIRST_STEPS / per_epoch)
    if method == ALL:
        rest = SIEVE_EPOCHS
    else:
        rest = math.ceil(SIEVE_EPOCHS * math.ceil(n_rows / PLAIN.batch_size) / per_epoch)
    epochs = first + rest
    start = first / epochs
    sieve = replace(SIEVE, start=start) if method.startswith("sieve") else None
    alpha = 0.0 if method.startswith("cross entropy") else 1.0
    knots = ((start / 3, 0.0), (start, alpha))
    return replace(PLAIN, epochs=epochs, sieve=sieve, alpha=knots, random_state=seed)


def run_cell(noise: str, share: float, seed: int) -> dict[str, Any]:
    """Return the clean test accuracy of each method, with averaged weights after the last epoch."""
    digits = load_digits()
    X, clean = np.repeat((15 * digits.images).astype(np.uint8)[..., None], 3, axis=3), digits.target
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(clean))
    test, train = order[:TEST_ROWS], order[TEST_ROWS:]
    noisy = flip_labels(clean[train], make_noise(noise, 10), random_state=seed)
    labelled = labelled_rows(clean[train], share, rng)
    partial = np.full(len(train), -1)
    partial[labelled] = noisy[labelled]
    score: dict[str, float] = {}
    for method in METHODS:
        if method == LABELLED and share == 1.0:
            score[method] = score[ALL]
            continue
        rows = np.arange(len(train)) if method == ALL else np.sort(labelled)
        torch.manual_seed(seed)
        model = ResNet((1, 1), width=16)
        recipe = make_recipe(method, len(labelled), len(train), seed)
        result = train_deep(model, PeerLoss(), X[train[rows]], partial[rows], recipe=recipe, device="cpu")
        model.load_state_dict(result.weights["average"])
        predicted = predict_logits(model, torch.as_tensor(X[test])).argmax(dim=1).numpy()
        score[method] = float((predicted == clean[test]).mean())
    return {"noise": noise, "share": share, "seed": seed, "labels": len(labelled), "accuracy": score}


def make_table(records: list[dict[str, Any]]) -> list[str]:
    """Return the lines of the Markdown table."""
    frame = pd.DataFrame([{**r, **r["accuracy"]} for r in records])
    frame["gain"] = frame[ALL] - frame[LABELLED]
    lines = [f"| noise | labels | {' | '.join(METHODS)} | gain from unlabelled rows |"]
    lines.append("|" + "---|" * (3 + len(METHODS)))
    for (noise, share), part in frame.groupby(["noise", "share"], sort=False):
        cells = [_mean(part[method], "") for method in METHODS]
        gain = "" if share == 1.0 else _mean(part["gain"], "+")
        lines.append(
            f"| {noise} | {part['labels'].mean():.0f} ({share:.0%}) | {' | '.join(cells)} | {gain} |"
        )
    return lines


def _mean(values: pd.Series, sign: str) -> str:
    return f"{values.mean():{sign}.3f} ± {values.std(ddof=1) / np.sqrt(len(values)):.3f}"


def main() -> None:
    """Run what is missing and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    text = options.runs.read_text(encoding="utf-8") if options.runs.exists() else ""
    done = {(r["noise"], r["share"], r["seed"]): r for r in map(json.loads, text.splitlines())}
    here = provenance("cpu")
    cells = list(product(NOISES, SHARES, range(options.seeds)))
    for cell in sorted(cells, key=lambda cell: cell[-1]):
        if cell not in done:
            done[cell] = run_cell(*cell) | {"provenance": here}
            with options.runs.open("a", encoding="utf-8") as file:
                file.write(json.dumps(done[cell]) + "\n")
    records = [done[cell] for cell in cells]
    versions = "; ".join(dict.fromkeys(r["provenance"] for r in records))
    head = f"Measured with `benchmarks/unlabelled_deep.py`: {versions}; seeds 0 to {options.seeds - 1}."
    publish("\n".join(["## Deep networks", "", head, ABOUT, *make_table(records), ""]), options.output)


if __name__ == "__main__":
    main()
