"""The data of a run: noisy training and validation rows, and clean test rows that are used once."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from sklearn.model_selection import train_test_split

from peerloss.datasets import load_dataset, split_and_flip
from peerloss.noise import NoiseModel

if TYPE_CHECKING:
    from peerloss._validation import FloatArray, IntArray
    from peerloss.datasets import Dataset, Split

#: The two priors of the paper, and whether the clean classes are made equally large.
PRIORS = {"equalized": True, "original": False}


@dataclass(frozen=True, eq=False)
class RunData:
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
    """The true rates, for methods that know them, as in the paper."""
    prior: str
    seed: int
    clean: tuple[IntArray, IntArray] | None = None
    """Clean labels of training and validation rows: for the plot of the invariance, never for a method."""

    def digest(self) -> str:
        """Return a hash of rows and labels (features to six decimals, to be the same on all machines)."""
        sha = hashlib.sha256()
        for X in (self.X_train, self.X_validation, self.X_test):
            sha.update(np.ascontiguousarray(X.round(6) + 0.0).tobytes())
        for y in (self.y_train, self.y_validation, self.y_test):
            sha.update(y.astype(np.int64).tobytes())
        return sha.hexdigest()[:16]


def make_data(
    data_set: str,
    noise: NoiseModel,
    *,
    prior: str,
    seed: int,
    test_size: float,
    validation_size: float,
    keep_clean: bool = False,
) -> RunData:
    """Split, flip exact numbers of labels, and take the validation part from the noisy rows.

    Parameters
    ----------
    data_set, noise, prior, seed
        They determine the draw; ``prior`` is a key of ``PRIORS``.
    test_size, validation_size
        Shares of *all* rows, as in the authors' code.
    keep_clean
        Whether to keep the clean labels of the noisy rows.
    """

    def split_with(rates: NoiseModel) -> Split:
        return split_and_flip(
            _dataset(data_set), rates, equalize=PRIORS[prior], test_size=test_size, random_state=seed
        )

    split = split_with(noise)
    train, validation = train_test_split(
        np.arange(len(split.y_train)), test_size=validation_size / (1.0 - test_size), random_state=seed
    )
    clean = None
    if keep_clean:  # the split depends on the seed, not on the noise
        labels = split_with(NoiseModel.binary(0.0, 0.0)).y_train
        clean = labels[train], labels[validation]
    return RunData(
        X_train=split.X_train[train],
        y_train=split.y_train[train],
        X_validation=split.X_train[validation],
        y_validation=split.y_train[validation],
        X_test=split.X_test,
        y_test=split.y_test,
        noise=noise,
        prior=prior,
        seed=seed,
        clean=clean,
    )


@lru_cache(maxsize=4)
def _dataset(name: str) -> Dataset:
    """Load a data set once per process; many runs use it."""
    return load_dataset(name)
