"""Is ``p_error`` a probability? Calibration of ``find_label_issues`` on made data with known clean labels.

Run ``python benchmarks/bench_calibration.py --runs RUNS.jsonl [--seeds 0-2] [--rows 300,2000] [--centres
random] [--probabilities portfolio] [--output TABLE.md] [--picture RELIABILITY.png]``. Finished cells are
stored in RUNS and skipped in later runs.

Classes are normal distributions whose distance gives the wanted accuracy of the best classifier. Their
centres are equally far from each other, on a line, or random. Probabilities of the noisy labels are *exact*,
those of a *forest* out of bag, or those of the *portfolio*, which an audit computes itself if it gets
features. A cell is one combination of all these and a noise.

Three columns show what is possible. The *oracle* knows the clean probabilities and T, so its mean differs
from the share of wrong labels by sampling alone. *T unknown* knows the clean probabilities and samples T from
its posterior. *Family known* sees the features and knows that the classes are normal with unit variance; it
samples centres and T. An audit knows none of these.
"""

from __future__ import annotations

import argparse
import json
import warnings
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from measure import provenance, publish
from sklearn.ensemble import RandomForestClassifier
from sklearn.metrics import roc_auc_score
from threadpoolctl import threadpool_limits

from peerloss import NoiseModel, PeerClassifier, find_label_issues, flip_labels
from peerloss.posterior.flags import FlagRule, flag_suspects, suspicious_first

if TYPE_CHECKING:
    from peerloss.audit import LabelAudit

CLASSES = (2, 3, 5, 10)
ROWS = (300, 2_000, 10_000, 50_000)
BEST_ACCURACIES = (0.75, 0.9, 0.98)
NOISES = ("none", "uniform .1", "uniform .2", "uniform .4", "pair .2", "asymmetric")
CENTRES = ("equal", "line", "random")
PROBABILITIES = ("exact", "forest", "portfolio")
#: Larger tables have no forest: an audit of a table uses the portfolio.
MAX_FOREST_ROWS = 10_000
N_BINS = 10
#: Rounds of the sampler for an unknown T: first ones that are not used, and others.
BURN_IN, SAMPLES = 20, 40
#: The same if the centres are unknown, too, and the variance of the normal prior of a centre.
BURN_IN_CENTRES, SAMPLES_CENTRES, CENTRE_VARIANCE = 150, 400, 20.0
#: A mean of ``p_error`` counts as right if it is at most this far from the share of wrong labels.
NEAR = 0.03
Cell = tuple[int, int, float, str, str, str, int]
COLUMNS = ("classes", "rows", "best", "noise", "centres", "probabilities", "seed")


def make_world(n_classes: int, n: int, best: float, centres: str, seed: int) -> tuple[Any, Any, Any]:
    """Return features, clean labels and clean probabilities; the best classifier has accuracy ``best``."""
    rng = np.random.default_rng([seed, n_classes, CENTRES.index(centres)])
    places = {
        "equal": np.eye(n_classes),
        "line": np.arange(n_classes, dtype=float)[:, None],
        "random": rng.normal(size=(n_classes, max(2, n_classes // 2))),
    }[centres]
    few, noise = rng.integers(n_classes, size=3000), rng.normal(size=(3000, places.shape[1]))
    near, far = 0.05, 40.0
    for _ in range(25):  # bisection in the logarithm of the distance
        distance = np.sqrt(near * far)
        reached = posterior(distance * places[few] + noise, distance * places).max(axis=1).mean()
        near, far = (distance, far) if reached < best else (near, distance)
    clean = rng.integers(n_classes, size=n)
    X = distance * places[clean] + rng.normal(size=(n, places.shape[1]))
    return X, clean, posterior(X, distance * places)


def posterior(X: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """Return P(class | x) of equally frequent normal distributions."""
    scores = X @ centres.T - (centres**2).sum(axis=1) / 2.0
    p = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(p / p.sum(axis=1, keepdims=True))


def make_noise(name: str, n_classes: int, seed: int) -> NoiseModel:
    """Return the named noise; asymmetric rates are drawn."""
    kind, _, rate = name.partition(" ")
    if kind == "none":
        return NoiseModel(np.eye(n_classes))
    if kind == "uniform":
        return NoiseModel.uniform(n_classes, float(rate))
    if kind == "pair":
        return NoiseModel.pair_flip(n_classes, float(rate))
    rng = np.random.default_rng(seed)
    if n_classes == 2:
        return NoiseModel.binary(*rng.permutation([0.05, 0.3]))
    rates, shares = rng.uniform(0.0, 0.4, size=n_classes), np.zeros((n_classes, n_classes))
    other = ~np.eye(n_classes, dtype=bool)
    shares[other] = rng.dirichlet(np.full(n_classes - 1, 0.5), size=n_classes).ravel()
    return NoiseModel(np.diag(1.0 - rates) + rates[:, None] * shares)


def errors_given(clean_proba: np.ndarray, transition: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return P(clean ≠ given) of rows with these clean probabilities and labels, by Bayes' rule."""
    joint = clean_proba * transition.T[labels]
    return np.asarray(1.0 - joint[np.arange(len(labels)), labels] / np.maximum(joint.sum(axis=1), 1e-300))


def sample_errors(clean_proba: np.ndarray, labels: np.ndarray, seed: int) -> np.ndarray:
    """Return P(clean ≠ given) averaged over T given clean probabilities and labels, by Gibbs sampling.

    The rows of T are Dirichlet a priori, with 1.5 on the diagonal and .5 for the other entries together.
    """
    rng, k = np.random.default_rng(seed), clean_proba.shape[1]
    transition, total = dirichlet_start(k), np.zeros(len(labels))
    transition /= transition.sum(axis=1, keepdims=True)
    for step in range(BURN_IN + SAMPLES):
        if step >= BURN_IN:
            total += errors_given(clean_proba, transition, labels)
        drawn = draw_classes(clean_proba * transition.T[labels], rng)
        transition = draw_transition(drawn, labels, k, rng)
    return total / SAMPLES


def sample_errors_of_family(X: np.ndarray, labels: np.ndarray, clean: np.ndarray, seed: int) -> np.ndarray:
    """Return P(clean ≠ given) averaged over centres and T, given features and labels.

    The sampler starts at the true classes, so that its classes keep their names.
    """
    rng, k, drawn = np.random.default_rng(seed), int(labels.max()) + 1, clean
    total = np.zeros(len(labels))
    for step in range(BURN_IN_CENTRES + SAMPLES_CENTRES):
        member = np.eye(k)[drawn]
        precision = member.sum(axis=0)[:, None] + 1.0 / CENTRE_VARIANCE
        centres = member.T @ X / precision + rng.normal(size=(k, X.shape[1])) / np.sqrt(precision)
        transition, proba = draw_transition(drawn, labels, k, rng), posterior(X, centres)
        if step >= BURN_IN_CENTRES:
            total += errors_given(proba, transition, labels)
        drawn = draw_classes(proba * transition.T[labels], rng)
    return total / SAMPLES_CENTRES


def dirichlet_start(k: int) -> np.ndarray:
    """Return the parameters of the prior of the rows of T."""
    return np.where(np.eye(k, dtype=bool), 1.5, 0.5 / (k - 1))


def draw_classes(joint: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw the class of each row in proportion to ``joint``, (n, K)."""
    reached = np.cumsum(joint, axis=1)
    drawn = (reached < rng.random(len(joint))[:, None] * reached[:, -1:]).sum(axis=1)
    return np.asarray(np.minimum(drawn, joint.shape[1] - 1))


def draw_transition(drawn: np.ndarray, labels: np.ndarray, k: int, rng: np.random.Generator) -> np.ndarray:
    """Draw T given classes and labels."""
    counts = dirichlet_start(k)
    np.add.at(counts, (drawn, labels), 1.0)
    shares = np.maximum(rng.gamma(counts), 1e-12)
    return np.asarray(shares / shares.sum(axis=1, keepdims=True))


def run(cell: Cell) -> dict[str, Any] | None:
    """Audit one made table; ``None`` if a class has no label."""
    warnings.simplefilter("ignore")
    n_classes, n, best, noise_name, centres, kind, seed = cell
    X, clean, clean_proba = make_world(n_classes, n, best, centres, seed)
    noise = make_noise(noise_name, n_classes, seed)
    labels = flip_labels(clean, noise, random_state=seed)
    if len(np.unique(labels)) < n_classes or len(np.unique(clean)) < n_classes:
        return None
    if kind == "exact":
        proba = clean_proba @ noise.transition
    elif kind == "portfolio":
        with threadpool_limits(1):
            proba = PeerClassifier(random_state=seed).cross_val_noisy_proba(X, labels)
    else:
        forest = RandomForestClassifier(200, min_samples_leaf=3, oob_score=True, random_state=seed)
        proba = np.nan_to_num(forest.fit(X, labels).oob_decision_function_, nan=1.0 / n_classes)
        proba = (proba + 1e-6) / (proba + 1e-6).sum(axis=1, keepdims=True)
    audit = find_label_issues(labels=labels, pred_proba=proba)
    wrong, p_error = labels != clean, audit.table["p_error"].to_numpy()
    flagged = audit.table["flagged"].to_numpy()
    # What `target="precision", level=0.8` flags.
    kept = flag_suspects(p_error, suspicious_first(p_error), FlagRule("precision", 0.8)) & (not audit.reason)
    bins = np.minimum((N_BINS * p_error).astype(int), N_BINS - 1)
    count = np.bincount(bins, minlength=N_BINS)
    stated, true = (np.bincount(bins, weights=v, minlength=N_BINS) for v in (p_error, wrong))
    record: dict[str, Any] = dict(zip(COLUMNS, cell, strict=True))
    record |= {
        "wrong": float(wrong.mean()),
        "mean p_error": float(p_error.mean()),
        "oracle": float(errors_given(clean_proba, noise.transition, labels).mean()),
        "T unknown": float(sample_errors(clean_proba, labels, seed).mean()),
        "family known": float(sample_errors_of_family(X, labels, clean, seed).mean()),
        "calibration error": float(np.abs(stated - true).sum() / n),
        "flagged": float(flagged.mean()),
        "flagged and wrong": float((flagged & wrong).mean()),
        "promised": float(kept.mean()),
        "promised and wrong": float((kept & wrong).mean()),
        "no noise": audit.no_noise,
        "estimated": not audit.reason,
        "bins": [count.tolist(), stated.tolist(), true.tolist()],
    } | intervals_hold(audit, clean, labels)
    if wrong.any():
        record["AUROC"] = float(roc_auc_score(wrong, p_error))
        given = proba[np.arange(n), labels]
        record["AUROC, confidence"] = float(roc_auc_score(wrong, 1.0 - given))
    return record


def intervals_hold(audit: LabelAudit, clean: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Return whether the 90 % intervals of the diagonal of T and of the number of errors hold, if stated."""
    if audit.noise_low is None or audit.noise_high is None or audit.expected_errors_interval is None:
        return {}
    rates = pd.crosstab(clean, labels, normalize="index").reindex(np.unique(labels)).to_numpy()
    inside = np.diag((audit.noise_low - 1e-9 <= rates) & (rates <= audit.noise_high + 1e-9))
    low, high = audit.expected_errors_interval
    return {
        "rates inside": float(inside[np.isfinite(np.diag(rates))].mean()),
        "errors inside": float(low - 0.5 <= (clean != labels).sum() <= high + 0.5),
    }


def summarise(frame: pd.DataFrame) -> list[str]:
    """Return the tables."""
    near = {
        f"near, {name}": (frame[name] - frame["wrong"]).abs() <= NEAR
        for name in ("mean p_error", "oracle", "T unknown", "family known")
    }
    frame = frame.assign(**near)
    head = (
        "| cells | wrong | mean p_error | within .03 | family known | T unknown | oracle | calibration error "
        "| flagged | no noise | rates inside | errors inside | AUROC | confidence |"
    )
    names = (
        *("wrong", "mean p_error", "near, mean p_error"),
        *("near, family known", "near, T unknown", "near, oracle"),
        *("calibration error", "flagged", "no noise", "rates inside"),
        *("errors inside", "AUROC", "AUROC, confidence"),
    )
    lines = []
    for title, keys in (
        ("By noise", ["noise"]),
        ("By rows", ["rows"]),
        ("By classes", ["classes"]),
        ("By accuracy of the best classifier", ["best"]),
        ("By probabilities", ["probabilities"]),
        ("By probabilities, accuracy and rows", ["probabilities", "best", "rows"]),
        ("Clean labels", ["best", "rows"]),
    ):
        cells = frame[frame["noise"] == "none"] if title == "Clean labels" else frame
        lines += [f"## {title}", "", f"| {' and '.join(keys)} {head}", "|" + "---|" * 15]
        for key, part in cells.groupby(keys):
            means = " | ".join("" if np.isnan(m) else f"{m:.3f}" for m in part[list(names)].mean())
            lines.append(f"| {', '.join(map(str, key))} | {len(part)} | {means} |")
        lines.append("")
    noisy = frame[(frame["noise"] != "none") & (frame["promised"] > 0)]
    reached = noisy["promised and wrong"] / noisy["promised"]
    share = noisy["promised and wrong"].sum() / noisy["promised"].sum()
    n_noisy = int((frame["noise"] != "none").sum())
    promise = (
        f'`target="precision", level=0.8`: flags in {len(noisy)} of {n_noisy} cells with noise; {share:.3f} '
        f"of the flagged rows are wrong, at least .75 in {(reached >= 0.75).mean():.0%} of these cells."
    )
    return [*lines, promise]


def draw_reliability(frame: pd.DataFrame, path: Path) -> None:
    """Draw the share of wrong labels over ``p_error``, for each number of classes and kind of noise."""
    import matplotlib as mpl  # noqa: PLC0415 - only for the picture

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    figure, axes = plt.subplots(1, len(CLASSES), figsize=(3.2 * len(CLASSES), 3.4), sharey=True)
    for axis, n_classes in zip(axes, CLASSES, strict=True):
        axis.plot([0, 1], [0, 1], color="0.6", lw=1, zorder=0)
        for noise in NOISES:
            part = frame[(frame["classes"] == n_classes) & (frame["noise"] == noise)]
            if not len(part):
                continue
            count, stated, true = np.sum([np.array(b) for b in part["bins"]], axis=0)
            some = count >= 100  # fewer rows say nothing
            axis.plot(stated[some] / count[some], true[some] / count[some], "o-", ms=3, lw=1, label=noise)
        axis.set_title(f"{n_classes} classes", fontsize=10)
        axis.set_xlabel("p_error")
    axes[0].set_ylabel("share of wrong labels")
    axes[-1].legend(fontsize=7, loc="upper left")
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main() -> None:
    """Run missing cells, then print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--seeds", default="0-0", help="first-last")
    parser.add_argument("--rows", default=",".join(map(str, ROWS)))
    parser.add_argument("--centres", default=",".join(CENTRES))
    parser.add_argument("--probabilities", default=",".join(PROBABILITIES))
    parser.add_argument("--noises", default=",".join(NOISES))
    parser.add_argument("--n-jobs", type=int, default=1)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--picture", type=Path)
    options = parser.parse_args()
    first, last = map(int, options.seeds.split("-"))
    rows = tuple(map(int, options.rows.split(",")))
    done = [json.loads(line) for line in options.runs.open()] if options.runs.exists() else []
    keys = {tuple(record[column] for column in COLUMNS) for record in done}
    wanted = [
        cell
        for cell in product(
            *(CLASSES, rows, BEST_ACCURACIES, options.noises.split(",")),
            *(options.centres.split(","), options.probabilities.split(",")),
            range(first, last + 1),
        )
        if cell not in keys and (cell[5] != "forest" or cell[1] <= MAX_FOREST_ROWS)
    ]
    found = Parallel(n_jobs=options.n_jobs, return_as="generator_unordered")(delayed(run)(c) for c in wanted)
    for record in found:
        if record is None:
            continue
        done.append(record)
        with options.runs.open("a") as file:
            file.write(json.dumps(record) + "\n")
    frame = pd.DataFrame(done)
    if options.picture:
        draw_reliability(frame, options.picture)
    text = [f"Measured with `benchmarks/bench_calibration.py`: {provenance('cpu')}.", "", *summarise(frame)]
    publish("\n".join([*text, ""]), options.output)


if __name__ == "__main__":
    main()
