"""Data and a fast classifier for the tests of RobustMLPClassifier."""

import numpy as np

from peerloss import RobustMLPClassifier, flip_labels


def data(n=300, k=2, seed=0, noise=None):
    """Return features of different scales, clean labels, and noisy labels if ``noise`` is given."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4)) * [1.0, 10.0, 0.1, 1.0] + [0.0, 50.0, 0.0, 0.0]
    score = X[:, 0] + X[:, 3]
    y = np.digitize(score, [0.0] if k == 2 else [-0.6, 0.6])
    return X, y, y if noise is None else flip_labels(y, noise, random_state=seed)


def fast(*args, **kwargs):
    """Return a small network with a short training."""
    settings = {"max_steps": 150, "learning_rate": 0.01, "hidden_layer_sizes": (8, 8), "random_state": 0}
    return RobustMLPClassifier(*args, **{**settings, **kwargs})
