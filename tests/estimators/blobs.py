"""Data for the tests of the plug-in."""

import numpy as np


def blobs(n=600, n_classes=2, seed=0, prior=None, spread=1.5):
    """Return normal features around one centre per class, and the classes."""
    rng = np.random.default_rng(seed)
    y = rng.choice(n_classes, size=n, p=prior)
    centres = rng.normal(size=(n_classes, 4)) * spread
    return centres[y] + rng.normal(size=(n, 4)), y
