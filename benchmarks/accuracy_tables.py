"""Compare PeerClassifier with plain learners and with cleanlab on many tables and kinds of noise.

Run ``python benchmarks/accuracy_tables.py FOLDER --runs RUNS.jsonl [--half development] [--seeds 0-2]``. Each
``NAME.csv.gz`` in FOLDER has clean labels in its last column; four tables of scikit-learn and the paper's ten
data sets are added. The training rows (70 %, at most ``--max-rows``) get noisy labels, the test rows keep
clean ones. Finished runs are stored in RUNS and skipped in later runs. A run is one table, noise and seed;
all classifiers see the same rows and labels.

The design of PeerClassifier was developed on the tables in ``DEVELOPMENT`` only.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np
import pandas as pd
from cleanlab.classification import CleanLearning
from joblib import Parallel, delayed
from lightgbm import LGBMClassifier
from measure import provenance, publish
from sklearn import datasets
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import train_test_split
from threadpoolctl import threadpool_limits

from peerloss import NoiseModel, PeerClassifier, estimate_noise, flip_labels, list_datasets, load_dataset
from peerloss.estimators import TableEncoder
from peerloss.noise import InstanceNoise

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

NOISES = ("none", "uniform .2", "uniform .4", "pair .3", "asymmetric", "boundary", "features")
SKLEARN = {
    "digits": datasets.load_digits,
    "wine": datasets.load_wine,
    "iris": datasets.load_iris,
    "breast_cancer": datasets.load_breast_cancer,
}
DEVELOPMENT = (
    *("bupa", "chess", "crx", "hayes_roth", "led7digit", "marketing", "mushroom", "segment", "tae", "vowel"),
    *("iris", "breast_cancer"),
    *(f"paper: {name}" for name in list_datasets()),
)
CLOSED = (
    *("bands", "contraceptive", "housevotes", "letter", "movement_libras", "saheart", "splice3"),
    *("tic_tac_toe", "titanic", "wisconsin", "digits", "wine"),
)
OURS, PLAIN = "PeerClassifier", "plain"
#: The decision with the same probabilities and the noise matrix of the training labels, which nobody knows.
TRUE_T = "true T"
PEERS = ("forest", "LightGBM", "cleanlab + forest", "cleanlab + LightGBM")
#: Tables with more training rows than this are large.
LARGE = 2000
#: A case counts as good if it is at most this much below the best peer, and as harmed if it is more than this
#: below plain training of the same members.
NEAR, HARMED = 0.005, 0.02


def read_table(name: str, folder: Path) -> tuple[pd.DataFrame, NDArray[np.int64]]:
    """Return features and clean codes."""
    if name.startswith("paper: "):
        data = load_dataset(name.removeprefix("paper: "))
        return pd.DataFrame(data.X), np.asarray(data.y, dtype=np.int64)
    if name in SKLEARN:
        data = SKLEARN[name]()
        return pd.DataFrame(data.data), np.asarray(data.target, dtype=np.int64)
    frame = pd.read_csv(folder / f"{name}.csv.gz")
    return frame.iloc[:, :-1], pd.factorize(frame.iloc[:, -1], sort=True)[0].astype(np.int64)


def make_noise(
    name: str, X: NDArray[np.float64], y: NDArray[np.int64], seed: int
) -> NoiseModel | InstanceNoise:
    """Return the named noise for these rows."""
    k = int(y.max()) + 1
    kind, _, rate = name.partition(" ")
    makers: dict[str, Callable[[], NoiseModel | InstanceNoise]] = {
        "none": lambda: NoiseModel(np.eye(k)),
        "uniform": lambda: NoiseModel.uniform(k, float(rate)),
        "pair": lambda: NoiseModel.pair_flip(k, float(rate)),
        "asymmetric": lambda: asymmetric_noise(k, np.random.default_rng(seed)),
        "features": lambda: InstanceNoise.from_features(X, y, rate=0.25, random_state=seed),
        "boundary": lambda: boundary_noise(X, y, seed),
    }
    return makers[kind]()


def asymmetric_noise(k: int, rng: np.random.Generator) -> NoiseModel:
    """Return another rate for each class: .1 and .3 of two classes, up to .4 of more, unequally shared."""
    if k == 2:
        return NoiseModel.binary(*rng.permutation([0.1, 0.3]))
    rates, shares = rng.uniform(0.0, 0.4, size=k), np.zeros((k, k))
    shares[~np.eye(k, dtype=bool)] = rng.dirichlet(np.full(k - 1, 0.5), size=k).ravel()
    return NoiseModel(np.diag(1.0 - rates) + rates[:, None] * shares)


def boundary_noise(X: NDArray[np.float64], y: NDArray[np.int64], seed: int) -> InstanceNoise:
    """Return noise that decreases with the distance from the boundary of a forest; .2 on average."""
    forest = RandomForestClassifier(200, min_samples_leaf=3, oob_score=True, random_state=seed).fit(X, y)
    proba = np.nan_to_num(forest.oob_decision_function_, nan=1.0 / forest.n_classes_)
    return InstanceNoise.from_margins(y, np.log(np.clip(proba, 0.01, None)), rate=0.2)


def peers(seed: int) -> dict[str, Any]:
    """Return the other classifiers, with their default settings."""
    forest = RandomForestClassifier(random_state=seed, n_jobs=1)
    boosting = LGBMClassifier(random_state=seed, n_jobs=1, verbose=-1)
    plain = dict(zip(PEERS, (forest, boosting), strict=False))
    one_process = {"n_jobs": 1}
    return plain | {
        f"cleanlab + {name}": CleanLearning(model, seed=seed, find_label_issues_kwargs=one_process)
        for name, model in plain.items()
    }


def run(name: str, noise_name: str, seed: int, folder: Path, max_rows: int) -> dict[str, Any]:
    """Train all classifiers on one table, noise and seed."""
    X, y = read_table(name, folder)
    train, test = train_test_split(np.arange(len(y)), test_size=0.3, random_state=seed, stratify=y)
    train = train[:max_rows]
    encoder = TableEncoder().fit(X.iloc[train])
    X_train, X_test = (np.asarray(encoder.transform(X.iloc[rows]), dtype=float) for rows in (train, test))
    # Another noise for every table and seed; `hash` would differ between processes.
    noise_seed = crc32(f"{name} {noise_name} {seed}".encode())
    noise = make_noise(noise_name, np.nan_to_num(X_train), y[train], noise_seed)
    noisy = flip_labels(y[train], noise, random_state=noise_seed)
    k = int(y.max()) + 1
    record: dict[str, Any] = {"table": name, "noise": noise_name, "seed": seed}
    record |= {"rows": len(train), "classes": k, "test rows": len(test)}
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore")
        started = time.perf_counter()
        ours = PeerClassifier(random_state=seed).fit(X_train, noisy)
        record["seconds"] = round(time.perf_counter() - started, 1)
        report = ours.report_
        record[OURS] = float((ours.predict(X_test) == y[test]).mean())
        plain = ours.classes_[ours.predict_noisy_proba(X_test).argmax(axis=1)]
        record[PLAIN] = float((plain == y[test]).mean())
        record |= {"estimated": report.accuracy, "low": report.accuracy_low, "high": report.accuracy_high}
        record["fits"] = bool(report.fits)
        if noise_name not in ("boundary", "features") and len(ours.classes_) == k:
            drawn = np.array([np.bincount(noisy[y[train] == c], minlength=k) for c in range(k)], dtype=float)
            drawn /= drawn.sum(axis=1, keepdims=True)
            noisy_proba = ours.predict_noisy_proba(X_test)
            undone = ours.classes_[(noisy_proba @ np.linalg.pinv(drawn)).argmax(axis=1)]
            record[TRUE_T] = float((undone == y[test]).mean())
            counted = estimate_noise(noisy, pred_proba=ours.oof_proba_).transition
            record["error of T"] = float(np.sqrt(((ours.noise_.transition - drawn) ** 2).mean()))
            record["error of T, confident joint"] = float(np.sqrt(((counted - drawn) ** 2).mean()))
        for peer, model in peers(seed).items():
            try:
                predicted = model.fit(X_train, noisy).predict(X_test)
                record[peer] = float((predicted == y[test]).mean())
            except ValueError as error:  # cleanlab needs several rows of each class
                record[peer] = float("nan")
                record[f"{peer}, error"] = str(error)[:200]
    return record


def summarise(frame: pd.DataFrame) -> list[str]:
    """Return the table of means by group, and the figures that the claims name."""
    names = [OURS, PLAIN, *PEERS]
    size = np.where(frame["rows"] > LARGE, f"more than {LARGE} rows", f"at most {LARGE} rows")
    groups = np.where(frame["classes"] > 2, "several classes", "two classes")
    by_group = frame.assign(group=groups, size=size).groupby(["group", "size"], sort=True)
    lines = [f"| classes | rows | runs | {' | '.join(names)} |", "|" + "---|" * (3 + len(names))]
    for (group, rows), cells in by_group:
        lines.append(f"| {group} | {rows} | {len(cells)} | {_marked(cells[names].mean())} |")
    lines += [f"| **all** | | {len(frame)} | {_marked(frame[names].mean())} |", ""]
    columns = [*names, "recovered", "recovered with true T"]
    lines += [f"| noise | runs | {' | '.join(columns)} |", "|" + "---|" * (2 + len(columns))]
    clean = frame[frame["noise"] == "none"].set_index(["table", "seed"])[PLAIN]
    for noise in NOISES:
        cells = frame[frame["noise"] == noise]
        if not len(cells):
            continue
        reached = clean.reindex(pd.MultiIndex.from_frame(cells[["table", "seed"]])).to_numpy()
        shown = ["" if noise == "none" else _recovered(cells, name, reached) for name in (OURS, TRUE_T)]
        lines.append(f"| {noise} | {len(cells)} | {_marked(cells[names].mean())} | {' | '.join(shown)} |")
    return [*lines, "", *_claims(frame)]


def _recovered(cells: pd.DataFrame, name: str, reached: NDArray[np.float64]) -> str:
    """Return the share of the gap between plain training on noisy and on clean labels that is closed."""
    if name not in cells:
        return ""
    known = np.isfinite(reached) & np.isfinite(cells[name].to_numpy())
    gap = float((reached - cells[PLAIN].to_numpy())[known].sum())
    return f"{(cells[name] - cells[PLAIN]).to_numpy()[known].sum() / gap:.0%}" if gap > 0 else ""


def _claims(frame: pd.DataFrame) -> Iterable[str]:
    cases = frame.groupby(["table", "noise"])[[OURS, PLAIN, *PEERS]].mean()
    for name, rows in (("runs", frame), ("cases, each the mean over its seeds", cases)):
        near = rows[OURS] >= rows[list(PEERS)].max(axis=1) - NEAR
        harmed = rows[OURS] < rows[PLAIN] - HARMED
        yield (
            f"- {len(rows)} {name}: at least the best peer minus {NEAR} in {near.mean():.0%}; more than "
            f"{HARMED} under plain training of the same members in {harmed.sum()}."
        )
    inside = (frame["low"] <= frame[OURS]) & (frame[OURS] <= frame["high"])
    for few, cells in (("two classes", frame["classes"] == 2), ("several classes", frame["classes"] > 2)):
        yield (
            f"- {few}: the 90 % interval of its own accuracy contains the test accuracy in "
            f"{inside[cells].mean():.0%} of {cells.sum()} runs; mean width "
            f"{(frame['high'] - frame['low'])[cells].mean():.3f}."
        )
    if "error of T" in frame:
        for few, cells in (("two classes", frame["classes"] == 2), ("several classes", frame["classes"] > 2)):
            ours, counted = frame.loc[cells, ["error of T", "error of T, confident joint"]].mean()
            yield f"- {few}: root mean square error of T {ours:.3f}, of the confident joint {counted:.3f}."


def _marked(means: pd.Series) -> str:
    best = round(float(means.max()), 3)
    return " | ".join(f"**{m:.3f}**" if round(float(m), 3) == best else f"{m:.3f}" for m in means)


def every_cell(frame: pd.DataFrame) -> list[str]:
    """Return one row per table and noise, means over seeds."""
    names = [OURS, PLAIN, *PEERS]
    lines = [
        f"| table | rows | classes | noise | {' | '.join(names)} | its own estimate | fits |",
        "|" + "---|" * (6 + len(names)),
    ]
    for (name, rows, k, noise), cells in frame.groupby(["table", "rows", "classes", "noise"], sort=True):
        own = f"{cells['estimated'].mean():.3f} ({cells['low'].mean():.3f} to {cells['high'].mean():.3f})"
        fits = f"{int(cells['fits'].sum())} of {len(cells)}"
        lines.append(f"| {name} | {rows} | {k} | {noise} | {_marked(cells[names].mean())} | {own} | {fits} |")
    return lines


def main() -> None:
    """Run missing cells, then print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--half", choices=("development", "closed", "both"), default="development")
    parser.add_argument("--tables", nargs="+", help="names of tables; by default all of the half")
    parser.add_argument("--noises", nargs="+", default=NOISES)
    parser.add_argument("--seeds", default="0-0", help="first-last")
    parser.add_argument("--max-rows", type=int, default=6000, help="training rows")
    parser.add_argument("--n-jobs", type=int, default=1, help="cells at a time, each on one core")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    first, last = map(int, options.seeds.split("-"))
    halves = {"development": DEVELOPMENT, "closed": CLOSED, "both": DEVELOPMENT + CLOSED}
    tables = options.tables or halves[options.half]
    done = [json.loads(line) for line in options.runs.open()] if options.runs.exists() else []
    keys = {(record["table"], record["noise"], record["seed"]) for record in done}
    wanted = [
        (table, noise, seed)
        for seed in range(first, last + 1)
        for table in tables
        for noise in options.noises
        if (table, noise, seed) not in keys
    ]
    cells = (delayed(run)(*cell, options.folder, options.max_rows) for cell in wanted)
    for record in Parallel(n_jobs=options.n_jobs, return_as="generator_unordered")(cells):
        done.append(record)
        with options.runs.open("a") as file:
            file.write(json.dumps(record) + "\n")
        print(record, flush=True)
    frame = pd.DataFrame(done)
    text = [f"Measured with `benchmarks/accuracy_tables.py`: {provenance('cpu')}.", "", *summarise(frame), ""]
    publish("\n".join([*text, *every_cell(frame), ""]), options.output)


if __name__ == "__main__":
    main()
