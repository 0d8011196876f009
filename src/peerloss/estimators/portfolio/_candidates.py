"""The candidates that PeerClassifier compares: models of scikit-learn and their sizes by number of rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator

#: Smallest numbers of rows per leaf of the forests that compete. If a fortieth of the rows is more, leaves of
#: that size compete too, up to a limit: with 40 % wrong labels they can be the best.
LEAF_SIZES, ROWS_PER_LARGE_LEAF, MAX_LEAF_SIZE = (1, 3, 10, 30), 40, 200
#: (least number of rows, trees per forest), from few rows to many.
N_TREES = ((0, 200), (1000, 100), (2001, 60))
#: Trees of a forest that is cross-fitted, for each fold.
TREES_PER_FOLD = 40
#: With more rows than this, each tree of a forest is trained on a sample of this size.
MAX_TREE_ROWS = 50_000
#: Components of the kernel approximation: at least, per row, at most.
MIN_COMPONENTS, ROWS_PER_COMPONENT, MAX_COMPONENTS = 150, 20, 500
#: Candidate → the most rows that it is trained on in a fold. Its cost would otherwise dominate large tables.
MAX_TRAINING_ROWS = {"kernel logistic": 20_000}


def candidate_models(n_rows: int, n_features: int, *, seed: int) -> dict[str, BaseEstimator]:
    """Return the models by name, for standardised features; their capacity grows with the rows.

    The noisier the labels, the larger the best leaf, which averages over enough labels for their majority to
    be right. The noise is not known, so forests with several leaf sizes compete. Boosting has ``warm_start``:
    its number of rounds is chosen on held-out rows.
    """
    components = min(max(MIN_COMPONENTS, n_rows // ROWS_PER_COMPONENT), MAX_COMPONENTS, max(2, n_rows // 2))
    models: dict[str, BaseEstimator] = {
        "logistic C=.001": LogisticRegression(C=0.001, max_iter=500),
        "logistic C=.01": LogisticRegression(C=0.01, max_iter=500),
        "logistic C=.1": LogisticRegression(C=0.1, max_iter=500),
        "kernel logistic": make_pipeline(
            Nystroem(gamma=0.5 / n_features, n_components=components, random_state=seed),
            LogisticRegression(C=0.1, max_iter=500),
        ),
        "boosting": HistGradientBoostingClassifier(
            learning_rate=0.1,
            max_leaf_nodes=7 if n_rows < 1000 else 15 if n_rows < 10_000 else 31,
            min_samples_leaf=20 if n_rows >= 400 else max(5, n_rows // 20),
            l2_regularization=5.0,
            max_features=0.5,
            early_stopping=False,
            warm_start=True,
            random_state=seed,
        ),
    }
    return models | _forests(n_rows, seed)


def _forests(n_rows: int, seed: int) -> dict[str, BaseEstimator]:
    """Return random forests and extra trees; both draw bootstrap samples, for out-of-bag probabilities."""
    large = min(n_rows // ROWS_PER_LARGE_LEAF, MAX_LEAF_SIZE)
    leaves = [*LEAF_SIZES, large] if large > max(LEAF_SIZES) else [*LEAF_SIZES]
    options: dict[str, Any] = {
        "n_estimators": [trees for least, trees in N_TREES if n_rows >= least][-1],
        "bootstrap": True,
        "max_samples": MAX_TREE_ROWS if n_rows > MAX_TREE_ROWS else None,
        "random_state": seed,
    }
    kinds = {"forest": RandomForestClassifier, "extra trees": ExtraTreesClassifier}
    return {
        f"{name}, leaf {leaf}": kind(min_samples_leaf=leaf, **options)
        for name, kind in kinds.items()
        for leaf in leaves
    }
