"""Accuracy of PeerClassifier on clean labels, for the paper's data sets, noise rates and priors.

Run ``python benchmarks/accuracy.py --seeds 100-107 --runs RUNS.jsonl [--output TABLE.md]``. Finished cells
are stored in RUNS and skipped in later runs. Exact numbers of training labels are flipped, and 15 % of the
rows with clean labels are used for testing. `metric` is balanced accuracy for the equalised prior. Compared
on the same splits:

- *plain*: the same portfolio and averaging without noise handling (argmax of the noisy posterior);
- *clean*: the same, trained on clean labels, as an upper limit;
- plug-in logistic regression, random forest and LightGBM, thresholded at the noisy prior (α = 1).

The recovered share is (ours − plain)/(clean − plain) of the means. *estimated* is the accuracy that
PeerClassifier estimates from noisy labels alone.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from lightgbm import LGBMClassifier
from measure import provenance, publish
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

from peerloss import NoiseModel, PeerClassifier, PeerPlugInClassifier, list_datasets, load_dataset
from peerloss.datasets import Split, split_and_flip

NOISES = ((0.1, 0.3), (0.2, 0.2), (0.1, 0.4), (0.2, 0.4), (0.4, 0.4))
#: Table A1 of the paper: means over its five noise pairs, of Peer and of the best method in each row.
PAPER = {
    "equalized": {"peer": 0.820, "best": 0.831},
    "original": {"peer": 0.834, "best": 0.853},
}
#: Means of its column Peer over the five noise pairs.
PAPER_PEER = {
    "equalized": {
        "breast": 0.622,
        "breast2": 0.929,
        "diabetes": 0.744,
        "german": 0.671,
        "heart": 0.809,
        "image": 0.811,
        "splice": 0.894,
        "thyroid": 0.864,
        "twonorm": 0.976,
        "waveform": 0.882,
    },
    "original": {
        "breast": 0.713,
        "breast2": 0.94,
        "diabetes": 0.741,
        "german": 0.676,
        "heart": 0.842,
        "image": 0.784,
        "splice": 0.902,
        "thyroid": 0.885,
        "twonorm": 0.976,
        "waveform": 0.884,
    },
}
Cell = tuple[str, str, float, float, int]


def run_group(name: str, prior: str, seed: int, noises: list[tuple[float, float]]) -> list[dict[str, Any]]:
    """Fit all methods on one split under several noises; the model on clean labels is fitted once."""
    warnings.simplefilter("ignore")
    data, equalize = load_dataset(name), prior == "equalized"
    with threadpool_limits(1):
        clean = split_and_flip(data, NoiseModel.binary(0.0, 0.0), equalize=equalize, random_state=seed)
        ceiling = PeerClassifier(alpha=0.0, random_state=seed).fit(clean.X_train, clean.y_train)
        ceiling_accuracy = float(ceiling.score(clean.X_test, clean.y_test))
        return [_run_cell((name, prior, *noise, seed), ceiling_accuracy) for noise in noises]


def _run_cell(cell: Cell, ceiling: float) -> dict[str, Any]:
    name, prior, e_neg, e_pos, seed = cell
    equalize = prior == "equalized"
    noisy = split_and_flip(
        load_dataset(name), NoiseModel.binary(e_neg, e_pos), equalize=equalize, random_state=seed
    )
    start = time.perf_counter()
    metric = "balanced_accuracy" if equalize else "accuracy"
    ours = PeerClassifier(metric=metric, random_state=seed).fit(noisy.X_train, noisy.y_train)
    seconds = time.perf_counter() - start
    plain = ours.predict_noisy_proba(noisy.X_test).argmax(axis=1)
    leaf = max(1, len(noisy.y_train) // 40)
    accuracies = {
        "ours": ours.score(noisy.X_test, noisy.y_test),
        "plain": float((plain == noisy.y_test).mean()),
        "clean": ceiling,
        "logistic": _plug_in(LogisticRegression(C=0.01, max_iter=500), noisy),
        "forest": _plug_in(RandomForestClassifier(min_samples_leaf=leaf, random_state=seed), noisy),
        "lightgbm": _plug_in(
            LGBMClassifier(num_leaves=7, min_child_samples=max(5, leaf), verbose=-1, n_jobs=1), noisy
        ),
    }
    report = ours.report_
    return {
        "cell": [*cell],
        "accuracy": accuracies,
        "seconds": seconds,
        "estimate": [report.accuracy, report.accuracy_low, report.accuracy_high],
        "rates": [report.noise.e_neg, report.noise.e_pos],
    }


def _plug_in(estimator: Any, split: Split) -> float:
    model = PeerPlugInClassifier(estimator, alpha=1.0).fit(split.X_train, split.y_train)
    return float(model.score(split.X_test, split.y_test))


def read_runs(path: Path) -> dict[Cell, dict[str, Any]]:
    """Return finished cells; a line truncated by a crash is skipped, and its cell runs again."""
    runs = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            continue
        runs[tuple(record["cell"])] = record
    return runs


def table_of(runs: list[dict[str, Any]]) -> list[str]:
    """Return the table of means over noise pairs and seeds, with standard errors over seeds."""
    frame = pd.DataFrame(
        [
            {
                "set": r["cell"][0],
                "prior": r["cell"][1],
                "seed": r["cell"][4],
                **r["accuracy"],
                "s": r["seconds"],
                "estimate": r["estimate"][0],
            }
            for r in runs
        ]
    )
    methods = list(runs[0]["accuracy"])
    lines = []
    for prior, part in ((str(prior), part) for prior, part in frame.groupby("prior")):
        by_set = part.groupby("set")[[*methods, "estimate"]].mean()
        by_set["paper"] = pd.Series(PAPER_PEER[prior])
        by_seed = part.groupby(["set", "seed"])["ours"].mean().groupby("set")
        error: pd.Series[float] = by_seed.std() / np.sqrt(by_seed.count())
        lines += [
            f"## {prior} prior",
            "",
            f"| data set | {' | '.join(methods)} | recovered | paper's Peer | estimated | s |",
        ]
        lines += ["|" + "---|" * (len(methods) + 5)]
        by_set.loc["**mean**"] = by_set.mean()
        error.loc["**mean**"] = np.sqrt((error**2).sum()) / len(error)
        seconds = part.groupby("set")["s"].median()
        seconds.loc["**mean**"] = part["s"].median()
        for name, row in ((str(name), row) for name, row in by_set.iterrows()):
            share = (row["ours"] - row["plain"]) / (row["clean"] - row["plain"])
            cells = [f"{row['ours']:.3f} ± {error[name]:.3f}", *(f"{row[m]:.3f}" for m in methods[1:])]
            lines.append(
                f"| {name} | {' | '.join(cells)} | {share:.0%} | {row['paper']:.3f} "
                f"| {row['estimate']:.3f} | {seconds[name]:.1f} |"
            )
        lines += [
            "",
            f"Paper: Peer {PAPER[prior]['peer']}, best method of each row {PAPER[prior]['best']}.",
            "",
        ]
    return lines


def noise_table_of(runs: list[dict[str, Any]]) -> list[str]:
    """Return the table of means over data sets and seeds, by noise pair and prior."""
    shown = ["ours", "plain", "clean"]
    frame = pd.DataFrame(
        [
            {
                "prior": r["cell"][1],
                "noise": f"{r['cell'][2]}, {r['cell'][3]}",
                **{method: r["accuracy"][method] for method in shown},
                "estimate": r["estimate"][0],
                "e_neg": r["rates"][0],
                "e_pos": r["rates"][1],
            }
            for r in runs
        ]
    )
    lines = [
        f"## By noise pair (e_neg, e_pos), mean over {len({r['cell'][0] for r in runs})} data sets",
        "",
        f"| noise | prior | {' | '.join(shown)} | recovered | estimated | mean estimated rates |",
        "|" + "---|" * (len(shown) + 5),
    ]
    for prior, (e_neg, e_pos) in product(PAPER, NOISES):
        part = frame[(frame["prior"] == prior) & (frame["noise"] == f"{e_neg}, {e_pos}")]
        row = part.drop(columns=["prior", "noise"]).mean()
        share = (row["ours"] - row["plain"]) / (row["clean"] - row["plain"])
        cells = " | ".join(f"{row[method]:.3f}" for method in shown)
        lines.append(
            f"| {e_neg}, {e_pos} | {prior} | {cells} | {share:.0%} | {row['estimate']:.3f} "
            f"| {row['e_neg']:.2f}, {row['e_pos']:.2f} |"
        )
    return [*lines, ""]


def main() -> None:
    """Run missing cells, then print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", default="100-107", help="first-last; 100-107 are for development")
    parser.add_argument("--sets", default=",".join(list_datasets()))
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=-1)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    first, last = (int(part) for part in arguments.seeds.split("-"))
    cells = [
        (name, prior, *noise, seed)
        for seed in range(first, last + 1)
        for name in arguments.sets.split(",")
        for prior in PAPER
        for noise in NOISES
    ]
    done = read_runs(arguments.runs)
    groups: dict[tuple[str, str, int], list[tuple[float, float]]] = {}
    for name, prior, e_neg, e_pos, seed in cells:
        if (name, prior, e_neg, e_pos, seed) not in done:
            groups.setdefault((name, prior, seed), []).append((e_neg, e_pos))
    with arguments.runs.open("a", encoding="utf-8") as stream:
        jobs = Parallel(n_jobs=arguments.jobs, return_as="generator_unordered")
        work = (delayed(run_group)(*key, noises) for key, noises in groups.items())
        for number, records in enumerate(jobs(work), start=1):
            stream.write("".join(json.dumps(record) + "\n" for record in records))
            stream.flush()
            print(f"\r{number} of {len(groups)}", end="", flush=True)
    done = read_runs(arguments.runs)
    head = f"Measured with `benchmarks/accuracy.py`: {provenance('cpu')}; seeds {arguments.seeds}."
    runs = [done[cell] for cell in cells]
    title = "# PeerClassifier on clean test labels"
    text = "\n".join([title, "", head, "", *table_of(runs), *noise_table_of(runs)])
    print(end="\r")
    publish(text, arguments.output)


if __name__ == "__main__":
    main()
