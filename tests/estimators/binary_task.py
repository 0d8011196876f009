"""Data for the tests of PeerClassifier."""

import numpy as np

from peerloss import NoiseModel, flip_labels


def task(n=400, e_neg=0.1, e_pos=0.4, seed=0, positive=0.5):
    """Return features, clean labels and noisy labels of two classes."""
    rng = np.random.default_rng(seed)
    y = (rng.random(n) < positive).astype(int)
    X = rng.normal(size=(n, 4)) + 1.2 * (2 * y - 1)[:, None] * np.array([1.0, 1.0, 0.0, 0.0])
    return (
        X,
        y,
        flip_labels(y, NoiseModel.binary(e_neg, e_pos), random_state=np.random.default_rng(seed + 1000)),
    )
