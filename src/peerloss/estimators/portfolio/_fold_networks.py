"""The networks of the portfolio: one per fold, all trained in one batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import softmax

from peerloss.training import Net, TrainedNets, train_nets

if TYPE_CHECKING:
    from peerloss._classifier import FitInput
    from peerloss._validation import FloatArray
    from peerloss.estimators.folds import Folds

#: With at least this many features, one H200 trains the networks of all folds as fast as 16 CPU cores.
GPU_FEATURES = 2048
#: Width of the two hidden layers and training steps of the small networks, which are always trained.
SMALL_NETWORK = (32, 1000)
#: (least number of rows, width, training steps) of the wide networks, from few rows to many.
WIDE_NETWORKS = ((2001, 64, 2000), (5000, 64, 3000), (20_000, 128, 4000))


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
