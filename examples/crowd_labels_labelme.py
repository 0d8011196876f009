"""Pictures of eight classes, labelled by 59 annotators: which labels to train on, and how.

A thousand LabelMe pictures have two or three crowdsourced labels each, and a quarter of the labels are wrong.
The example compares training on the majority label with training on the most probable label according to
`find_label_issues`, which uses the error rates of the annotators *and* the features of the pictures. It also
compares plain logistic regression with peer loss (α = 1) as a plug-in around it. The regularisation is chosen
by the peer score on held-out *crowd* labels. True labels are used for testing, and for training in the last
rows, as an upper limit.

Run with ``PEERLOSS_DATA=folder python examples/crowd_labels_labelme.py``. The folder contains
``real_noise/labelme`` (Rodrigues and Pereira, Deep learning from crowds, with averaged VGG features).
"""

from __future__ import annotations

import pandas as pd
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from peerloss import PeerPlugInClassifier, find_label_issues, peer_scorer, score_annotators
from peerloss.crowd import aggregate_labels
from peerloss.datasets import RealNoise, load_real_noise
from peerloss.exceptions import InvalidInputError

SEEDS = range(200, 205)
STRENGTHS = {"logisticregression__C": [0.001, 0.01, 0.1]}


def compare(data: RealNoise, seed: int) -> pd.DataFrame:
    """Train on 800 of the labelled pictures, test on all test pictures."""
    gold, X = data.gold, pd.DataFrame(data.features)
    pictures = gold.index[data.split == "train"].to_series().sample(800, random_state=seed).sort_values()
    test = gold.index[data.split == "test"]
    reports = data.reports[data.reports["task"].isin(pictures)]
    majority = aggregate_labels(reports)["majority"].loc[pictures]
    pipeline = make_pipeline(StandardScaler(), LogisticRegression(max_iter=500))
    chosen = GridSearchCV(pipeline, STRENGTHS, scoring=peer_scorer, cv=3).fit(X.loc[pictures], majority)
    model = chosen.best_estimator_
    audit = find_label_issues(X.loc[pictures], reports, estimator=model, random_state=seed)
    rows = {}
    for source, labels in {
        "majority's label": majority,
        "find_label_issues": audit.relabel()[1].loc[pictures],
        "true label": gold[pictures],
    }.items():
        for way, classifier in {"plain": model, "peer": PeerPlugInClassifier(model, alpha=1.0)}.items():
            predicted = classifier.fit(X.loc[pictures], labels).predict(X.loc[test])
            rows[source, way] = {
                "labels right": (labels == gold[pictures]).mean(),
                "accuracy": (predicted == gold[test]).mean(),
            }
    return pd.DataFrame(rows).T.rename_axis(["trained on", "how"])


def show(column: pd.Series) -> str:
    """Return mean ± standard error."""
    values = column.to_numpy(dtype=float)
    return f"{values.mean():.3f} ± {values.std(ddof=1) / len(values) ** 0.5:.3f}"


def main() -> None:
    """Print mean ± standard error over the seeds, and a summary of the annotators."""
    try:
        data = load_real_noise("labelme")
    except InvalidInputError as error:
        raise SystemExit(f"{error}\nThen: PEERLOSS_DATA=folder python {__file__}") from error
    scores = pd.concat([compare(data, seed) for seed in SEEDS]).groupby(level=[0, 1], sort=False)
    print(scores.agg(show).to_string())
    workers = score_annotators(data.reports, random_state=SEEDS[0])
    print(
        f"{len(workers)} annotators, accuracy {workers['accuracy'].min():.2f} to "
        f"{workers['accuracy'].max():.2f} by Dawid–Skene; {workers['uninformative'].sum()} seem to guess."
    )


if __name__ == "__main__":
    main()
