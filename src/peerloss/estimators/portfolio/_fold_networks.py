"""The networks of the portfolio; the networks of all folds train in one batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import softmax

from peerloss.estimators.portfolio._candidates import HIDDEN_LAYER_SIZES, MAX_STEPS, candidate_networks
from peerloss.training import Net, TrainedNets, train_nets

if TYPE_CHECKING:
    from peerloss._classifier import FitInput
    from peerloss._validation import FloatArray
    from peerloss.estimators.folds import Folds

#: With at least this many features, one H200 trains the networks of all folds as fast as 16 CPU cores.
GPU_FEATURES = 2048


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
    nets = [
        Net(
            data.codes[train], rows=train, weight=data.weight[train], random_state=seed % 2**31 + i, **options
        )
        for options in candidate_networks().values()
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
    for i, name in enumerate(candidate_networks()):
        places = range(i * len(folds), (i + 1) * len(folds))
        if trained.diverged[list(places)].any():
            fitted[name] = []
            continue
        models = [FoldNet(trained, place) for place in places]
        fitted[name] = [
            (model, model.predict_proba(data.X[test])) for model, (_, test) in zip(models, folds, strict=True)
        ]
    return fitted
