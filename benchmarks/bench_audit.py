"""Label issues: compare ``find_label_issues`` with cleanlab on the same probabilities.

``python benchmarks/bench_audit.py probabilities --seeds 0 1 2 3`` computes out-of-fold probabilities on data
sets with added noise, on human labels and on CIFAR-10N (see ``--data``), and stores one file per cell.
Existing cells are skipped, so it can be stopped at any time. Real noise and CIFAR-10 are read from
PEERLOSS_DATA. ``python benchmarks/bench_audit.py score --output FILE`` ranks and flags labels from the
probabilities and writes the table.

A *case* is a data set with a kind of noise, averaged over seeds and learners. With 2 % noise on 200 rows a
single cell has four errors, and its scores are mostly random.
"""

from __future__ import annotations

import argparse
import warnings
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from cleanlab.filter import find_label_issues as cleanlab_issues
from cleanlab.rank import get_label_quality_scores
from measure import provenance
from sklearn.datasets import load_digits, load_iris, load_wine
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, f1_score, precision_score, recall_score, roc_auc_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from peerloss import NoiseModel, find_label_issues, flip_labels, load_dataset
from peerloss.datasets import load_cifar10, load_cifar10n, load_real_noise, make_encoder, make_waveform
from peerloss.noise import InstanceNoise
from peerloss.posterior.flags import FlagRule, flag_suspects, suspicious_first

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: Data set, noise, learner, seed.
Cell = tuple[str, str, str, int]

TWO_CLASSES = (
    *("heart", "thyroid", "diabetes", "breast", "breast2", "german"),
    *("image", "splice", "twonorm", "waveform"),
)
MORE_CLASSES = ("iris", "wine", "digits", "waveform3")
PEOPLE = {"labelme": ("majority", "one"), "youtube": ("majority", "one")}
CIFAR = {"cifar10n": ("aggregate", "random1", "worst")}
LEARNERS = ("logistic", "forest")
NOISES = {
    "two": (
        *("symmetric:0.02", "symmetric:0.1", "symmetric:0.2", "symmetric:0.3", "symmetric:0.45"),
        *("binary:0.05,0.25", "binary:0.1,0.3", "binary:0.2,0.4", "binary:0.3,0.1", "binary:0.02,0.45"),
        *("margin:0.1", "margin:0.25", "instance:0.2", "instance:0.4"),
    ),
    "more": (
        *("symmetric:0.02", "symmetric:0.1", "symmetric:0.2", "symmetric:0.4"),
        *("pair:0.1", "pair:0.3", "pair:0.45", "margin:0.1", "margin:0.25", "instance:0.2", "instance:0.4"),
    ),
}
#: Larger data sets are subsampled to this number of rows, for each seed.
MAX_ROWS = 3000
#: CIFAR-10: images per seed, number of filters, and their side.
IMAGES, FILTERS, PATCH = 10_000, 200, 6
RANKED, FLAGGED = ("auroc", "average_precision"), ("f1", "precision", "recall")
OURS, PLAIN, ADJUSTED = "peerloss", "cleanlab", "cleanlab adjusted"
#: The same ranking with other flags: those of a user who knows that some labels are wrong.
KNOWN = 'peerloss, target="f1"'
#: Names of the kinds of noise in the table.
KINDS = {
    "symmetric": "symmetric, 2–45 %",
    "binary": "asymmetric, two classes",
    "pair": "pair flip, more classes",
    "instance": "depends on the features",
    "margin": "near the boundary only",
    "people": "labels from people and rules",
    "cifar10n": "CIFAR-10N",
}


@cache
def data(name: str) -> Any:
    """Return features as numbers and clean labels."""
    loaders = {"iris": load_iris, "wine": load_wine, "digits": load_digits}
    if name in loaders:
        return loaders[name](return_X_y=True)
    if name == "waveform3":
        X, y = make_waveform(1667, 3333)
        return X, np.where(y == 1, 0, 1 + np.arange(len(y)) % 2)
    loaded = load_dataset(name)
    return np.asarray(make_encoder().fit_transform(loaded.X), dtype=np.float64), np.asarray(loaded.y)


def learner(name: str, seed: int) -> Any:
    if name == "forest":
        return RandomForestClassifier(100, min_samples_leaf=5, random_state=seed)
    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000))


def add_noise(X: Any, y: Any, noise: str, seed: int) -> Any:
    """Return noisy labels."""
    kind, _, rates = noise.partition(":")
    numbers = [float(rate) for rate in rates.split(",")]
    classes = int(y.max()) + 1
    if kind == "symmetric":
        model: NoiseModel | InstanceNoise = NoiseModel.uniform(classes, *numbers)
    elif kind == "binary":
        model = NoiseModel.binary(*numbers)
    elif kind == "pair":
        model = NoiseModel.pair_flip(classes, *numbers)
    elif kind == "instance":
        model = InstanceNoise.from_features(X, y, rate=numbers[0], random_state=np.random.default_rng(seed))
    else:
        scores = learner("logistic", 0).fit(X, y).decision_function(X)
        model = InstanceNoise.from_margins(y, scores, rate=numbers[0])
    # Generators, not seeds, so that the labels stay those of the published tables.
    return flip_labels(y, model, random_state=np.random.default_rng(seed))


@cache
def people(name: str) -> tuple[Any, pd.DataFrame, pd.Series]:
    """Return features, reports by task, and clean labels."""
    loaded = load_real_noise(name)
    tasks = loaded.gold.index.intersection(pd.Index(loaded.reports["task"].unique()))
    features = pd.DataFrame(loaded.features).set_axis(loaded.gold.index).loc[tasks]
    if name == "youtube":
        texts = TfidfVectorizer(min_df=2, sublinear_tf=True).fit_transform(features["text"])
        return texts.toarray(), loaded.reports, loaded.gold[tasks]
    return features.to_numpy(), loaded.reports, loaded.gold[tasks]


def labels_by_people(name: str, noise: str, seed: int) -> tuple[Any, Any, Any]:
    """Return features, majority labels or those of one random annotator per task, and clean labels."""
    X, reports, clean = people(name)
    grouped = reports.groupby("task")["label"]
    if noise == "one":
        drawn = grouped.sample(n=1, random_state=seed)
        noisy = pd.Series(drawn.to_numpy(), index=reports.loc[drawn.index, "task"].to_numpy())
    else:
        noisy = grouped.agg(lambda labels: labels.mode().iloc[0])
    return X, noisy[clean.index].to_numpy(), clean.to_numpy()


@cache
def patch_features(seed: int) -> tuple[Any, Any]:
    """Return the chosen images, and features: pooled responses to whitened random patches."""
    rng = np.random.default_rng(seed)
    images = load_cifar10().train_images
    rows = np.sort(rng.choice(len(images), IMAGES, replace=False))
    pixels = torch.as_tensor(images[rows]).permute(0, 3, 1, 2).float() / 255.0
    pixels = (pixels - pixels.mean(dim=(1, 2, 3), keepdim=True)) / pixels.std(dim=(1, 2, 3), keepdim=True)
    at = rng.integers((IMAGES, 33 - PATCH, 33 - PATCH), size=(5000, 3))
    patches = torch.stack([pixels[i, :, r : r + PATCH, c : c + PATCH].flatten() for i, r, c in at])
    patches -= patches.mean(dim=0)
    values, vectors = torch.linalg.eigh(patches.T @ patches / len(patches))
    whiten = vectors @ torch.diag((values + 0.1).rsqrt()) @ vectors.T
    filters = patches[:FILTERS] @ whiten
    filters = (filters / filters.norm(dim=1, keepdim=True)) @ whiten
    filters = filters.reshape(FILTERS, 3, PATCH, PATCH)
    found = []
    for batch in pixels.split(250):
        response = torch.nn.functional.conv2d(batch, filters)
        both = torch.cat([(response - 0.5).relu(), (-response - 0.5).relu()], dim=1)
        found.append(torch.nn.functional.adaptive_avg_pool2d(both, 2).flatten(1))
    return rows, torch.cat(found).numpy()


def labelled(name: str, noise: str, seed: int) -> tuple[Any, Any, Any]:
    """Return features, noisy labels and clean labels."""
    if name in CIFAR:
        rows, X = patch_features(seed)
        clean = load_cifar10().train_labels
        return X, load_cifar10n(noise).train_labels[rows], clean[rows]
    if name in PEOPLE:
        return labels_by_people(name, noise, seed)
    X, clean = data(name)
    if len(X) > MAX_ROWS:
        rows = np.random.default_rng(seed).choice(len(X), MAX_ROWS, replace=False)
        X, clean = X[rows], clean[rows]
    return X, add_noise(X, clean, noise, seed), clean


def cells(seeds: list[int], names: list[str]) -> Iterator[Cell]:
    """Yield (data set, noise, learner, seed)."""
    for seed in seeds:
        for name in names:
            added = NOISES["two" if name in TWO_CLASSES else "more"]
            for noise in PEOPLE.get(name) or CIFAR.get(name) or added:
                for model in LEARNERS[:1] if name in CIFAR else LEARNERS:
                    yield name, noise, model, seed


def save_probabilities(cell: Cell, folder: Path) -> None:
    """Write out-of-fold probabilities, noisy labels and clean labels of a cell."""
    name, noise, model, seed = cell
    path = folder / ("_".join(map(str, cell)).replace(":", "-") + ".npz")
    if path.exists():
        return
    X, noisy, clean = labelled(name, noise, seed)
    folds = StratifiedKFold(3 if name in CIFAR else 5, shuffle=True, random_state=seed)
    fitted = (
        make_pipeline(StandardScaler(), LogisticRegression(C=1e-3)) if name in CIFAR else learner(model, seed)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a class with fewer rows than folds; lbfgs at its limit
        found = cross_val_predict(fitted, X, noisy, cv=folds, method="predict_proba")
    proba = np.zeros((len(clean), int(max(clean.max(), noisy.max())) + 1))
    proba[:, np.unique(noisy)] = found
    new = path.with_suffix(".new")
    with new.open("wb") as file:
        np.savez_compressed(file, proba=proba, noisy=noisy, clean=clean)
    new.replace(path)


def cleanlab_scores(noisy: Any, proba: Any) -> tuple[Any, Any]:
    """Return two rankings of cleanlab, suspicious rows high: the default and the adjusted one."""
    plain = 1.0 - get_label_quality_scores(noisy, proba)
    try:
        return plain, 1.0 - get_label_quality_scores(noisy, proba, adjust_pred_probs=True)
    except ValueError:  # it fails for a class without rows
        return plain, plain


def score_cell(path: Path) -> list[dict[str, Any]]:
    """Return one line per method, or none if no label is wrong."""
    name, noise, model, seed = path.stem.split("_")
    stored = np.load(path)
    proba, noisy, wrong = stored["proba"], stored["noisy"], stored["noisy"] != stored["clean"]
    if not wrong.any():
        return []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # noise that cannot be estimated, rare classes
        plain, adjusted = cleanlab_scores(noisy, proba)
        flags = cleanlab_issues(noisy, proba, n_jobs=1)
        audit = find_label_issues(labels=noisy, pred_proba=proba)
    p_error = audit.table["p_error"].to_numpy()
    known = flag_suspects(p_error, suspicious_first(p_error), FlagRule("f1"), no_noise=audit.no_noise)
    scores = {
        OURS: (p_error, audit.table["flagged"].to_numpy()),
        KNOWN: (p_error, known),
        PLAIN: (plain, flags),
        ADJUSTED: (adjusted, flags),
    }
    cell = {"data": name, "noise": noise, "kind": kind_of(name, noise), "learner": model, "seed": int(seed)}
    return [
        cell
        | {"method": method, "errors": int(wrong.sum())}
        | {"auroc": roc_auc_score(wrong, score), "average_precision": average_precision_score(wrong, score)}
        | {"f1": f1_score(wrong, flagged, zero_division=0.0), "recall": recall_score(wrong, flagged)}
        | {"precision": precision_score(wrong, flagged, zero_division=0.0)}
        for method, (score, flagged) in scores.items()
    ]


def kind_of(name: str, noise: str) -> str:
    """Return the kind of noise without its rates."""
    return name if name in CIFAR else "people" if name in PEOPLE else noise.partition("-")[0]


def gains(means: pd.DataFrame, measure: str) -> Any:
    """Return the gain over the better of the two rankings of cleanlab."""
    return means[measure][OURS] - np.maximum(means[measure][PLAIN], means[measure][ADJUSTED])


def totals(lines: pd.DataFrame) -> Iterator[str]:
    """Yield the summary table, for cases and for single cells."""
    yield "| | AUROC | average precision |"
    yield "|---|---|---|"
    for unit, keys in (("cases", ["data", "noise"]), ("single cells", ["data", "noise", "learner", "seed"])):
        means = lines.pivot_table([*RANKED], keys, "method")
        gained = [gains(means, measure) for measure in RANKED]
        for method in (OURS, PLAIN, ADJUSTED):
            scores = [f"{means[measure][method].mean():.4f}" for measure in RANKED]
            yield f"| {method}, mean over {len(means)} {unit} | {' | '.join(scores)} |"
        parts: dict[str, Callable[[Any], str]] = {
            "above the better of both by, mean ± standard error": lambda g: (
                f"{g.mean():+.4f} ± {g.sem():.4f}"
            ),
            "at least the better of both": lambda g: f"{(g >= 0).mean():.0%}",
            "… or below it by no more than 0.005": lambda g: f"{(g >= -0.005).mean():.0%}",
            "below it by more than 0.02": lambda g: f"{(g < -0.02).sum()} of {len(g)}",
            "worst": lambda g: f"{g.min():+.3f} ({' '.join(map(str, g.idxmin()))})",
        }
        for part, describe in parts.items():
            yield f"| {unit}: {part} | {' | '.join(describe(g) for g in gained)} |"


def by_kind(lines: pd.DataFrame) -> Iterator[str]:
    """Yield the table with one line per kind of noise."""
    means = lines.pivot_table([*RANKED, "f1"], ["kind", "data", "noise"], "method")
    measures = ("AUROC: peerloss", "cleanlab", "adjusted", "AP: peerloss", "cleanlab", "adjusted")
    yield f"| noise | cases | {' | '.join(measures)} | F1: peerloss | target f1 | cleanlab |"
    yield "|---|---|---|---|---|---|---|---|---|---|---|"
    for kind, name in KINDS.items():
        if kind in means.index:
            part = means.loc[kind]
            scores = [part[m][method].mean() for m in RANKED for method in (OURS, PLAIN, ADJUSTED)]
            scores += [part["f1"][method].mean() for method in (OURS, KNOWN, PLAIN)]
            yield f"| {name} | {len(part)} | " + " | ".join(f"{score:.3f}" for score in scores) + " |"


def misses(lines: pd.DataFrame) -> Iterator[str]:
    """Yield the cases that are below the better of both by more than .02."""
    means = lines.pivot_table([*RANKED], ["data", "noise"], "method")
    yield "| data | noise | measure | peerloss | cleanlab | adjusted |"
    yield "|---|---|---|---|---|---|"
    for measure in RANKED:
        gained = gains(means, measure)
        for case in gained[gained < -0.02].sort_values().index:
            scores = (f"{means[measure].loc[case, method]:.3f}" for method in (OURS, PLAIN, ADJUSTED))
            yield f"| {' | '.join(case)} | {measure.replace('_', ' ')} | {' | '.join(scores)} |"


def report(lines: pd.DataFrame) -> Iterator[str]:
    """Yield the lines of the page."""
    flags = lines[lines["method"] != ADJUSTED].groupby(["data", "noise", "method"])[[*FLAGGED]].mean()
    flags = flags.groupby("method").mean().loc[[OURS, KNOWN, PLAIN]]
    counted = lines.groupby("data")["seed"].nunique()
    seeds = "; ".join(f"{', '.join(part.index)}: {n}" for n, part in counted.groupby(counted))
    yield f"Seeds per data set, starting at {lines['seed'].min()}: {seeds}.\n"
    yield f"{(lines['method'] == OURS).sum()} cells; cleanlab {version('cleanlab')}; {provenance('cpu')}."
    yield ""
    yield from totals(lines)
    yield "\nFlags (`flagged` against `cleanlab.filter.find_label_issues`), means over cases:\n"
    yield "| | F1 | precision | recall |\n|---|---|---|---|"
    yield from (
        f"| {name} | {' | '.join(f'{row[m]:.3f}' for m in FLAGGED)} |" for name, row in flags.iterrows()
    )
    yield "\n### By kind of noise\n"
    yield from by_kind(lines)
    yield "\n### Cases below the better of both by more than 0.02\n"
    yield from misses(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("step", choices=("probabilities", "score"))
    parser.add_argument("--folder", type=Path, default=Path("runs/audit"))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--data", nargs="+", default=[*TWO_CLASSES, *MORE_CLASSES], help="names of data sets")
    parser.add_argument("--output", type=Path, help="file for the table; by default it is printed")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    if options.step == "probabilities":
        for cell in cells(options.seeds, options.data):
            save_probabilities(cell, options.folder)
        return
    lines = pd.DataFrame([line for path in sorted(options.folder.glob("*.npz")) for line in score_cell(path)])
    page = "\n".join(report(lines))
    if options.output:
        options.output.write_text(page + "\n", encoding="utf-8")
    else:
        print(page)


if __name__ == "__main__":
    main()
