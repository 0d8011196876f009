"""PeerBoostingClassifier and LightGBM on clean test labels, trained on noisy labels.

Run ``python benchmarks/boosting_tables.py --seeds 10-11 --runs RUNS.jsonl [--folder TABLES]
[--output TABLE.md]``. Finished cells are stored in RUNS and skipped in later runs. TABLES has files
``NAME.csv.gz`` with a column ``label``. Without it only the data sets of the library, of scikit-learn and
synthetic ones are used. Text columns are categorical for every method. Compared on the same splits:

- *LightGBM*: ``LGBMClassifier()``;
- *stopped early*: the same, stopped by the log loss of 15 % of the noisy rows (at most 500 rounds);
- *noisy argmax*: the booster of ``PeerBoostingClassifier()``, with its rounds and leaves, without undoing
  the noise;
- *PeerBoosting*: ``PeerBoostingClassifier()``.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
import warnings
from itertools import product
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pandas as pd
import sklearn
from joblib import Parallel, delayed
from measure import publish
from sklearn.datasets import load_breast_cancer, make_blobs, make_classification
from sklearn.model_selection import train_test_split

import peerloss
from peerloss import NoiseModel, PeerBoostingClassifier, flip_labels, load_dataset

NOISES = ("none", "uniform .2", "uniform .4", "pair .3", "asymmetric")
METHODS = ("LightGBM", "stopped early", "noisy argmax", "PeerBoosting")
LIBRARY_TABLES = ("diabetes", "german", "image", "waveform", "twonorm")
FOLDER_TABLES = ("crx", "chess", "led7digit", "vowel", "segment")
#: Name → training rows, classes, and keywords of the generator.
GAUSSIANS = {"gaussians 1k": (1000, 3), "gaussians 5k": (5000, 3)}
CLUSTERS = {"clusters 1k": (1000, 2), "clusters 5k": (5000, 2), "clusters 4k": (4000, 5)}
MAX_TEST_ROWS = 3000
#: Accuracies that differ by less than this count as equal.
TIE = 0.002
Cell = tuple[str, str, int]
HEADER = """# PeerBoostingClassifier and LightGBM

Measured with `benchmarks/boosting_tables.py`: {versions}, 1 thread; seeds {seeds}. Accuracy on clean test
labels; the training labels are noisy. All methods have their default settings. These are development tables:
the defaults were chosen by clean test accuracy on other splits (seeds 0 to 2) of most of them, so expect
somewhat less on other tables.

Noise: *uniform* flips to any other class, *pair* to the next class, *asymmetric* has rates .1 and .3 for two
classes (the order is drawn), and for more classes rates up to .4 with drawn targets.

- *stopped early*: LightGBM, stopped by the log loss of 15 % of the noisy rows.
- *noisy argmax*: the booster of `PeerBoostingClassifier`, without undoing the noise.
- *gain*: PeerBoosting − LightGBM, with its standard error over the cells of the row.
- *rounds*, *s*: medians of the chosen rounds and of the seconds per fit on a busy machine.
- *7 leaves*: share of cells in which the smaller trees were chosen.

{tables}
"""


def load_table(name: str, folder: Path | None, seed: int) -> tuple[pd.DataFrame, np.ndarray]:
    """Return features with categorical columns, and class codes."""
    if name in GAUSSIANS or name in CLUSTERS:
        n_train, n_classes = (GAUSSIANS | CLUSTERS)[name]
        size = n_train + MAX_TEST_ROWS
        if name in GAUSSIANS:
            X, y = make_blobs(size, 5, centers=n_classes, center_box=(-2.0, 2.0), random_state=seed)[:2]
        else:
            shape = {"n_informative": 8, "n_redundant": 2, "n_clusters_per_class": 3, "flip_y": 0.0}
            X, y = make_classification(size, 20, n_classes=n_classes, random_state=seed, **shape)
        return pd.DataFrame(X), y
    if name == "breast_cancer":
        X, y = load_breast_cancer(return_X_y=True, as_frame=True)
        return X, y.to_numpy()
    if name in LIBRARY_TABLES:
        data = load_dataset(name)
        return _with_categories(pd.DataFrame(data.X)), pd.factorize(np.asarray(data.y), sort=True)[0]
    table = pd.read_csv(folder / f"{name}.csv.gz")  # type: ignore[operator]  # these names need the folder
    return _with_categories(table.drop(columns="label")), pd.factorize(table["label"], sort=True)[0]


def _with_categories(X: pd.DataFrame) -> pd.DataFrame:
    text = [column for column in X if not pd.api.types.is_numeric_dtype(X[column])]
    numbers = X[text].apply(pd.to_numeric, errors="coerce")
    is_number = numbers.notna().all()
    kinds = {column: "float64" if is_number[column] else "category" for column in text}
    return X.astype(kinds)


def make_noise(kind: str, n_classes: int, rng: np.random.Generator) -> NoiseModel:
    """Return the noise of a cell; asymmetric noise is drawn anew for each seed."""
    if kind.startswith("uniform"):
        return NoiseModel.uniform(n_classes, float(kind.split()[1]))
    if kind.startswith("pair"):
        return NoiseModel.pair_flip(n_classes, float(kind.split()[1]))
    if kind == "none":
        return NoiseModel(np.eye(n_classes))
    if n_classes == 2:
        return NoiseModel.binary(*rng.permutation([0.1, 0.3]))
    flipped = rng.uniform(0.0, 0.4, size=n_classes)
    transition = np.diag(1.0 - flipped)
    for i, rate in enumerate(flipped):
        transition[i, np.arange(n_classes) != i] = rate * rng.dirichlet(np.full(n_classes - 1, 0.5))
    return NoiseModel(transition)


def run_cell(cell: Cell, folder: Path | None) -> dict[str, Any]:
    """Fit all methods on one split."""
    warnings.simplefilter("ignore")
    name, kind, seed = cell
    X, y = load_table(name, folder, seed)
    test_size: float = MAX_TEST_ROWS if name in GAUSSIANS or name in CLUSTERS else 0.3
    X_train, X_test, clean, y_test = train_test_split(
        X, y, test_size=test_size, stratify=y, random_state=seed
    )
    noise = make_noise(kind, len(np.unique(y)), np.random.default_rng(seed))
    noisy = flip_labels(clean, noise, random_state=seed)
    plain = lightgbm.LGBMClassifier(n_jobs=1, verbose=-1).fit(X_train, noisy)
    kept, held_out = train_test_split(
        np.arange(len(noisy)), test_size=0.15, stratify=noisy, random_state=seed
    )
    stopped = lightgbm.LGBMClassifier(n_estimators=500, n_jobs=1, verbose=-1).fit(
        X_train.iloc[kept],
        noisy[kept],
        eval_set=[(X_train.iloc[held_out], noisy[held_out])],
        callbacks=[lightgbm.early_stopping(30, verbose=False)],
    )
    start = time.perf_counter()
    ours = PeerBoostingClassifier(random_state=seed).fit(X_train, noisy)
    seconds = time.perf_counter() - start
    undone = ours.classes_[ours.predict_noisy_proba(X_test).argmax(axis=1)]
    predictions = [plain.predict(X_test), stopped.predict(X_test), undone, ours.predict(X_test)]
    return {
        "cell": [*cell],
        "rows": len(noisy),
        "classes": int(y.max()) + 1,
        "accuracy": {m: float((p == y_test).mean()) for m, p in zip(METHODS, predictions, strict=True)},
        "rounds": ours.n_iter_,
        "leaves": ours.num_leaves_,
        "seconds": seconds,
    }


def read_runs(path: Path) -> dict[Cell, dict[str, Any]]:
    """Return the finished cells."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return {tuple(record["cell"]): record for record in map(json.loads, lines)}


def tables_of(runs: list[dict[str, Any]]) -> list[str]:
    """Return the means by noise, and the means of each table over the noisy cells."""
    frame = pd.DataFrame(
        [{k: r[k] for k in ("rows", "classes", "rounds", "leaves", "seconds")} | r["accuracy"] for r in runs]
    )
    frame["table"], frame["noise"], frame["seed"] = zip(*(r["cell"] for r in runs), strict=True)
    frame["gain"] = frame["PeerBoosting"] - frame["LightGBM"]
    noisy, clean = frame[frame["noise"] != "none"], frame[frame["noise"] == "none"]
    stopped = (noisy["stopped early"] >= noisy["LightGBM"]).mean()
    wins, ties = noisy["gain"] >= 0, noisy["gain"] >= -TIE
    with_noise = (
        f"**{len(noisy)} cells with noise:** at least LightGBM in {wins.sum()} ({wins.mean():.1%}; "
        f"{ties.mean():.1%} if a loss of at most {TIE} counts as a tie); the goal is 90 %. Mean gain "
        f"{noisy['gain'].mean():+.4f}, largest loss {noisy['gain'].min():+.4f}. LightGBM stopped early is at "
        f"least LightGBM in {stopped:.1%}."
    )
    without = (
        f"**{len(clean)} cells without noise:** mean gain {clean['gain'].mean():+.4f}, largest loss "
        f"{clean['gain'].min():+.4f}."
    )
    lines = [with_noise, "", without, ""]
    head = f"| {' | '.join(METHODS)} | gain ± s.e. | ≥ LightGBM | rounds | 7 leaves | s |"
    rule = "---|" * (len(METHODS) + 6)
    by_classes = np.where(frame["classes"] == 2, "2", "more")
    lines += ["## By noise", "", f"| classes, noise {head}", f"|{rule}"]
    for (k, noise), part in frame.groupby([by_classes, "noise"]):
        lines.append(_row(f"{k}, {noise}", part))
    lines += ["", "## By table, cells with noise", "", f"| table (rows, classes) {head}", f"|{rule}"]
    for (name, n, k), part in noisy.groupby(["table", "rows", "classes"]):
        lines.append(_row(f"{name} ({n}, {k})", part))
    return lines


def _row(name: str, part: pd.DataFrame) -> str:
    error = part["gain"].std() / np.sqrt(len(part))
    numbers = " | ".join(f"{part[method].mean():.3f}" for method in METHODS)
    return (
        f"| {name} | {numbers} | {part['gain'].mean():+.3f} ± {error:.3f} | {(part['gain'] >= 0).mean():.0%} "
        f"| {part['rounds'].median():.0f} | {(part['leaves'] == 7).mean():.0%} "
        f"| {part['seconds'].median():.1f} |"
    )


def main() -> None:
    """Run the missing cells and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", default="10-11", help="first and last seed")
    parser.add_argument("--runs", type=Path, required=True, help="file with finished cells")
    parser.add_argument("--folder", type=Path, help="folder with NAME.csv.gz")
    parser.add_argument("--output", type=Path, help="file for the table")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    args = parser.parse_args()
    first, last = (int(seed) for seed in args.seeds.split("-"))
    names = [*LIBRARY_TABLES, "breast_cancer", *GAUSSIANS, *CLUSTERS, *(FOLDER_TABLES if args.folder else ())]
    done = read_runs(args.runs)
    cells = list(product(names, NOISES, range(first, last + 1)))
    missing = sorted((cell for cell in cells if cell not in done), key=lambda cell: cell[2])
    found = Parallel(args.jobs, return_as="generator_unordered")(
        delayed(run_cell)(cell, args.folder) for cell in missing
    )
    with args.runs.open("a", encoding="utf-8") as file:
        for record in found:
            file.write(json.dumps(record) + "\n")
            file.flush()
    runs = read_runs(args.runs)
    versions = f"peerloss {peerloss.__version__}, lightgbm {lightgbm.__version__}"
    text = HEADER.format(
        versions=f"{versions}, scikit-learn {sklearn.__version__}, Python {platform.python_version()}",
        seeds=f"{first} to {last}",
        tables="\n".join(tables_of([runs[cell] for cell in cells if cell in runs])),
    )
    publish(text, args.output)


if __name__ == "__main__":
    main()
