"""Add noise to labels, also noise that depends on the row, *outside* the assumptions of the theory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np
from scipy.optimize import brentq
from scipy.special import softmax

from peerloss._probabilities import take
from peerloss._random import NOISE_STREAM, RandomState, as_generator
from peerloss._validation import (
    PROBABILITY_TOLERANCE,
    FloatArray,
    IntArray,
    as_float_array,
    as_labels,
    check_count,
    check_flag,
    check_in_range,
    check_same_length,
)
from peerloss.exceptions import InvalidInputError
from peerloss.noise._model import NoiseModel, as_noise_model, draw_labels

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
        sums = table.sum(axis=1)
        if (table < 0).any() or (np.abs(sums - 1.0) > PROBABILITY_TOLERANCE).any():
            raise InvalidInputError(
                f"`probabilities` must be non-negative with rows that sum to 1; got minimum {table.min():g} "
                f"and row sums from {sums.min():g} to {sums.max():g}. Divide each row by its total."
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
        return 1.0 - take(self.probabilities, self.labels)

    @classmethod
    def from_features(
        cls,
        X: ArrayLike,
        y: ArrayLike,
        *,
        rate: float,
        n_classes: int | None = None,
        spread: float = 0.1,
        standardise: bool = True,
        random_state: RandomState = None,
    ) -> Self:
        """Return noise that mistakes similar rows of a class for the same other class.

        Each row has its own flip rate, drawn from a normal distribution around ``rate`` with standard
        deviation ``spread`` and clipped to [0, 1]. A random linear map of its features, one map per clean
        class, determines the class it flips to: the softmax of its values for the other classes.

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
        standardise
            Whether the values of the maps have a variance of about 1: features are standardised and the maps
            divided by √d. A row can then flip to several classes. ``False`` uses features and maps as they
            are, as Xia et al. do with pixels: the softmax of such large values is almost always one class.
        random_state
            Seed of the maps and of the rates.

        References
        ----------
        Xia, Liu, Han, Wang, Gong, Liu, Niu, Tao and Sugiyama, *Part-dependent Label Noise: Towards
        Instance-dependent Label Noise*, NeurIPS 2020. They draw rates from a truncated normal distribution
        instead of a clipped one.
        """
        features = as_float_array(X, "X", ndim=2)
        labels = as_labels(y, "y")
        check_same_length(X=features, y=labels)
        k = max(2, int(labels.max()) + 1)
        if n_classes is not None:
            k = check_count(n_classes, "n_classes", minimum=2)
            as_labels(labels, "y", n_classes=k)
        mean = check_in_range(rate, "rate", 0.0, 1.0)
        width = check_in_range(spread, "spread", 0.0, 1.0)
        rng = as_generator(random_state, stream=f"{NOISE_STREAM}.features")
        maps = rng.normal(size=(k, features.shape[1], k))
        flips = np.clip(rng.normal(mean, width, size=len(labels)), 0.0, 1.0)
        if check_flag(standardise, "standardise"):
            scale = features.std(axis=0)
            features = (features - features.mean(axis=0)) / np.where(scale > 0, scale, 1.0)
            maps /= np.sqrt(features.shape[1])
        logits = np.empty((len(labels), k))
        for c in range(k):  # by class: one map per row would not fit into memory
            rows = labels == c
            logits[rows] = features[rows] @ maps[c]
        own = np.arange(len(labels)), labels
        logits[own] = -np.inf
        table = softmax(logits, axis=1) * flips[:, None]
        table[own] = 1.0 - flips
        return cls(table, labels)

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
        as_labels(labels, "y", n_classes=scores.shape[1])
        rows, others = np.arange(len(labels)), scores.copy()
        others[rows, labels] = -np.inf
        distance = np.abs(scores[rows, labels] - others.max(axis=1))
        flips = _rates_with_mean(np.exp(-distance / width), mean)
        table = np.eye(scores.shape[1])[labels] * (1.0 - flips)[:, None]
        table[rows, others.argmax(axis=1)] += flips
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


def flip_labels(
    y: ArrayLike,
    noise: NoiseModel | InstanceNoise | ArrayLike,
    *,
    exact: bool = False,
    random_state: RandomState = None,
) -> IntArray:
    """Return a noisy copy of the labels ``y``; the caller's array is not modified.

    This simulates noise and makes no promise of privacy, because the seed reveals the labels. To publish
    labels use :func:`peerloss.noise.release_labels`.

    Parameters
    ----------
    y
        Clean class codes 0..K-1, shape (n,).
    noise
        A :class:`NoiseModel`, a transition matrix, or an :class:`InstanceNoise` created for these rows.
    exact
        ``False`` flips each row independently. ``True`` flips fixed numbers, ``floor(n_i · T[i, j])`` rows
        of class i to class j, as the paper's code does: the noise rates are then the same in each draw.
    random_state
        Seed, generator or ``None``. A seed has its own random stream here, so labels drawn from
        ``default_rng(seed)`` can be flipped with the same seed. A generator is used as it is.

    Returns
    -------
    Integer labels, shape (n,).

    Examples
    --------
    >>> noisy = flip_labels([0] * 10 + [1] * 10, NoiseModel.binary(0.2, 0.4), exact=True, random_state=0)
    >>> int(noisy[:10].sum()), int(noisy[10:].sum())
    (2, 6)
    """
    model = noise if isinstance(noise, InstanceNoise) else as_noise_model(noise)
    return model.apply(y, random_state=random_state, exact=exact)


def _rates_with_mean(shape: FloatArray, mean: float) -> FloatArray:
    """Scale ``shape`` so that its mean is ``mean`` after capping at ½, the rate on the boundary."""
    if mean == 0.0:
        return np.zeros_like(shape)
    shape = np.maximum(shape, 1e-300)

    def gap(log_scale: float) -> float:
        return float(np.minimum(0.5, np.exp(log_scale) * shape).mean()) - mean

    high = float(-np.log(shape.min()))
    scale = brentq(gap, -800.0, high, xtol=1e-14) if gap(high) > 0 else high
    return np.asarray(np.minimum(0.5, np.exp(scale) * shape))
