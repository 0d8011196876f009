"""Peer loss as the criterion of skorch: α from a grid search on *noisy* labels, or from a schedule.

A tenth of the labels of class 0 and two fifths of class 1 are flipped. The search compares values of α by the
peer score on held-out noisy labels. The final accuracy is measured on clean labels.

Run with ``python examples/skorch_classifier.py`` (needs ``pip install ".[skorch]"``), in seconds.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.model_selection import GridSearchCV
from skorch import NeuralNetClassifier
from torch import nn

from peerloss import NoiseModel, PeerLoss, flip_labels, peer_scorer
from peerloss.integrations.skorch import AlphaCallback, probabilities


def make_data(rows: int, seed: int) -> tuple[Any, Any, Any]:
    """Return features, noisy labels and clean labels of two overlapping classes."""
    random = np.random.default_rng(seed)
    clean = random.integers(2, size=rows)
    X = random.normal(size=(rows, 5)) + 0.8 * (2 * clean[:, None] - 1)
    noisy = flip_labels(clean, NoiseModel.binary(e_neg=0.1, e_pos=0.4), random_state=seed)
    return X.astype(np.float32), noisy, clean


def make_net(**options: Any) -> NeuralNetClassifier:
    """Return a small network with peer loss."""
    torch.manual_seed(0)
    return NeuralNetClassifier(
        nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 2)),
        criterion=PeerLoss,
        predict_nonlinearity=probabilities,  # skorch infers it for losses of torch only
        optimizer=torch.optim.Adam,
        lr=0.01,
        max_epochs=8,
        batch_size=100,
        train_split=None,
        verbose=0,
        **options,
    )


def main() -> None:
    """Choose α, then train with a schedule; print accuracies."""
    X, noisy, _ = make_data(2000, seed=1)
    X_test, _, clean = make_data(10_000, seed=2)
    search = GridSearchCV(make_net(), {"criterion__alpha": [0.0, 0.5, 0.9]}, scoring=peer_scorer, cv=2)
    search.fit(X, noisy)
    print(f"α chosen on noisy labels: {search.best_params_['criterion__alpha']}")
    for name, net in {
        "cross entropy": make_net(criterion__alpha=0.0),
        "chosen α": search.best_estimator_,
        "α rising to 1": make_net(callbacks=[AlphaCallback([(0, 0.0), (2, 0.0), (5, 1.0)])]),
    }.items():
        if name != "chosen α":
            net.fit(X, noisy)
        print(f"{name}: clean accuracy {(net.predict(X_test) == clean).mean():.3f}")


if __name__ == "__main__":
    main()
