"""Accuracy against the share of labelled rows, with noisy labels.

Run ``python benchmarks/unlabelled_rows.py TABLES --runs RUNS.jsonl [--seeds 0-2] [--output TABLE.md]``, where
TABLES is a folder that contains ``segment.csv.gz``. Finished runs are stored in RUNS and skipped in later
runs. A run is one table, noise, share of labels and seed, and takes about ten seconds. Nothing is chosen on
clean labels: all classifiers have their default settings, and test rows are used once.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np
import pandas as pd
from measure import provenance, publish
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import LabelEncoder, StandardScaler
from sklearn.semi_supervised import LabelSpreading, SelfTrainingClassifier
from threadpoolctl import threadpool_limits

from peerloss import NoiseModel, PeerClassifier, flip_labels, load_dataset

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

TABLES = ("digits", "segment", "twonorm")
NOISES = ("uniform .2", "asymmetric .3")
SHARES = (0.01, 0.03, 0.1, 0.3, 1.0)
#: Rows for training and for testing.
N_TRAIN, N_TEST = 1000, 700
#: Fewest labelled rows of each clean class. A noisy label that occurs once is removed, for all methods:
#: ``PeerClassifier`` holds rows of every class out.
MIN_LABELS = 3
WITH, WITHOUT = "PeerClassifier, all rows", "PeerClassifier, labelled rows"
METHODS = (WITH, WITHOUT, "forest, labelled rows", "self-training, all rows", "label spreading, all rows")
Cell = tuple[str, str, float, int]
ABOUT = f"""
**Data.** digits (10 classes), segment (7) and twonorm (2): {N_TRAIN:,} training and {N_TEST} test
rows, drawn by the seed. Test labels are clean. *Uniform .2*: 20 % of the labels are replaced by
another class. *Asymmetric .3*: 30 % of the labels of every second class become the next class. The
given share of the rows keeps its noisy label, in proportion to the classes, but at least
{MIN_LABELS} rows of each clean class. So 1 % and 3 % are the same rows of digits. A noisy label
that occurs once is removed for all methods, because `PeerClassifier` needs two. The rule by which
`PeerClassifier` weights the candidate that learns from unlabelled rows was chosen on ten tables
that include segment, but not the other two.

**Methods.** All have their default settings; nothing is chosen on clean labels. *forest*:
`RandomForestClassifier`. *self-training*: `SelfTrainingClassifier` around it. *label spreading*:
`LabelSpreading(kernel="knn")` on standardised features. *gain*: `PeerClassifier` with all rows
minus with the labelled rows only, paired by seed; *better* and *worse* count gains beyond .002. ±
is the standard error over seeds. At 100 % both fits of `PeerClassifier` are the same.
"""


def load_table(name: str, folder: Path) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return features and clean class codes."""
    if name == "digits":
        features, labels = load_digits(return_X_y=True)
    elif name == "segment":
        table = pd.read_csv(folder / "segment.csv.gz")
        features, labels = table.iloc[:, :-1].to_numpy(dtype=float), table.iloc[:, -1]
    else:
        data = load_dataset(name)
        features, labels = data.X, data.y
    return np.asarray(features), LabelEncoder().fit_transform(labels)


def make_noise(name: str, n_classes: int) -> NoiseModel:
    """Return the noise model: every class at the same rate, or every second class to the next one."""
    if name == "uniform .2":
        return NoiseModel.uniform(n_classes, 0.2)
    T = np.eye(n_classes)
    for k in range(0, n_classes - 1, 2):
        T[k, k], T[k, k + 1] = 0.7, 0.3
    return NoiseModel(T)


def labelled_rows(clean: NDArray[Any], share: float, rng: np.random.Generator) -> NDArray[Any]:
    """Return the rows that keep their label, in proportion to the classes."""
    chosen = []
    for k in np.unique(clean):
        rows = rng.permutation(np.flatnonzero(clean == k))
        chosen.append(rows[: max(MIN_LABELS, round(share * len(rows)))])
    return np.concatenate(chosen)


def run_cell(cell: Cell, folder: Path) -> dict[str, Any]:
    """Fit all methods and return their accuracy on clean test labels."""
    name, noise, share, seed = cell
    X, clean = load_table(name, folder)
    rng = np.random.default_rng((crc32(name.encode()), seed))
    order = rng.permutation(len(X))
    train, test = order[:N_TRAIN], order[N_TRAIN : N_TRAIN + N_TEST]
    noisy = flip_labels(clean[train], make_noise(noise, clean.max() + 1), random_state=seed)
    labelled = labelled_rows(clean[train], share, rng)
    labelled = labelled[np.bincount(noisy[labelled])[noisy[labelled]] > 1]
    partial = np.full(len(train), -1)
    partial[labelled] = noisy[labelled]
    score: dict[str, float] = {}
    start = time.perf_counter()
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore")  # few labels: noise that cannot be estimated, absent classes
        for method in METHODS:
            if method == WITHOUT and share == 1.0:
                score[method] = score[WITH]
                continue
            known = labelled if method.endswith("labelled rows") else np.arange(len(train))
            y = partial[known].astype(float)
            if method in (WITH, WITHOUT):
                y[y < 0] = np.nan  # two classes of which one is absent are not taken for -1 and 1
            model = make_model(method, seed).fit(X[train[known]], y)
            score[method] = float(np.mean(model.predict(X[test]) == clean[test]))
    seconds = time.perf_counter() - start
    return {"cell": [*cell], "accuracy": score, "labels": len(labelled), "seconds": seconds}


def make_model(method: str, seed: int) -> Any:
    if method in (WITH, WITHOUT):
        return PeerClassifier(random_state=seed)
    forest = RandomForestClassifier(random_state=seed)
    if method.startswith("forest"):
        return forest
    if method.startswith("self-training"):
        return SelfTrainingClassifier(forest)
    return make_pipeline(StandardScaler(), LabelSpreading(kernel="knn"))


def read_runs(path: Path) -> dict[Cell, dict[str, Any]]:
    """Return finished runs; a line truncated by a crash is skipped, and its run repeated."""
    runs = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            continue
        runs[tuple(record["cell"])] = record
    return runs


def table_of(runs: Iterable[dict[str, Any]]) -> list[str]:
    """Return one table per noise, and the paired difference that unlabelled rows make."""
    frame = pd.DataFrame(
        [
            {**dict(zip(("table", "noise", "share", "seed"), run["cell"], strict=True)), **run["accuracy"]}
            | {"labels": run["labels"]}
            for run in runs
        ]
    )
    frame["gain"] = frame[WITH] - frame[WITHOUT]
    lines = []
    for noise in NOISES:
        lines += [f"## {noise[0].upper()}{noise[1:]}", ""]
        lines.append(f"| table | labels | {' | '.join(METHODS)} | gain from unlabelled rows |")
        lines.append("|---" * (3 + len(METHODS)) + "|")
        for (name, share), part in frame[frame["noise"] == noise].groupby(["table", "share"]):
            cells = [f"{part[method].mean():.3f} ± {_error(part[method]):.3f}" for method in METHODS]
            gain = "" if share == 1.0 else f"{part['gain'].mean():+.3f} ± {_error(part['gain']):.3f}"
            lines.append(
                f"| {name} | {part['labels'].mean():.0f} ({share:.0%}) | {' | '.join(cells)} | {gain} |"
            )
        lines.append("")
    return lines + _means(frame)


def _means(frame: pd.DataFrame) -> list[str]:
    lines = [
        "## Mean over tables and noises",
        "",
        f"| share | {' | '.join(METHODS)} | gain | better, worse |",
    ]
    lines.append("|---" * (3 + len(METHODS)) + "|")
    for share, part in frame.groupby("share"):
        means = [f"{part[method].mean():.3f}" for method in METHODS]
        better, worse = (part["gain"] > 0.002).sum(), (part["gain"] < -0.002).sum()
        gain = "| " if share == 1.0 else f"{part['gain'].mean():+.3f} | {better}, {worse} of {len(part)}"
        lines.append(f"| {share:.0%} | {' | '.join(means)} | {gain} |")
    return [*lines, ""]


def _error(values: pd.Series) -> float:
    """Return the standard error of a mean over seeds."""
    return float(values.std(ddof=1) / np.sqrt(len(values)))


def main() -> None:
    """Run what is missing and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="folder with segment.csv.gz")
    parser.add_argument("--runs", type=Path, required=True, help="finished runs, one line each")
    parser.add_argument("--seeds", default="0-2", help="first-last")
    parser.add_argument("--output", type=Path, help="also write the tables here")
    arguments = parser.parse_args()
    first, last = (int(part) for part in arguments.seeds.split("-"))
    runs = read_runs(arguments.runs)
    cells = list(product(TABLES, NOISES, SHARES, range(first, last + 1)))
    for cell in sorted(cells, key=lambda cell: cell[-1]):
        if cell not in runs:
            runs[cell] = run_cell(cell, arguments.folder)
            with arguments.runs.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(runs[cell]) + "\n")
    text = [
        "# Accuracy against the share of rows with a (noisy) label",
        "",
        f"Measured with `benchmarks/unlabelled_rows.py`: {provenance('cpu')}; seeds {arguments.seeds}.",
        ABOUT,
        *table_of(runs[cell] for cell in cells),
    ]
    publish("\n".join(text), arguments.output)


if __name__ == "__main__":
    main()
