"""Accuracy on real crowds: peer loss at constant α and methods for noise that depends on the row.

Run ``python benchmarks/row_noise_crowds.py [--seeds 5] [--runs RUNS.jsonl] [--output TABLE.md]``.
``PEERLOSS_DATA`` has the crowds. Finished cells are stored in RUNS and skipped in later runs.
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from measure import provenance, publish
from row_noise import NETWORKS, corrected_targets, train_networks
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer

from peerloss import PeerClassifier
from peerloss.crowd import LabelAggregator
from peerloss.datasets.real_noise import load_real_noise

CROWDS = ("labelme", "youtube")
#: Methods that train on one label per row, and those that train on all labels of a row. All choose their
#: settings by the same held-out single labels.
ONE_LABEL = (*(method for method in NETWORKS if method != "CAL, true rates"), "PeerClassifier")
ALL_LABELS = ("votes, cross entropy", "votes, peer", "aggregated, cross entropy", "votes, PeerClassifier")
METHODS = (*ONE_LABEL, *ALL_LABELS)
HEADER = """## Crowds

Measured with `benchmarks/row_noise_crowds.py`: {versions}; seeds 0 to {last}. Accuracy on the gold labels
of the test split, mean ± standard error over the seeds, which draw one label per row and the initial weights.

**Data.** LabelMe: 1,000 images, 8 classes, features of a pretrained network, 1 to 3 labels per image by 59
people; 1,188 test images. YouTube: comments with at least one label of ten keyword rules, spam or not, as 100
components of TF-IDF; 250 test comments. The other crowds of the library have no features.

**Methods.** Networks as in the tables above: settings are chosen by the accuracy on held-out noisy labels,
one per row, in three folds. The methods down to *PeerClassifier* train on one random label per row; *CAL,
crowd* also takes the rates of rows from all labels. *votes*: the shares of all labels of a row, as soft
targets. *aggregated*: the probabilities of `LabelAggregator`. Gold labels are used for the test only.

{table}
"""


def read_crowd(name: str) -> tuple[np.ndarray, np.ndarray, pd.DataFrame, np.ndarray, np.ndarray]:
    """Return training features, reports (n, m) with −1, the long table, test features and gold labels."""
    crowd = load_real_noise(name)
    assert crowd.features is not None  # noqa: S101 (both crowds have features)
    assert crowd.split is not None  # noqa: S101
    test = np.flatnonzero(crowd.split == "test")
    in_training = crowd.reports["task"].map(crowd.split) == "train"
    reports = crowd.reports[in_training].reset_index(drop=True)
    table = reports.pivot_table(index="task", columns="worker", values="label", aggfunc="first")
    train = table.index.to_numpy()
    if name == "youtube":
        words = TfidfVectorizer(min_df=2).fit(crowd.features["text"].iloc[train])
        components = TruncatedSVD(100, random_state=0).fit(
            words.transform(crowd.features["text"].iloc[train])
        )
        X = components.transform(words.transform(crowd.features["text"]))
    else:
        X = crowd.features.to_numpy(dtype=float)
    centre, scale = X[train].mean(axis=0), np.maximum(X[train].std(axis=0), 1e-9)
    X = (X - centre) / scale
    codes = table.fillna(-1).to_numpy().astype(np.int64)
    return X[train], codes, reports, X[test], crowd.gold.to_numpy()[test]


def run_cell(name: str, seed: int) -> dict[str, float]:
    """Return the accuracy of each method."""
    X, codes, reports, X_test, gold = read_crowd(name)
    rng = np.random.default_rng(seed)
    keys = np.where(codes >= 0, rng.random(codes.shape), -1.0)  # one random label per row
    y = codes[np.arange(len(codes)), keys.argmax(axis=1)]
    k = max(int(codes.max()), int(gold.max())) + 1
    targets, _ = corrected_targets(X, y, codes, None, seed)
    votes = np.stack([(codes == label).sum(axis=1) for label in range(k)], axis=1).astype(float)
    targets["votes, cross entropy"] = targets["votes, peer"] = votes / votes.sum(axis=1, keepdims=True)
    combined = LabelAggregator().fit_predict_proba(reports)
    tasks = np.sort(reports["task"].unique())
    targets["aggregated, cross entropy"] = combined.loc[tasks, range(k)].to_numpy()
    networks = tuple(method for method in METHODS if not method.endswith("PeerClassifier"))
    found = train_networks(networks, X, y, targets, (X_test, gold), seed)
    for method, labels in (("PeerClassifier", y), ("votes, PeerClassifier", targets["votes, peer"])):
        portfolio = PeerClassifier(random_state=seed).fit(X, labels)
        found[method] = float((portfolio.predict(X_test) == gold).mean())
    return found


def make_table(records: list[dict[str, Any]]) -> str:
    """Return the Markdown table."""
    frame = pd.DataFrame([{"crowd": r["crowd"], "seed": r["seed"], **r["found"]} for r in records])
    names = list(dict.fromkeys(frame["crowd"]))
    lines = ["| method | " + " | ".join(f"{n} | difference from peer" for n in names) + " |"]
    lines.append("|---|" + "---|---|" * len(names))
    for method in METHODS:
        cells = []
        for name in names:
            part = frame[frame["crowd"] == name]
            cells.append(_mean(part[method], ""))
            cells.append("" if method == "peer" else _mean(part[method] - part["peer"], "+"))
        lines.append(f"| {method} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _mean(values: pd.Series, sign: str) -> str:
    return f"{values.mean():{sign}.3f} ± {values.std() / np.sqrt(len(values)):.3f}"


def main() -> None:
    """Run what is missing and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--runs", type=Path)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    text = options.runs.read_text(encoding="utf-8") if options.runs and options.runs.exists() else ""
    records = [json.loads(line) for line in text.splitlines()]
    done, here = {(r["crowd"], r["seed"]) for r in records}, provenance("cpu")
    for seed in range(options.seeds):
        for name in CROWDS:
            if (name, seed) in done:
                continue
            record = {"crowd": name, "seed": seed, "found": run_cell(name, seed), "provenance": here}
            records.append(record)
            print(record, flush=True)
            if options.runs is not None:
                with options.runs.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(record) + "\n")
    versions = "; ".join(dict.fromkeys(r["provenance"] for r in records))
    page = HEADER.format(versions=versions, last=options.seeds - 1, table=make_table(records))
    publish(page, options.output)


if __name__ == "__main__":
    main()
