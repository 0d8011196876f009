"""Noise that depends on the row, for experiments *outside* the assumptions of the theory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np
from scipy.optimize import brentq
from scipy.special import softmax

from peerloss._random import NOISE_STREAM, RandomState, as_generator
from peerloss._validation import (
    PROBABILITY_TOLERANCE,
    FloatArray,
    IntArray,
    as_float_array,
    as_labels,
    check_count,
    check_in_range,
    check_same_length,
)
from peerloss.exceptions import InvalidInputError
from peerloss.noise._model import draw_labels

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


@dataclass(frozen=True, eq=False)
class InstanceNoise:
    """Label noise with a separate distribution for every row.

    Parameters
    ----------
    probabilities
        ``probabilities[n, j] = P(noisy label of row n = j)``, shape (n, K).
    labels
        The clean class codes of the same rows, shape (n,).

    Examples
    --------
    >>> margins = np.array([-3.0, -0.1, 0.1, 3.0])
    >>> noise = InstanceNoise.from_margins([0, 0, 1, 1], margins, rate=0.2)
    >>> noise.flip_rates.round(3).tolist()
    [0.021, 0.379, 0.379, 0.021]
    """

    probabilities: FloatArray
    labels: IntArray

    def __post_init__(self) -> None:
        table = as_float_array(self.probabilities, "probabilities", ndim=2).copy()
        labels = as_labels(self.labels, "labels", n_classes=table.shape[1])
        check_same_length(probabilities=table, labels=labels)
        if (table < 0).any() or (np.abs(table.sum(axis=1) - 1.0) > PROBABILITY_TOLERANCE).any():
            raise InvalidInputError(
                "`probabilities` must be non-negative with rows that sum to 1; got minimum "
                f"{table.min():g} and row sums from {table.sum(axis=1).min():g} to "
                f"{table.sum(axis=1).max():g}. Divide each row by its total."
            )
        table.flags.writeable = labels.flags.writeable = False
        object.__setattr__(self, "probabilities", table)
        object.__setattr__(self, "labels", labels)

    @property
    def n_classes(self) -> int:
        """K, the number of classes."""
        return int(self.probabilities.shape[1])

    @property
    def flip_rates(self) -> FloatArray:
        """P(noisy ≠ clean) of each row."""
        kept: FloatArray = self.probabilities[np.arange(len(self.labels)), self.labels]
        return 1.0 - kept

    @classmethod
    def from_features(
        cls,
        X: ArrayLike,
        y: ArrayLike,
        *,
        rate: float,
        n_classes: int | None = None,
        spread: float = 0.1,
        random_state: RandomState = None,
    ) -> Self:
        """Return noise that mistakes similar rows of a class for the same other class.

        Each row has its own flip rate, drawn from a normal distribution around ``rate`` with standard
        deviation ``spread`` and clipped to [0, 1]. A random linear map of its features, one map per clean
        class, determines the class it flips to.

        Parameters
        ----------
        X, y
            Features, shape (n, d), and clean labels.
        rate
            Mean flip probability.
        n_classes
            K; by default the largest label plus one, at least two.
        spread
            Standard deviation of the flip rate over rows.
        random_state
            Seed of the maps and of the rates.
        """
        features = as_float_array(X, "X", ndim=2)
        labels = as_labels(y, "y")
        check_same_length(X=features, y=labels)
        k = _count_classes(labels, n_classes)
        mean = check_in_range(rate, "rate", 0.0, 1.0)
        width = check_in_range(spread, "spread", 0.0, 1.0)
        rng = as_generator(random_state, stream=f"{NOISE_STREAM}.features")
        scale = features.std(axis=0)
        standard = (features - features.mean(axis=0)) / np.where(scale > 0, scale, 1.0)
        maps = rng.normal(size=(k, features.shape[1], k)) / np.sqrt(features.shape[1])
        flips = np.clip(rng.normal(mean, width, size=len(labels)), 0.0, 1.0)
        logits = np.einsum("nd,ndk->nk", standard, maps[labels])
        return cls(_spread_over_others(labels, flips, logits), labels)

    @classmethod
    def from_margins(cls, y: ArrayLike, margins: ArrayLike, *, rate: float, temperature: float = 1.0) -> Self:
        """Return noise near the decision boundary: flips decrease as ``exp(−|margin| / temperature)``.

        Parameters
        ----------
        y
            Clean labels.
        margins
            Decision values. For two classes shape (n,), with the boundary at 0. For K classes scores of shape
            (n, K): the margin is the distance to the best other class, to which labels flip.
        rate
            Mean flip probability over the rows; the returned noise has exactly this mean.
        temperature
            Width of the region of confusion, in units of the margins.
        """
        labels = as_labels(y, "y")
        mean = check_in_range(rate, "rate", 0.0, 0.5)
        width = check_in_range(temperature, "temperature", 0.0, np.inf, low_open=True)
        if np.ndim(margins) == 1:
            half = as_float_array(margins, "margins", ndim=1) / 2.0
            scores = np.column_stack([-half, half])
        else:
            scores = as_float_array(margins, "margins", ndim=2)
        if scores.shape[1] < 2:
            raise InvalidInputError(
                f"`margins` must have one column per class, at least 2; got shape {scores.shape}. "
                "For two classes pass the decision values with `.ravel()`."
            )
        check_same_length(y=labels, margins=scores)
        k = _count_classes(labels, scores.shape[1])
        others = scores.copy()
        others[np.arange(len(labels)), labels] = -np.inf
        target = others.argmax(axis=1)
        distance = np.abs(scores[np.arange(len(labels)), labels] - others.max(axis=1))
        flips = _rates_with_mean(np.exp(-distance / width), mean)
        table = np.eye(k)[labels] * (1.0 - flips)[:, None]
        table[np.arange(len(labels)), target] += flips
        return cls(table, labels)

    def label_probabilities(self, y: ArrayLike) -> FloatArray:
        """Return P(noisy = j) of each row; ``y`` must be the labels this noise was created for."""
        if not np.array_equal(as_labels(y, "y", n_classes=self.n_classes), self.labels):
            raise InvalidInputError(
                "`y` must be the labels this InstanceNoise was built for, in the same order; it differs. "
                "Build the noise from these labels."
            )
        return self.probabilities

    def apply(self, y: ArrayLike, *, random_state: RandomState = None, exact: bool = False) -> IntArray:
        """Return a noisy copy of the labels ``y``; ``exact=True`` is not available for this noise."""
        if exact:
            raise InvalidInputError(
                "`exact=True` fixes counts per class and exists for class-conditional noise only; "
                "got InstanceNoise. Leave `exact` out."
            )
        return draw_labels(self.label_probabilities(y), as_generator(random_state, stream=NOISE_STREAM))


def _count_classes(labels: IntArray, n_classes: int | None) -> int:
    if n_classes is None:
        return max(2, int(labels.max()) + 1)
    k = check_count(n_classes, "n_classes", minimum=2)
    as_labels(labels, "y", n_classes=k)
    return k


def _spread_over_others(labels: IntArray, flips: FloatArray, logits: FloatArray) -> FloatArray:
    """Distribute each row's flip probability over the other classes by a softmax."""
    own = np.arange(len(labels)), labels
    masked = logits.copy()
    masked[own] = -np.inf
    table: FloatArray = softmax(masked, axis=1) * flips[:, None]
    table[own] = 1.0 - flips
    return table


def _rates_with_mean(shape: FloatArray, mean: float) -> FloatArray:
    """Scale ``shape`` so that its mean is ``mean`` after capping at ½, the rate on the boundary."""
    if mean == 0.0:
        return np.zeros_like(shape)
    shape = np.maximum(shape, 1e-300)

    def gap(log_scale: float) -> float:
        return float(np.minimum(0.5, np.exp(log_scale) * shape).mean()) - mean

    high = float(-np.log(shape.min()))
    scale = brentq(gap, -800.0, high, xtol=1e-14) if gap(high) > 0 else high
    rates: FloatArray = np.minimum(0.5, np.exp(scale) * shape)
    return rates
