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
#: With at least this many features, one H200 trains the networks of all folds as fast as 16 CPU cores.
GPU_FEATURES = 2048
#: Width of the two hidden layers and training steps of the small networks, which are always trained.
SMALL_NETWORK = (32, 1000)
#: (least number of rows, width, training steps) of the wide networks, from few rows to many.
WIDE_NETWORKS = ((2001, 64, 2000), (5000, 64, 3000), (20_000, 128, 4000))


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

    With thousands of rows, wide networks are trained too. Small ones remain the best for smooth problems with
    many wrong labels. The list of a network that diverges on any fold is empty.
    """
    fitted = _fit_size(data, folds, SMALL_NETWORK, seed=seed, device=device)
    wide = [size for least, *size in WIDE_NETWORKS if len(data.codes) >= least]
    if wide:
        more = _fit_size(data, folds, (wide[-1][0], wide[-1][1]), seed=seed, device=device)
        fitted |= {f"wide {name}": parts for name, parts in more.items()}
    return fitted


def _fit_size(
    data: FitInput, folds: Folds, size: tuple[int, int], *, seed: int, device: str
) -> dict[str, list[tuple[FoldNet, FloatArray]]]:
    networks = candidate_networks()
    nets = [
        Net(
            data.codes[train], rows=train, weight=data.weight[train], random_state=seed % 2**31 + i, **options
        )
        for options in networks.values()
        for i, (train, _) in enumerate(folds)
    ]
    width, steps = size
    trained = train_nets(
        data.X,
        nets,
        n_classes=len(data.classes),
        hidden_layer_sizes=(width, width),
        max_steps=steps,
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
