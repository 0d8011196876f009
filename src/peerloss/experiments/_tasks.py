"""What every method is given: noisy training and validation rows, and a clean test to be opened once."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from sklearn.model_selection import train_test_split

from peerloss.datasets import load_dataset, split_and_flip

if TYPE_CHECKING:
    from peerloss._validation import FloatArray, IntArray
    from peerloss.datasets import Dataset
    from peerloss.noise import NoiseModel

#: Names of the two settings of the paper, and whether the clean classes are made equally large.
PRIORS = {"equalized": True, "original": False}


@dataclass(frozen=True, eq=False)
class Task:
    """One data set with one draw of the split and of the noise."""

    X_train: FloatArray
    y_train: IntArray
    """Noisy."""
    X_validation: FloatArray
    y_validation: IntArray
    """Noisy."""
    X_test: FloatArray
    y_test: IntArray
    """Clean."""
    noise: NoiseModel
    """The true rates: for methods that, as in the paper, are told them."""
    prior: str
    seed: int

    def digest(self) -> str:
        """Return a hash of rows and labels (features to six decimals, so that it holds across machines)."""
        sha = hashlib.sha256()
        for X in (self.X_train, self.X_validation, self.X_test):
            sha.update(np.ascontiguousarray(X.round(6) + 0.0).tobytes())
        for y in (self.y_train, self.y_validation, self.y_test):
            sha.update(y.astype(np.int64).tobytes())
        return sha.hexdigest()[:16]


def make_task(
    data_set: str, noise: NoiseModel, *, prior: str, seed: int, test_size: float, validation_size: float
) -> Task:
    """Split, flip exact numbers of labels, and cut the validation part from the noisy rows.

    Parameters
    ----------
    data_set, noise, prior, seed
        Which draw; ``prior`` is a key of ``PRIORS``.
    test_size, validation_size
        Shares of *all* rows, as in the authors' code.
    """
    split = split_and_flip(_dataset(data_set), noise, equalize=PRIORS[prior], test_size=test_size, seed=seed)
    train, validation = train_test_split(
        np.arange(len(split.y_train)), test_size=validation_size / (1.0 - test_size), random_state=seed
    )
    return Task(
        X_train=split.X_train[train],
        y_train=split.y_train[train],
        X_validation=split.X_train[validation],
        y_validation=split.y_train[validation],
        X_test=split.X_test,
        y_test=split.y_test,
        noise=noise,
        prior=prior,
        seed=seed,
    )


@lru_cache(maxsize=4)
def _dataset(name: str) -> Dataset:
    """Each process reads a data set once for the many tasks made of it."""
    return load_dataset(name)
