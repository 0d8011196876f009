"""The candidates that PeerClassifier compares: models of scikit-learn, and networks, trained in one batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import softmax
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from peerloss.training import Net, TrainedNets, train_nets

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator

    from peerloss._classifier import FitInput
    from peerloss._validation import FloatArray
    from peerloss.estimators.folds import Folds

#: Trees per forest.
N_TREES = 100
#: Architecture and training length of the networks.
HIDDEN_LAYER_SIZES, MAX_STEPS = (32, 32), 1000
#: With more rows than this, each tree of a forest is trained on a sample of this size.
MAX_TREE_ROWS = 50_000
#: With at least this many features, one H200 trains the networks of all folds as fast as 16 CPU cores.
GPU_FEATURES = 2048


def candidate_models(n_rows: int, n_features: int, *, seed: int) -> dict[str, BaseEstimator]:
    """Return the models by name, for standardised features.

    The sizes of leaves, the number of components and the bandwidth scale with the data: a leaf with one in
    forty rows averages over enough noisy labels for their majority to be right.
    """
    leaf = max(1, n_rows // 40)
    sample = MAX_TREE_ROWS if n_rows > MAX_TREE_ROWS else None
    trees: dict[str, Any] = {"random_state": seed, "bootstrap": True, "max_samples": sample}
    return {
        "logistic C=.001": LogisticRegression(C=0.001, max_iter=500),
        "logistic C=.01": LogisticRegression(C=0.01, max_iter=500),
        "logistic C=.1": LogisticRegression(C=0.1, max_iter=500),
        "kernel logistic": make_pipeline(
            Nystroem(gamma=0.5 / n_features, n_components=min(150, max(2, n_rows // 2)), random_state=seed),
            LogisticRegression(C=0.1, max_iter=500),
        ),
        "forest": RandomForestClassifier(N_TREES, min_samples_leaf=leaf, **trees),
        "extra trees": ExtraTreesClassifier(N_TREES, min_samples_leaf=max(1, n_rows // 80), **trees),
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
    sigmoid = {"base": "sigmoid", "alpha": 1.0, "learning_rate": 2e-3, "weight_decay": 0.1}
    logistic = {"base": "logistic", "alpha": 0.0, "learning_rate": 7e-4, "weight_decay": 1.0}
    return {"network, sigmoid peer": sigmoid, "network, cross entropy": logistic}


@dataclass(frozen=True)
class FoldNet:
    """One trained network with the interface of a classifier."""

    trained: TrainedNets
    index: int

    def predict_proba(self, X: FloatArray) -> FloatArray:
        """Return probabilities, shape (n, K)."""
        logits = np.asarray(self.trained.logits(X, nets=[self.index])[0], dtype=np.float64)
        return np.asarray(softmax(logits, axis=1), dtype=np.float64)


def fit_networks(
    data: FitInput, folds: Folds, *, seed: int, device: str
) -> dict[str, list[tuple[FoldNet, FloatArray]]]:
    """Train each network on each fold; return models and held-out probabilities by name.

    The list of a network that diverges on any fold is empty.
    """
    networks = candidate_networks()
    nets = [
        Net(
            data.codes[train], rows=train, weight=data.weight[train], random_state=seed % 2**31 + i, **options
        )
        for options in networks.values()
        for i, (train, _) in enumerate(folds)
    ]
    trained = train_nets(
        data.X,
        nets,
        n_classes=len(data.classes),
        hidden_layer_sizes=HIDDEN_LAYER_SIZES,
        max_steps=MAX_STEPS,
        device=device,
    )
    fitted: dict[str, list[tuple[FoldNet, FloatArray]]] = {}
    for i, name in enumerate(networks):
        places = range(i * len(folds), (i + 1) * len(folds))
        models = [] if trained.diverged[list(places)].any() else [FoldNet(trained, place) for place in places]
        fitted[name] = [
            (model, model.predict_proba(data.X[test]))
            for model, (_, test) in zip(models, folds, strict=False)
        ]
    return fitted
