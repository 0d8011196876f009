"""A credit table with wrong labels: train a classifier and list the suspect rows.

In the German credit data, 30 % of the customers with bad credit are labelled good, and 10 % of the others
bad. The noise is added here, so that the result can be checked. `PeerClassifier` uses only the noisy labels,
and so does `find_label_issues`, which reuses its out-of-fold probabilities.

Run with ``python examples/credit_table.py``. The data are in the package.
"""

from __future__ import annotations

import pandas as pd
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, balanced_accuracy_score, recall_score
from sklearn.model_selection import train_test_split

from peerloss import (
    NoiseModel,
    PeerClassifier,
    PeerPlugInClassifier,
    find_label_issues,
    flip_labels,
    load_dataset,
)
from peerloss.datasets import make_encoder

NOISE = NoiseModel.binary(e_neg=0.1, e_pos=0.3)
SEEDS = range(200, 203)


def compare(seed: int) -> tuple[pd.DataFrame, pd.Series]:
    """Return accuracies on clean test labels, and results of the audit of the training labels."""
    credit = load_dataset("german")
    X_train, X_test, clean, y_test = train_test_split(credit.X, credit.y, test_size=0.2, random_state=seed)
    noisy = flip_labels(clean, NOISE, random_state=seed)
    encoder = make_encoder().fit(X_train)
    X_train, X_test = encoder.transform(X_train), encoder.transform(X_test)
    logistic = LogisticRegression(max_iter=1000)
    peer = PeerClassifier(random_state=seed).fit(X_train, noisy)
    balanced = PeerClassifier(metric="balanced_accuracy", random_state=seed).fit(X_train, noisy)
    predicted = {
        "noisy labels, logistic regression": logistic.fit(X_train, noisy).predict(X_test),
        "noisy labels, the same as a peer plug-in": PeerPlugInClassifier(logistic)
        .fit(X_train, noisy)
        .predict(X_test),
        "noisy labels, PeerClassifier()": peer.predict(X_test),
        "the same with balanced accuracy as metric": balanced.predict(X_test),
        "clean labels, logistic regression": logistic.fit(X_train, clean).predict(X_test),
    }
    rows = {
        name: {
            "accuracy": accuracy_score(y_test, labels),
            "balanced accuracy": balanced_accuracy_score(y_test, labels),
            "bad credits found": recall_score(y_test, labels),
        }
        for name, labels in predicted.items()
    }
    audit = find_label_issues(labels=noisy, pred_proba=peer.oof_proba_)
    wrong, worst = noisy != clean, audit.table["rank"] <= 50
    found = {
        "rate of bad booked as good, estimated": peer.noise_.transition[1, 0],
        "wrong among all labels": wrong.mean(),
        "wrong among the 50 most suspect": wrong[worst].mean(),
    }
    return pd.DataFrame(rows).T, pd.Series(found)


def show(column: pd.Series) -> str:
    """Return mean ± standard error."""
    values = column.to_numpy(dtype=float)
    return f"{values.mean():.3f} ± {values.std(ddof=1) / len(values) ** 0.5:.3f}"


def main() -> None:
    """Print mean ± standard error over the seeds."""
    results = [compare(seed) for seed in SEEDS]
    scores = pd.concat([table for table, _ in results]).groupby(level=0, sort=False)
    print(scores.agg(show).to_string())
    print("\nThe audit of the 800 training labels:")
    print(pd.DataFrame([found for _, found in results]).agg(show).to_string())


if __name__ == "__main__":
    main()
