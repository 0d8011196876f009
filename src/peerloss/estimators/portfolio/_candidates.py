"""The candidates that PeerClassifier compares."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator

#: Trees per forest.
N_TREES = 100
#: Architecture and training length of the networks.
HIDDEN_LAYER_SIZES, MAX_STEPS = (32, 32), 1000
#: With more rows than this, each tree of a forest is trained on a sample of this size.
MAX_TREE_ROWS = 50_000


def candidate_models(n_rows: int, n_features: int, *, seed: int) -> dict[str, BaseEstimator]:
    """Return the models by name, for standardised features.

    The sizes of leaves, the number of components and the bandwidth scale with the data: a leaf with one in
    forty rows averages over enough noisy labels for their majority to be right.
    """
    leaf = max(1, n_rows // 40)
    sample = MAX_TREE_ROWS if n_rows > MAX_TREE_ROWS else None
    trees: dict[str, Any] = {
        "n_estimators": N_TREES,
        "random_state": seed,
        "bootstrap": True,
        "max_samples": sample,
    }
    return {
        "logistic C=.001": LogisticRegression(C=0.001, max_iter=500),
        "logistic C=.01": LogisticRegression(C=0.01, max_iter=500),
        "logistic C=.1": LogisticRegression(C=0.1, max_iter=500),
        "kernel logistic": make_pipeline(
            Nystroem(gamma=0.5 / n_features, n_components=min(150, max(2, n_rows // 2)), random_state=seed),
            LogisticRegression(C=0.1, max_iter=500),
        ),
        "forest": RandomForestClassifier(min_samples_leaf=leaf, **trees),
        "extra trees": ExtraTreesClassifier(min_samples_leaf=max(1, n_rows // 80), **trees),
        "boosting": HistGradientBoostingClassifier(
            max_iter=40,
            learning_rate=0.1,
            max_leaf_nodes=7,
            min_samples_leaf=max(5, leaf),
            early_stopping=False,
            random_state=seed,
        ),
    }


def candidate_networks() -> dict[str, dict[str, Any]]:
    """Return the networks by name, as options of :class:`peerloss.training.Net`.

    The first has peer loss with a bounded base, which limits the influence of rows that it cannot explain.
    The second has plain cross entropy and strong weight decay, for smooth problems.
    """
    return {
        "network, sigmoid peer": {
            "base": "sigmoid",
            "alpha": 1.0,
            "learning_rate": 2e-3,
            "weight_decay": 0.1,
        },
        "network, cross entropy": {
            "base": "logistic",
            "alpha": 0.0,
            "learning_rate": 7e-4,
            "weight_decay": 1.0,
        },
    }
