"""Compare PeerClassifier with plain forests on the tables of a folder, with two and more classes.

Run ``python benchmarks/tables.py FOLDER --runs RUNS.jsonl [--tables segment vowel] [--seeds 0-2]``. Each
``NAME.csv.gz`` in FOLDER has clean labels in its last column. Half of the rows are used for training, with
randomly flipped labels, and half for testing, with clean labels. Finished cells are stored in RUNS and
skipped in later runs.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any

import pandas as pd
from measure import provenance, publish
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from threadpoolctl import threadpool_limits

from peerloss import NoiseModel, PeerClassifier, flip_labels
from peerloss.estimators import TableEncoder

TWO_CLASSES = {
    ".1, .3": NoiseModel.binary(0.1, 0.3),
    ".2, .4": NoiseModel.binary(0.2, 0.4),
    ".3, .3": NoiseModel.binary(0.3, 0.3),
}


def noises(k: int) -> dict[str, NoiseModel]:
    """Return the noises for K classes by name."""
    if k == 2:
        return TWO_CLASSES
    return {
        "uniform .2": NoiseModel.uniform(k, 0.2),
        "uniform .4": NoiseModel.uniform(k, 0.4),
        "pair .3": NoiseModel.pair_flip(k, 0.3),
    }


def models(seed: int) -> dict[str, Any]:
    """Return the classifiers to compare."""
    return {
        "PeerClassifier": PeerClassifier(random_state=seed),
        "forest": RandomForestClassifier(random_state=seed),
        "forest, leaf 10": RandomForestClassifier(min_samples_leaf=10, random_state=seed),
    }


def run(path: Path, noise_name: str, seed: int) -> dict[str, Any]:
    """Train all classifiers on one table, noise and seed."""
    frame = pd.read_csv(path)
    codes, classes = pd.factorize(frame.iloc[:, -1], sort=True)
    X_train, X_test, y_train, y_test = train_test_split(
        frame.iloc[:, :-1], codes, test_size=0.5, random_state=seed, stratify=codes
    )
    noisy = flip_labels(y_train, noises(len(classes))[noise_name], random_state=seed)
    record: dict[str, Any] = {
        "table": path.name.removesuffix(".csv.gz"),
        "rows": len(X_train),
        "classes": len(classes),
        "noise": noise_name,
        "seed": seed,
    }
    for name, model in models(seed).items():
        started = time.perf_counter()
        with warnings.catch_warnings(), threadpool_limits(1):
            warnings.simplefilter("ignore")
            fitted = make_pipeline(TableEncoder(), model).fit(X_train, noisy)
        record[name] = float((fitted.predict(X_test) == y_test).mean())
        record[f"{name}, seconds"] = round(time.perf_counter() - started, 1)
        if name == "PeerClassifier":
            report = fitted[-1].report_
            record |= {"estimated": report.accuracy, "low": report.accuracy_low, "high": report.accuracy_high}
            record["fits"] = bool(report.fits)
    return record


def table(records: list[dict[str, Any]]) -> list[str]:
    """Return one row per table and noise, means over seeds."""
    names = list(models(0))
    lines = [
        f"| table | training rows | classes | noise | {' | '.join(names)} | its own estimate | fits |",
        "|" + "---|" * (len(names) + 6),
    ]
    frame = pd.DataFrame(records)
    for (name, rows, k, noise), cells in frame.groupby(["table", "rows", "classes", "noise"], sort=True):
        means = [float(cells[method].mean()) for method in names]
        shown = [f"**{mean:.3f}**" if mean == max(means) else f"{mean:.3f}" for mean in means]
        own = f"{cells['estimated'].mean():.3f} ({cells['low'].mean():.3f} to {cells['high'].mean():.3f})"
        fits = f"{int(cells['fits'].sum())} of {len(cells)}"
        lines.append(f"| {name} | {rows} | {k} | {noise} | {' | '.join(shown)} | {own} | {fits} |")
    overall = " | ".join(f"{frame[method].mean():.3f}" for method in names)
    return [*lines, f"| **mean** | | | | {overall} | {frame['estimated'].mean():.3f} | |"]


def main() -> None:
    """Run missing cells, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--tables", nargs="+", help="names of tables; by default all in the folder")
    parser.add_argument("--seeds", default="0-0", help="first-last")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    first, last = map(int, options.seeds.split("-"))
    done = [json.loads(line) for line in options.runs.open()] if options.runs.exists() else []
    keys = {(record["table"], record["noise"], record["seed"]) for record in done}
    for path in sorted(options.folder.glob("*.csv.gz")):
        name = path.name.removesuffix(".csv.gz")
        if options.tables and name not in options.tables:
            continue
        k = pd.read_csv(path).iloc[:, -1].nunique()
        for seed, noise in ((s, n) for s in range(first, last + 1) for n in noises(k)):
            if (name, noise, seed) not in keys:
                done.append(run(path, noise, seed))
                with options.runs.open("a") as file:
                    file.write(json.dumps(done[-1]) + "\n")
                print(done[-1], flush=True)
    text = "\n".join([f"Measured with `benchmarks/tables.py`: {provenance('cpu')}.", "", *table(done), ""])
    publish(text, options.output)


if __name__ == "__main__":
    main()
