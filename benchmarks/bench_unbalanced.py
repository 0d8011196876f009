"""Unbalanced label issues: ``find_label_issues`` compared with self-confidence on the same probabilities.

``python benchmarks/bench_unbalanced.py --cases 120 --output FILE`` makes data sets with 90–98 % of the rows
in one class, adds noise, and ranks the labels by ``p_error`` and by one minus the probability of the given
label. The latter is also the default ranking of cleanlab. Nothing is chosen with clean labels.
``--classes 2`` makes data sets of two classes instead of 3 to 8. A case takes about three seconds.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from measure import provenance
from scipy.special import logsumexp, softmax
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, f1_score, roc_auc_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict

from peerloss import find_label_issues

if TYPE_CHECKING:
    from collections.abc import Iterator

ROWS, MAJORITY, SEPARATION, FEATURES = (1000, 3000, 10_000, 30_000), (0.9, 0.95, 0.98), (1.5, 2.5, 4.0), 6
LEARNERS = ("exact", "logistic", "forest", "boosting")
#: Kinds of noise in the table. A dictionary misses some groups of a rare class nearly always, others rarely.
NOISES = {
    "uniform": "uniform, 5–20 %",
    "missed": "rare classes labelled as the majority, 20–60 %",
    "missed and uniform": "the same, and 3 % uniform",
    "pair": "pairs of rare classes, 30 %",
    "spurious": "the majority labelled as a rare class, 3 %",
    "dictionary": "rare classes missed group by group, 5–80 %",
    "boundary": "near the boundary only",
}
#: Data sets with fewer wrong labels, or fewer rows of a label, are skipped.
MIN_ERRORS, MIN_LABELS = 10, 6
LIMIT = 0.03


def transition(noise: str, k: int, rng: np.random.Generator) -> Any:
    """Return T of a kind of noise that depends on the class alone."""
    uniform, missed = (np.ones((k, k)) - np.eye(k)) / (k - 1), np.zeros((k, k))
    missed[1:, 0] = 1.0
    T = np.zeros((k, k))
    if noise == "uniform":
        T = rng.choice([0.05, 0.1, 0.2]) * uniform
    elif noise.startswith("missed"):
        T = rng.choice([0.2, 0.4, 0.6]) * missed + (0.03 * uniform if noise != "missed" else 0.0)
    elif noise == "pair":
        T[np.arange(1, k), np.append(np.arange(2, k), 1)] = 0.3
    elif noise == "spurious":
        T[0, 1:] = 0.03 / (k - 1)
    return T + np.diag(1.0 - T.sum(axis=1))


def make_case(seed: int, noise: str, classes: tuple[int, ...]) -> tuple[dict[str, Any], Any, Any, Any]:
    """Return a description, out-of-fold probabilities, noisy labels and clean labels."""
    rng = np.random.default_rng(seed)
    n, k = int(rng.choice(ROWS, p=[0.35, 0.3, 0.25, 0.1])), int(rng.choice(classes))
    majority, separation = float(rng.choice(MAJORITY)), float(rng.choice(SEPARATION))
    learner = str(rng.choice(LEARNERS[1:] if noise in ("boundary", "dictionary") else LEARNERS))
    groups = 4 if noise == "dictionary" else int(rng.choice([1, 4]))
    prior = np.append(majority, (1.0 - majority) * rng.dirichlet(np.full(k - 1, 3.0)))
    means = rng.normal(size=(k, groups, FEATURES))
    means *= separation / np.linalg.norm(means, axis=2, keepdims=True)
    clean, group = rng.choice(k, size=n, p=prior), rng.integers(groups, size=n)
    X = means[clean, group] + rng.normal(size=(n, FEATURES))
    distances = np.stack([((X[:, None] - some) ** 2).sum(axis=2) for some in means], axis=1)
    posterior = softmax(np.log(prior) + logsumexp(-distances / 2.0, axis=2), axis=1)
    if noise == "boundary":  # the most probable other class, in proportion to p(1 − p) of the first
        other = np.where(np.arange(k) == clean[:, None], -1.0, posterior).argmax(axis=1)
        closeness = posterior.max(axis=1) * (1.0 - posterior.max(axis=1))
        flip = rng.random(n) < np.minimum(0.08 * closeness / closeness.mean(), 0.5)
        noisy, T = np.where(flip, other, clean), np.eye(k)
    elif noise == "dictionary":
        rates = rng.choice([0.05, 0.3, 0.8], size=(k, groups))
        flip = (clean > 0) & (rng.random(n) < rates[clean, group])
        noisy, T = np.where(flip, 0, clean), np.eye(k)
    else:
        T = transition(noise, k, rng)
        noisy = (rng.random(n)[:, None] > np.cumsum(T[clean], axis=1)).sum(axis=1).clip(0, k - 1)
    case = {"seed": seed, "noise": noise, "learner": learner, "rows": n, "classes": k}
    case |= {"majority": majority, "separation": separation}
    enough = np.bincount(noisy, minlength=k).min() >= MIN_LABELS and (noisy != clean).sum() >= MIN_ERRORS
    if not enough:
        return case, None, noisy, clean
    return case, posterior @ T if learner == "exact" else out_of_fold(X, noisy, learner, seed), noisy, clean


def out_of_fold(X: Any, noisy: Any, learner: str, seed: int) -> Any:
    model = {
        "logistic": LogisticRegression(max_iter=500),
        "forest": RandomForestClassifier(100, min_samples_leaf=5, random_state=seed),
        "boosting": HistGradientBoostingClassifier(max_iter=60, random_state=seed),
    }[learner]
    folds = StratifiedKFold(5, shuffle=True, random_state=seed)
    return cross_val_predict(model, X, noisy, cv=folds, method="predict_proba")


def score_case(seed: int, noise: str, classes: tuple[int, ...]) -> dict[str, Any] | None:
    """Return the scores of a case, or ``None`` if it has too few errors."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # rare classes; noise that cannot be estimated
        case, proba, noisy, clean = make_case(seed, noise, classes)
        if proba is None:
            return None
        table = find_label_issues(labels=noisy, pred_proba=proba).table
    wrong, confidence = noisy != clean, proba[np.arange(len(noisy)), noisy]
    return case | {
        "errors": int(wrong.sum()),
        "auroc": roc_auc_score(wrong, table["p_error"]),
        "auroc_plain": roc_auc_score(wrong, -confidence),
        "ap": average_precision_score(wrong, table["p_error"]),
        "ap_plain": average_precision_score(wrong, -confidence),
        "f1": f1_score(wrong, table["flagged"], zero_division=0.0),
        "mean_p_error": table["p_error"].mean(),
        "share_of_errors": wrong.mean(),
    }


def report(lines: pd.DataFrame, title: str) -> Iterator[str]:
    """Yield the lines of one table."""
    lines = lines.assign(gain=lines["auroc"] - lines["auroc_plain"])
    yield f"## {title}\n"
    yield f"{len(lines)} cases, seeds {lines['seed'].min()} to {lines['seed'].max()}; {provenance('cpu')}.\n"
    head = ("noise", "cases", "AUROC", "self-confidence", "worst difference", f"below −{LIMIT:.2f}")
    yield f"| {' | '.join(head)} | AP | self-confidence | F1 of the flags | mean `p_error` | wrong labels |"
    yield "|---" * 11 + "|"
    for name, part in [*lines.groupby("noise", sort=False), ("all", lines)]:
        means = part[
            ["auroc", "auroc_plain", "ap", "ap_plain", "f1", "mean_p_error", "share_of_errors"]
        ].mean()
        cells = [NOISES.get(str(name), str(name)), str(len(part))]
        cells += [f"{means['auroc']:.3f}", f"{means['auroc_plain']:.3f}", f"{part['gain'].min():+.3f}"]
        cells += [str(int((part["gain"] < -LIMIT).sum()))]
        cells += [
            f"{means[name]:.3f}" for name in ("ap", "ap_plain", "f1", "mean_p_error", "share_of_errors")
        ]
        yield f"| {' | '.join(cells)} |"
    gains = lines["gain"].to_numpy(dtype=float)
    spread = gains.mean(), gains.std(ddof=1) / np.sqrt(len(gains))
    yield f"\nAUROC minus that of self-confidence: {spread[0]:+.4f} ± {spread[1]:.4f} (standard error).\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--cases", type=int, default=120)
    parser.add_argument("--first-seed", type=int, default=5000)
    parser.add_argument("--classes", type=int, nargs="+", default=[3, 4, 5, 8])
    parser.add_argument("--output", type=Path, help="file for the table; by default it is printed")
    options = parser.parse_args()
    kinds = [kind for kind in NOISES if kind != "pair" or max(options.classes) > 2]
    seeds = range(options.first_seed, options.first_seed + options.cases)
    found = [score_case(s, kinds[s % len(kinds)], tuple(options.classes)) for s in seeds]
    lines = pd.DataFrame([line for line in found if line is not None])
    title = f"{' or '.join(map(str, options.classes))} classes"
    page = "\n".join(report(lines, title))
    if options.output:
        options.output.write_text(page + "\n", encoding="utf-8")
        lines.to_csv(options.output.with_suffix(".csv"), index=False)
    else:
        print(page)


if __name__ == "__main__":
    main()
