"""Find wrong labels from a table to the flags, compared with cleanlab from the same table.

Run ``python benchmarks/bench_audit_tables.py FOLDER --runs RUNS.jsonl [--seeds 0-0] [--output TABLE.md]``.
Each ``NAME.csv.gz`` in FOLDER has clean labels in its last column; they get two kinds of noise. If
``PEERLOSS_DATA`` has them, YouTube (comments, majority of weak labels) and LabelMe (image features, one label
of a random annotator) are added with the noise that they have. Finished runs are stored in RUNS.

The stated share of wrong labels is the mean of ``p_error``; of cleanlab, that of its confident joint.
*Inside*: 90 % intervals of the diagonal of T and of the number of errors that contain the truth.

*cleanlab*: ``CleanLearning().find_label_issues``, with its default model (logistic regression) and with
LightGBM, on the encoded columns, or on TF-IDF of the comments. All run on one thread.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from itertools import product
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pandas as pd
from accuracy_tables import make_noise, read_table
from bench_calibration import NEAR, intervals_hold
from cleanlab.classification import CleanLearning
from lightgbm import LGBMClassifier
from measure import provenance, publish
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics import average_precision_score, f1_score, roc_auc_score
from threadpoolctl import threadpool_limits

from peerloss import find_label_issues, flip_labels
from peerloss.datasets import load_real_noise
from peerloss.estimators import TableEncoder

NOISES = ("uniform .2", "asymmetric")
REAL = ("youtube", "labelme")
METHODS = ("peerloss", "cleanlab", "cleanlab + LightGBM")
SCORES = ("AUROC", "AP", "F1", "seconds")
#: The share of wrong labels that a method states: the mean of ``p_error``, or cleanlab's confident joint.
STATED = "stated share of wrong labels"
#: Numbers of rows between the groups of tables.
SIZES = (500, 2000)
MAX_ROWS = 6000
Data = tuple[Any, Any, np.ndarray, np.ndarray]


def made(name: str, noise_name: str, seed: int, folder: Path) -> Data:
    """Return the table, its encoded columns, clean and noisy labels."""
    X, clean = read_table(name, folder)
    rows = np.random.default_rng(seed).permutation(len(clean))[:MAX_ROWS]
    X, clean = X.iloc[rows].reset_index(drop=True), clean[rows]
    encoded = np.nan_to_num(np.asarray(TableEncoder().fit_transform(X), dtype=float))
    noise_seed = crc32(f"{name} {noise_name} {seed}".encode())
    noise = make_noise(noise_name, encoded, clean, noise_seed)
    return X, encoded, clean, flip_labels(clean, noise, random_state=noise_seed)


def real(name: str, seed: int) -> Data:
    """Return the same of data with real noise; rows without a label are left out."""
    data = load_real_noise(name)
    rng = np.random.default_rng(seed)
    reports = data.reports.sample(frac=1, random_state=seed)
    if name == "youtube":
        votes = reports.groupby("task")["label"].agg(lambda v: rng.permutation(v.mode())[0])
    else:
        votes = reports.drop_duplicates("task").set_index("task")["label"]
    features = data.features
    assert features is not None  # noqa: S101 - for mypy; both have features
    tasks = data.gold.index.intersection(votes.index)
    X, clean, noisy = features.loc[tasks], data.gold.loc[tasks].to_numpy(), votes.loc[tasks].to_numpy()
    if name == "youtube":
        return X, TfidfVectorizer(min_df=2).fit_transform(X["text"]), clean, noisy
    return X, X.to_numpy(dtype=float), clean, noisy


def run(name: str, noise: str, seed: int, folder: Path) -> dict[str, Any] | None:
    """Audit one table with every method; ``None`` if a class has too few labels for five folds."""
    X, encoded, clean, noisy = real(name, seed) if name in REAL else made(name, noise, seed, folder)
    classes, codes = np.unique(noisy, return_inverse=True)
    if np.bincount(codes).min() < 5:
        return None
    wrong = noisy != clean
    record: dict[str, Any] = {"table": name, "noise": noise, "seed": seed, "rows": len(noisy)}
    record |= {"classes": len(classes), "wrong": float(wrong.mean())}
    booster = LGBMClassifier(n_jobs=1, verbose=-1, random_state=seed)
    models = dict(zip(METHODS[1:], (None, booster), strict=True))
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore")
        start = time.process_time()
        audit = find_label_issues(X, noisy, random_state=seed)
        ours = audit.table
        found = {METHODS[0]: (ours["p_error"], ours["flagged"], time.process_time() - start)}
        for method, model in models.items():
            start = time.process_time()
            learner = CleanLearning(model, seed=seed, find_label_issues_kwargs={"n_jobs": 1})
            theirs = learner.find_label_issues(encoded, codes)
            score = 1.0 - theirs["label_quality"]
            found[method] = score, theirs["is_label_issue"], time.process_time() - start
            joint = learner.confident_joint
            record[f"{method}, {STATED}"] = float(1.0 - np.trace(joint) / joint.sum())
    for method, (score, flagged, seconds) in found.items():
        values = roc_auc_score(wrong, score), average_precision_score(wrong, score), f1_score(wrong, flagged)
        record |= {
            f"{method}, {kind}": float(value) for kind, value in zip(SCORES, (*values, seconds), strict=True)
        }
    record[f"{METHODS[0]}, {STATED}"] = float(ours["p_error"].mean())
    return record | intervals_hold(audit, clean, noisy)


def summarise(frame: pd.DataFrame) -> list[str]:
    """Return the table of means, then one row per run."""
    heads = [f"{method}, {score}" for score in SCORES for method in METHODS]
    lines = [f"| noise | runs | {' | '.join(heads)} |", "|" + "---|" * (2 + len(heads))]
    groups = [*frame.groupby("noise"), ("**all**", frame)]
    for name, part in groups:
        lines.append(f"| {name} | {len(part)} | " + " | ".join(f"{v:.3f}" for v in part[heads].mean()) + " |")
    lines.append("")
    for method in METHODS[1:]:
        gain = (frame[f"{METHODS[0]}, AP"] - frame[f"{method}, AP"]).to_numpy(dtype=float)
        error = gain.std(ddof=1) / np.sqrt(len(gain))
        ratio = np.exp(np.log(frame[f"{METHODS[0]}, seconds"] / frame[f"{method}, seconds"]).mean())
        total = frame[f"{METHODS[0]}, seconds"].sum() / frame[f"{method}, seconds"].sum()
        lines.append(
            f"- {METHODS[0]} minus {method}: AP {gain.mean():+.3f} ± {error:.3f} (standard error over "
            f"runs), higher in {(gain > 0).sum()} of {len(frame)}. Processor time {ratio:.2f} times that of "
            f"{method} (geometric mean), {total:.2f} times in total."
        )
    lines += ["", *stated_numbers(frame), ""]
    keys, shown = ["table", "noise"], ["rows", "classes", "wrong", *heads[:-3]]
    lines += [f"| {' | '.join((*keys, *shown))} |", "|" + "---|" * (len(keys) + len(shown))]
    means = frame.groupby(keys)[shown].mean().reset_index()
    for row in means.itertuples(index=False):
        texts = [*row[:2], *(f"{v:.0f}" for v in row[2:4]), *(f"{v:.3f}" for v in row[4:])]
        lines.append(f"| {' | '.join(texts)} |")
    return lines


def stated_numbers(frame: pd.DataFrame) -> list[str]:
    """Return a table of how far the stated shares of wrong labels are from the true ones."""
    rows = pd.cut(frame["rows"], [0, *SIZES, np.inf], labels=["up to 500", "501 to 2,000", "more"])
    error = pd.DataFrame({m: (frame[f"{m}, {STATED}"] - frame["wrong"]).abs() for m in METHODS})
    estimated = frame["errors inside"].notna()
    table = pd.concat([frame["wrong"], error], axis=1).assign(near=error[METHODS[0]] <= NEAR)
    table = pd.concat([table, frame[["rates inside", "errors inside"]]], axis=1)
    heads = ["wrong", *(f"{m}, error" for m in METHODS), f"{METHODS[0]}, within .03"]
    heads += ["rates inside", "errors inside", "not estimated"]
    lines = [f"| noise | rows | runs | {' | '.join(heads)} |", "|" + "---|" * (3 + len(heads))]
    groups = [*table.groupby([frame["noise"], rows], observed=True), (("**all**", ""), table)]
    for (noise, size), part in groups:
        means = " | ".join(f"{mean:.3f}" for mean in part.mean())
        missing = int((~estimated.loc[part.index]).sum())
        lines.append(f"| {noise} | {size} | {len(part)} | {means} | {missing} |")
    return lines


def main() -> None:
    """Run missing cells, then print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--seeds", default="0-0", help="first-last")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    first, last = map(int, options.seeds.split("-"))
    done = [json.loads(line) for line in options.runs.open()] if options.runs.exists() else []
    keys = {(record["table"], record["noise"], record["seed"]) for record in done}
    tables = sorted(path.name.removesuffix(".csv.gz") for path in options.folder.glob("*.csv.gz"))
    for seed in range(first, last + 1):
        real_tables = REAL if "PEERLOSS_DATA" in os.environ else ()
        wanted = [*product(tables, NOISES), *product(real_tables, ("real",))]
        for name, noise in wanted:
            if (name, noise, seed) in keys:
                continue
            record = run(name, noise, seed, options.folder)
            if record is not None:
                done.append(record)
                with options.runs.open("a") as file:
                    file.write(json.dumps(record) + "\n")
                print(record["table"], record["noise"], record["peerloss, AP"], flush=True)
    text = [f"Measured with `benchmarks/bench_audit_tables.py`: {provenance('cpu')}.", ""]
    publish("\n".join([*text, *summarise(pd.DataFrame(done)), ""]), options.output)


if __name__ == "__main__":
    main()
