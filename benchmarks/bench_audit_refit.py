"""Label issues: gain of a second round, ``find_label_issues(..., refit=True)``, over one round.

``python benchmarks/bench_audit_refit.py --seeds 14 15`` fits logistic regression and forests to data sets
with added noise, as ``bench_audit.py`` does. It compares with the ranking of cleanlab from the probabilities
of the first round, and from a model that is fitted again without the flagged rows. Prints the table.
"""

from __future__ import annotations

import argparse
import warnings
from importlib.metadata import version
from typing import Any

import numpy as np
import pandas as pd
from bench_audit import (
    KINDS,
    MORE_CLASSES,
    TWO_CLASSES,
    Cell,
    cells,
    cleanlab_scores,
    kind_of,
    labelled,
    learner,
)
from cleanlab.filter import find_label_issues as cleanlab_issues
from joblib import Parallel, delayed
from measure import provenance
from sklearn.metrics import average_precision_score, f1_score, roc_auc_score
from sklearn.model_selection import StratifiedKFold

from peerloss import find_label_issues

SMALL = (*TWO_CLASSES[:6], *MORE_CLASSES[:2])
MEASURES = ("AUROC", "AP", "F1")
METHODS = (
    "peerloss",
    "peerloss, refit",
    "cleanlab",
    "cleanlab adjusted",
    "cleanlab, refit without its flags",
)


def predict_out_of_fold(X: Any, y: Any, model: str, seed: int, kept: Any) -> Any:
    """Return out-of-fold probabilities of the noisy labels, trained on the kept rows."""
    proba = np.zeros((len(y), int(y.max()) + 1))
    for train, test in StratifiedKFold(5, shuffle=True, random_state=seed).split(X, y):
        rows = train[kept[train]]
        fitted = learner(model, seed).fit(X[rows], y[rows])
        proba[np.ix_(test, fitted.classes_)] = fitted.predict_proba(X[test])
    return proba


def measure_cell(cell: Cell) -> list[dict[str, Any]]:
    """Return one line per method, or none if no label is wrong."""
    warnings.simplefilter("ignore")  # noise that cannot be estimated, rare classes
    name, noise, model, seed = cell
    X, noisy, clean = labelled(name, noise, seed)
    wrong = noisy != clean
    if not wrong.any():
        return []
    proba = predict_out_of_fold(X, noisy, model, seed, np.ones(len(noisy), dtype=bool))
    flags = cleanlab_issues(noisy, proba, n_jobs=1)
    again = predict_out_of_fold(X, noisy, model, seed, ~flags)
    found: list[tuple[Any, Any]] = []
    for refit in (False, True):
        table = find_label_issues(
            X, noisy, estimator=learner(model, seed), pred_proba=proba, refit=refit, random_state=seed
        ).table
        found.append((table["p_error"], table["flagged"]))
    found += [(score, flags) for score in cleanlab_scores(noisy, proba)]
    found.append((cleanlab_scores(noisy, again)[0], cleanlab_issues(noisy, again, n_jobs=1)))
    noise = noise.replace(":", "-")
    return [
        {"data": name, "noise": noise, "kind": kind_of(name, noise), "method": method}
        | {"AUROC": roc_auc_score(wrong, score), "AP": average_precision_score(wrong, score)}
        | {"F1": f1_score(wrong, flagged, zero_division=0.0)}
        for method, (score, flagged) in zip(METHODS, found, strict=True)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seeds", nargs="+", type=int, default=[14])
    parser.add_argument("--data", nargs="+", default=[*SMALL])
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    parts = Parallel(n_jobs=options.jobs)(
        delayed(measure_cell)(cell) for cell in cells(options.seeds, options.data)
    )
    lines = pd.DataFrame([line for part in parts for line in part])
    wide = lines.pivot_table([*MEASURES], ["kind", "data", "noise"], "method")
    seeds = " and ".join(map(str, options.seeds))
    print(f"{', '.join(options.data)}; seeds {seeds}; {len(lines) // len(METHODS)} cells;", end=" ")
    print(f"cleanlab {version('cleanlab')}; {provenance('cpu')}.\n")
    print(f"| mean over {len(wide)} cases | AUROC | average precision | F1 of the flags |\n|---|---|---|---|")
    for method in METHODS:
        scores = [wide[measure][method].mean() for measure in MEASURES]
        print(f"| {method} | {' | '.join(f'{v:.4f}' for v in scores)} |")
    for measure in ("AUROC", "AP"):
        gained = wide[measure]["peerloss, refit"] - wide[measure]["peerloss"]
        print(
            f"\n{measure}: refit gains {gained.mean():+.4f} ± {gained.sem():.4f}; it is better in "
            f"{(gained > 0).mean():.0%} of the cases."
        )
    print("\n| noise | cases | AUROC: one round | refit | AP: one round | refit |\n|---|---|---|---|---|---|")
    for kind, title in KINDS.items():
        if kind in wide.index:
            part = wide.loc[kind]
            scores = [part[m][method].mean() for m in ("AUROC", "AP") for method in METHODS[:2]]
            print(f"| {title} | {len(part)} | {' | '.join(f'{v:.3f}' for v in scores)} |")


if __name__ == "__main__":
    main()
