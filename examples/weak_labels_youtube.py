"""Spam in YouTube comments, learned from ten keyword rules instead of labels.

The training comments have no human labels. Ten rules vote on them ("check out" means spam, a short text does
not, ...) and mostly abstain; the majority of the votes is the label. The rules miss spam far more often than
they flag other comments, so a plain classifier misses spam, too. Peer loss at α = 1, here as a plug-in around
the same logistic regression, corrects this bias without knowing the error rates.

Run with ``PEERLOSS_DATA=folder python examples/weak_labels_youtube.py``. The folder contains
``real_noise/youtube`` (ten labelling rules on the YouTube Spam Collection, as in the WRENCH benchmark).
True labels are used for testing, and for training in the last row, as an upper limit. No setting is chosen
with them.
"""

from __future__ import annotations

import pandas as pd
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import recall_score
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline

from peerloss import PeerPlugInClassifier
from peerloss.crowd import aggregate_labels
from peerloss.datasets import RealNoise, load_real_noise
from peerloss.exceptions import InvalidInputError

SEEDS = range(200, 205)


def compare(data: RealNoise, seed: int) -> pd.DataFrame:
    """Train on the votes of the rules for some comments, test on the true labels of the others."""
    text = pd.DataFrame(data.features)["text"]
    train, test = train_test_split(data.gold.index, test_size=0.2, random_state=seed)
    votes = data.reports[data.reports["task"].isin(train)]
    weak = aggregate_labels(votes)["majority"]  # without comments on which all rules abstain
    classifiers = {
        "rules, logistic regression": (LogisticRegression(), weak),
        "rules, peer plug-in, α = 1": (PeerPlugInClassifier(LogisticRegression(), alpha=1.0), weak),
        "rules, peer plug-in, α chosen": (PeerPlugInClassifier(LogisticRegression(), alpha="auto"), weak),
        "true labels, logistic regression": (LogisticRegression(), data.gold[weak.index]),
    }
    rows = {}
    for name, (classifier, labels) in classifiers.items():
        model = make_pipeline(TfidfVectorizer(sublinear_tf=True, min_df=2), classifier)
        predicted = model.fit(text[labels.index], labels).predict(text[test])
        rows[name] = {
            "labels right": (labels == data.gold[labels.index]).mean(),
            "spam found": recall_score(data.gold[test], predicted),
            "accuracy": (predicted == data.gold[test]).mean(),
        }
    return pd.DataFrame(rows).T


def show(column: pd.Series) -> str:
    """Return mean ± standard error."""
    values = column.to_numpy(dtype=float)
    return f"{values.mean():.3f} ± {values.std(ddof=1) / len(values) ** 0.5:.3f}"


def main() -> None:
    """Print mean ± standard error over the seeds."""
    try:
        data = load_real_noise("youtube")
    except InvalidInputError as error:
        raise SystemExit(f"{error}\nThen: PEERLOSS_DATA=folder python {__file__}") from error
    scores = pd.concat([compare(data, seed) for seed in SEEDS]).groupby(level=0, sort=False)
    print(scores.agg(show).to_string())
    print(f"{len(data.gold):,} comments, a fifth of them for the test; {len(SEEDS)} random splits.")


if __name__ == "__main__":
    main()
