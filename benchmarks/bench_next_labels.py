"""Several annotators: labels of the audit and what to label next, compared with cleanlab's.

``python benchmarks/bench_next_labels.py --repeats 5 --output FILE`` compares, on the same out-of-fold
probabilities, the labels of ``find_label_issues`` with those of cleanlab's
``get_label_quality_multiannotator``. Then it starts from one label per task, adds one label to the tasks that
a ranking puts first, batch after batch, and measures the accuracy of the labels after each batch: by ``gain``
(``rank_next_labels``), by ``p_error``, by cleanlab's ``get_active_learning_scores`` (ActiveLab) and at
random. The labels are always those of the audit, so that only the order differs. Crowds are simulated, or
real ones under PEERLOSS_DATA; real ones without features have no probabilities, and ActiveLab needs them.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from cleanlab.multiannotator import get_active_learning_scores, get_label_quality_multiannotator
from measure import provenance
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from peerloss import find_label_issues
from peerloss.crowd import aggregate_labels
from peerloss.datasets.real_noise import load_real_noise

#: Name → tasks, classes, labels per task, workers, range of accuracies, separation, kind of errors.
CROWDS: dict[str, dict[str, Any]] = {
    "10 classes": {"k": 10, "n_labels": 2},
    "10 classes, own confusions": {"k": 10, "n_labels": 2, "errors": "own"},
    "10 classes, next class": {"k": 10, "n_labels": 2, "errors": "next"},
    "10 classes, 300 tasks": {"k": 10, "n_labels": 2, "n": 300},
    "10 classes, 300 workers": {"k": 10, "n_labels": 2, "n_workers": 300},
    "10 classes, weak features": {"k": 10, "n_labels": 2, "separation": 1.0},
    "10 classes, weak workers": {"k": 10, "n_labels": 2, "accuracy": (0.3, 0.7)},
    "10 classes, three labels": {"k": 10, "n_labels": 3},
    "10 classes, five labels": {"k": 10, "n_labels": 5},
    "5 classes, own confusions": {"k": 5, "n_labels": 2, "errors": "own"},
    "3 classes": {"k": 3, "n_labels": 2},
    "3 classes, three labels": {"k": 3, "n_labels": 3},
    "2 classes, three labels": {"k": 2, "n_labels": 3},
}
#: Simulated crowds in which labels are added.
GROWING: dict[str, dict[str, Any]] = {
    "10 classes": {"k": 10, "n_labels": 6, "accuracy": (0.4, 0.8), "separation": 1.2, "n": 400},
    "3 classes, own confusions": {
        "k": 3, "n_labels": 8, "accuracy": (0.45, 0.75), "separation": 1.0, "n": 400, "errors": "own",
    },
    "2 classes": {"k": 2, "n_labels": 8, "accuracy": (0.55, 0.75), "separation": 0.4, "n": 400},
}  # fmt: skip
REAL = ("labelme", "dog", "web", "product", "weather_sentiment")
ORDERS = ("gain", "p_error", "ActiveLab", "random")
#: Labels per batch as a share of the tasks, and the number of batches.
BATCH, N_BATCHES = 0.2, 8
#: Tasks of a real crowd, at most.
MAX_TASKS = 800


def simulate(
    *,
    k: int,
    n_labels: int,
    n: int = 1000,
    n_workers: int = 50,
    accuracy: tuple[float, float] = (0.4, 0.9),
    separation: float = 2.0,
    errors: str = "any",
    seed: int = 0,
) -> tuple[pd.DataFrame, Any, Any]:
    """Return a long table of labels, the features and the true labels."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(k, size=n)
    X = separation * rng.normal(size=(k, 10))[truth] + 1.5 * rng.normal(size=(n, 10))
    right = rng.uniform(*accuracy, size=n_workers)
    confusion = np.zeros((n_workers, k, k))
    for worker, share in enumerate(right):
        for z in range(k):
            others = np.arange(k) != z
            if errors == "next":
                confusion[worker, z, (z + 1) % k] = 1.0 - share
            else:
                shares = (
                    rng.dirichlet(np.full(k - 1, 0.5)) if errors == "own" else np.full(k - 1, 1 / (k - 1))
                )
                confusion[worker, z, others] = (1.0 - share) * shares
            confusion[worker, z, z] = share
    rows = [
        (task, worker, rng.choice(k, p=confusion[worker, truth[task]]))
        for task in range(n)
        for worker in rng.choice(n_workers, size=n_labels, replace=False)
    ]
    return pd.DataFrame(rows, columns=["task", "worker", "label"]), X, truth


def real(name: str, seed: int) -> tuple[pd.DataFrame, Any, Any]:
    """Return the labels of some tasks of a real crowd, numbered from 0, their features and true labels."""
    crowd = load_real_noise(name)
    table = crowd.reports.drop_duplicates(["task", "worker"])
    known = pd.Index(table["task"].unique()).intersection(crowd.gold.index)
    tasks = known[np.random.default_rng(seed).permutation(len(known))[:MAX_TASKS]]
    table = table[table["task"].isin(tasks)].assign(task=lambda t: tasks.get_indexer(t["task"]))
    features = crowd.features
    X = None
    if features is not None:
        X = features.set_axis(crowd.gold.index, axis=0).loc[tasks].to_numpy()
    return table.reset_index(drop=True), X, crowd.gold.loc[tasks].to_numpy()


def out_of_fold(X: Any, labels: Any, k: int) -> Any:
    """Return out-of-fold probabilities of a logistic regression, one column for each of k classes."""
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=500))
    proba = np.full((len(labels), k), 1e-6)
    proba[:, np.unique(labels)] += cross_val_predict(model, X, labels, cv=5, method="predict_proba")
    return proba / proba.sum(axis=1, keepdims=True)


def wide(table: pd.DataFrame, n: int) -> pd.DataFrame:
    """Return one column per worker, as cleanlab wants it."""
    return table.pivot_table(index="task", columns="worker", values="label").reindex(range(n))


def compare_labels(settings: dict[str, Any], repeats: int) -> dict[str, float]:
    """Return the accuracy of the labels of both, and the AUROC of their doubts."""
    found = []
    for seed in range(repeats):
        table, X, truth = simulate(**settings, seed=seed)
        votes = aggregate_labels(table)["majority"].sort_index().to_numpy()
        proba = out_of_fold(X, votes, settings["k"])
        audit = find_label_issues(labels=table, pred_proba=proba)
        ours = audit.relabel()[1].sort_index().to_numpy()
        result = get_label_quality_multiannotator(wide(table, len(truth)), proba, verbose=False)
        theirs = result["label_quality"].sort_index()
        wrong = audit.table["given"].sort_index().to_numpy() != truth
        theirs_wrong = theirs["consensus_label"].to_numpy() != truth
        found.append(
            {
                "majority": (votes == truth).mean(),
                "model": (proba.argmax(axis=1) == truth).mean(),
                "audit": (ours == truth).mean(),
                "cleanlab": 1.0 - theirs_wrong.mean(),
                "AUROC audit": roc_auc_score(wrong, audit.table["p_error"].sort_index()),
                "AUROC cleanlab": roc_auc_score(theirs_wrong, -theirs["consensus_quality_score"]),
                "mean p_error": float(audit.table["p_error"].mean()),
                "wrong": wrong.mean(),
            }
        )
    means = pd.DataFrame(found).mean()
    return dict(zip(map(str, means.index), map(float, means.to_numpy()), strict=True))


def grow(table: pd.DataFrame, X: Any, truth: Any, order: str, seed: int) -> list[float]:
    """Return the accuracy of the audit's labels after each batch of labels in one order."""
    rng = np.random.default_rng(seed)
    n, k = len(truth), int(max(table["label"].max(), truth.max())) + 1
    table = table.sample(frac=1, random_state=seed)
    first = table.groupby("task").cumcount() == 0
    seen, rest = table[first], table[~first]
    proba = None
    if X is not None:
        proba = out_of_fold(X, seen.set_index("task")["label"].reindex(range(n)).to_numpy(), k)
    found = []
    for batch in range(N_BATCHES + 1):
        audit = find_label_issues(labels=seen, pred_proba=proba)
        labels = audit.relabel()[1].reindex(range(n)).to_numpy()
        found.append(float((labels == truth).mean()))
        if batch == N_BATCHES or rest.empty:
            continue
        if order == "ActiveLab":
            score = -_active_lab(wide(seen, n), proba)
        else:
            score = rng.random(n) if order == "random" else audit.table[order].reindex(range(n)).to_numpy()
        score = np.where(np.isin(np.arange(n), rest["task"]), score, -np.inf)
        chosen = np.argsort(-score, kind="stable")[: int(BATCH * n)]
        new = rest[rest["task"].isin(chosen)].drop_duplicates("task")
        seen, rest = pd.concat([seen, new]), rest.drop(new.index)
    return found


def _active_lab(labels: pd.DataFrame, proba: Any) -> Any:
    with contextlib.redirect_stdout(io.StringIO()):  # it prints notes about single annotators
        return get_active_learning_scores(labels, proba)[0]


def compare_orders(name: str, repeats: int) -> dict[str, Any]:
    """Return the mean accuracy over the batches, and that after the last one, for each order."""
    paths: dict[str, list[list[float]]] = {order: [] for order in ORDERS}
    for seed in range(repeats):
        known = GROWING.get(name)
        table, X, truth = real(name, seed) if known is None else simulate(**known, seed=50 + seed)
        for order in ORDERS:
            if order != "ActiveLab" or X is not None:
                paths[order].append(grow(table, X, truth, order, seed))
    return {"tasks": len(truth), **{order: np.mean(p, axis=0) for order, p in paths.items() if p}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", choices=("labels", "orders"))
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    lines = [f"{options.repeats} repeats; {provenance('cpu')}.", ""]
    if options.only != "orders":
        heads = [
            "majority",
            "model",
            "audit",
            "cleanlab",
            "AUROC audit",
            "AUROC cleanlab",
            "mean p_error",
            "wrong",
        ]
        lines += [f"| crowd | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
        for name, settings in CROWDS.items():
            found = compare_labels(settings, options.repeats)
            lines.append(f"| {name} | " + " | ".join(f"{found[head]:.3f}" for head in heads) + " |")
            print(lines[-1], flush=True)
        lines.append("")
    if options.only != "labels":
        lines += [f"| crowd | tasks | start | {' | '.join(ORDERS)} |", "|---" * (len(ORDERS) + 3) + "|"]
        for name in (*GROWING, *REAL):
            grown = compare_orders(name, options.repeats)
            cells = [
                f"{np.mean(grown[order][1:]):.3f} ({grown[order][-1]:.3f})" if order in grown else "–"
                for order in ORDERS
            ]
            lines.append(f"| {name} | {grown['tasks']} | {grown['gain'][0]:.3f} | {' | '.join(cells)} |")
            print(lines[-1], flush=True)
    if options.output:
        options.output.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
