"""Class-conditional label noise: the transition matrix T and its properties."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from peerloss._random import NOISE_STREAM, RandomState, as_generator
from peerloss._validation import (
    PROBABILITY_TOLERANCE,
    FloatArray,
    IntArray,
    as_float_array,
    as_labels,
    as_prior,
    check_count,
    check_finite,
    check_in_range,
)
from peerloss.exceptions import InvalidInputError, NotIdentifiableError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

#: A T with a larger condition number is treated as singular: inverting it would amplify the sampling noise of
#: any estimate by more than this factor.
MAX_CONDITION = 1e8
#: Largest ε of a private release. A label then flips with a probability of about e⁻³² = 10⁻¹⁴.
MAX_EPSILON = 32.0


class NoiseModel:
    """Class-conditional noise ``T[i, j] = P(noisy = j | clean = i)``.

    The model is immutable; two models are equal if their matrices are.

    Parameters
    ----------
    transition
        A square matrix whose rows are probabilities.

    Examples
    --------
    >>> noise = NoiseModel.binary(e_neg=0.1, e_pos=0.3)
    >>> noise.transition.tolist()
    [[0.9, 0.1], [0.3, 0.7]]
    >>> noise.sum_of_rates
    0.4
    >>> int(noise.apply([0, 0, 1, 1, 1, 1], exact=True, random_state=0).sum())  # one of the four flips
    3
    """

    __slots__ = ("transition",)

    transition: FloatArray
    """The matrix T, read-only, shape (K, K)."""

    def __init__(self, transition: ArrayLike) -> None:
        matrix = _check_transition(transition)
        matrix.flags.writeable = False
        object.__setattr__(self, "transition", matrix)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"NoiseModel is immutable; build a new one instead of setting {name!r}.")

    def __reduce__(self) -> tuple[type[Self], tuple[FloatArray]]:
        return type(self), (np.array(self.transition),)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NoiseModel) and np.array_equal(self.transition, other.transition)

    def __hash__(self) -> int:
        return hash(self.transition.tobytes())

    def __repr__(self) -> str:
        if self.n_classes == 2:
            return f"NoiseModel.binary(e_neg={self.e_neg:g}, e_pos={self.e_pos:g})"
        return f"NoiseModel({self.n_classes} classes, flip rates {np.round(self.flip_rates, 4).tolist()})"

    def _repr_html_(self) -> str:
        """Return the view in a notebook."""
        from peerloss.noise.noise_table import noise_card  # noqa: PLC0415 - only notebooks need it

        return noise_card(self.transition)

    @classmethod
    def binary(cls, e_neg: float, e_pos: float) -> Self:
        """Two classes: ``e_neg = P(1 | clean 0)`` (the paper's e₋₁), ``e_pos = P(0 | clean 1)`` (e₊₁)."""
        neg = check_in_range(e_neg, "e_neg", 0.0, 1.0)
        pos = check_in_range(e_pos, "e_pos", 0.0, 1.0)
        return cls([[1.0 - neg, neg], [pos, 1.0 - pos]])

    @classmethod
    def uniform(cls, n_classes: int, rate: float) -> Self:
        """Flip with total probability ``rate``, equally often to each of the other ``n_classes - 1``."""
        k = check_count(n_classes, "n_classes", minimum=2)
        total = check_in_range(rate, "rate", 0.0, 1.0)
        matrix = np.full((k, k), total / (k - 1))
        np.fill_diagonal(matrix, 1.0 - total)
        return cls(matrix)

    @classmethod
    def pair_flip(cls, n_classes: int, rate: float) -> Self:
        """Flip class ``i`` of ``n_classes`` to ``i + 1`` (the last one to 0) with probability ``rate``."""
        k = check_count(n_classes, "n_classes", minimum=2)
        flip = check_in_range(rate, "rate", 0.0, 1.0)
        return cls((1.0 - flip) * np.eye(k) + flip * np.roll(np.eye(k), 1, axis=1))

    @classmethod
    def randomized_response(cls, n_classes: int, epsilon: float) -> Self:
        """Return the noise of labels released under local differential privacy ``epsilon``.

        ``T[i, i] = e^ε / (e^ε + K − 1)`` and every other entry is ``1 / (e^ε + K − 1)``, so that the
        probability of a released label changes at most by the factor e^ε if the true label changes.

        Of all T with this ε it keeps the most labels of equally frequent classes: in column j every entry is
        at least e^−ε T[j, j], and the entries of all columns add up to K, so
        ``mean(T[j, j]) ≤ 1 / (1 + (K − 1) e^−ε)``.

        Parameters
        ----------
        n_classes
            K, at least 2.
        epsilon
            ε, above 0 and at most 32.

        Examples
        --------
        >>> noise = NoiseModel.randomized_response(2, epsilon=1.0)
        >>> noise.transition.round(3).tolist()
        [[0.731, 0.269], [0.269, 0.731]]
        >>> round(noise.epsilon, 12)
        1.0
        """
        k = check_count(n_classes, "n_classes", minimum=2)
        weight = math.exp(-check_epsilon(epsilon))  # e^ε itself would make the small entries less accurate
        matrix = np.full((k, k), weight)
        np.fill_diagonal(matrix, 1.0)
        return cls(matrix / (1.0 + (k - 1) * weight))

    @property
    def n_classes(self) -> int:
        """K, the number of classes."""
        return int(self.transition.shape[0])

    @property
    def e_neg(self) -> float:
        """P(noisy = 1 | clean = 0); two classes only."""
        return float(self._binary()[0, 1])

    @property
    def e_pos(self) -> float:
        """P(noisy = 0 | clean = 1); two classes only."""
        return float(self._binary()[1, 0])

    @property
    def flip_rates(self) -> FloatArray:
        """P(noisy ≠ clean | clean = i) for each class i."""
        return 1.0 - np.diag(self.transition)

    @property
    def column_rates(self) -> FloatArray | None:
        """The e_j of the paper's multi-class condition, or ``None`` if no such vector exists.

        The condition: ``T[i, j] = e_j`` for every ``i ≠ j``, that is, ``T = (1 − Σe)·I + 1·eᵀ``. Every
        binary and every uniform noise satisfies it; pair flip with more than two classes does not.
        """
        k = self.n_classes
        columns = self.transition.T[~np.eye(k, dtype=bool)].reshape(k, k - 1)
        rates: FloatArray = columns.mean(axis=1)
        return None if np.ptp(columns, axis=1).max() > 1e-12 else rates

    @property
    def sum_of_rates(self) -> float:
        """Σ_j e_j, which must be below 1 for noisy labels to be informative.

        Raises
        ------
        NotIdentifiableError
            If ``T[i, j]`` is not the same for all ``i ≠ j``, so that no e_j exist.
        """
        rates = self.column_rates
        if rates is None:
            raise NotIdentifiableError(
                "the sum of rates exists only if T[i, j] = e_j for every i ≠ j (as for binary or uniform "
                f"noise); got {self!r}. Look at `flip_rates`, or use backward/forward correction with T."
            )
        return float(np.round(rates.sum(), 15))

    @property
    def is_informative(self) -> bool:
        """Whether Σe < 1 or, if no e_j exist, T[j, j] is the largest entry of every column j."""
        if self.column_rates is not None:
            return self.sum_of_rates < 1.0
        kept = np.diag(self.transition)
        return bool((kept > (self.transition - np.diag(kept)).max(axis=0)).all())

    @property
    def epsilon(self) -> float:
        """ε of the local differential privacy of a label that is released through this noise.

        The largest ``log(T[i, j] / T[i', j])`` over all released labels j and true labels i and i'. It is
        infinite if a released label excludes a true one, and 0 if the released label says nothing.
        """
        used = self.transition[:, self.transition.any(axis=0)]  # labels that are never released tell nothing
        with np.errstate(divide="ignore"):
            return float(np.ptp(np.log(used), axis=0).max())

    def noisy_prior(self, clean_prior: ArrayLike) -> FloatArray:
        """Return π̃ = π T, the distribution of the noisy labels; ``clean_prior`` is P(Y = 1) or (K,)."""
        return np.asarray(as_prior(clean_prior, "clean_prior", n_classes=self.n_classes) @ self.transition)

    def clean_prior(self, noisy_prior: ArrayLike) -> FloatArray:
        """Return π = π̃ T⁻¹, the distribution of the clean labels, clipped to probabilities.

        Parameters
        ----------
        noisy_prior
            P(Ỹ = 1), or the frequencies of K noisy labels.

        Raises
        ------
        NotIdentifiableError
            If T cannot be inverted.
        """
        clean = as_prior(noisy_prior, "noisy_prior", n_classes=self.n_classes) @ self.inverse()
        clipped = np.clip(clean, 0.0, None)
        return np.asarray(clipped / clipped.sum())

    def inverse(self) -> FloatArray:
        """Return T⁻¹.

        Raises
        ------
        NotIdentifiableError
            If T is (nearly) singular: clean labels cannot be recovered from such noise.
        """
        condition = float(np.linalg.cond(self.transition))
        if not condition < MAX_CONDITION:
            raise NotIdentifiableError(
                f"`transition` cannot be inverted: its condition number is {condition:.3g} (at most "
                f"{MAX_CONDITION:.0e} is allowed), so some clean classes give the same noisy labels. "
                "For two classes this means e_neg + e_pos = 1. Lower the rates, merge the classes that are "
                "confused, or use a loss that needs no inverse (PeerLoss, ForwardLoss)."
            )
        return np.asarray(np.linalg.inv(self.transition), dtype=np.float64)

    def compose(self, then: NoiseModel) -> NoiseModel:
        """Return the noise of this model followed by that of ``then``; also written ``self @ then``."""
        if self.n_classes != then.n_classes:
            raise InvalidInputError(
                f"`then` must have {self.n_classes} classes as this model does; got {then.n_classes}."
            )
        return NoiseModel(self.transition @ then.transition)

    __matmul__ = compose

    def label_probabilities(self, y: ArrayLike) -> FloatArray:
        """Return P(noisy = j | clean label of each row), shape (n, K)."""
        return np.asarray(self.transition[as_labels(y, "y", n_classes=self.n_classes)])

    def apply(self, y: ArrayLike, *, random_state: RandomState = None, exact: bool = False) -> IntArray:
        """Return a noisy copy of the labels ``y``; :func:`peerloss.flip_labels` explains ``exact``."""
        labels = as_labels(y, "y", n_classes=self.n_classes)
        rng = as_generator(random_state, stream=NOISE_STREAM)
        if not exact:
            return draw_labels(self.transition[labels], rng)
        noisy = labels.copy()
        for source in range(self.n_classes):
            rows = rng.permutation(np.flatnonzero(labels == source))
            # Truncated as in the authors' code; the tiny summand undoes 100 · 0.29 = 28.999….
            counts = np.floor(len(rows) * self.transition[source] + 1e-9).astype(int)
            counts[source] = 0
            flipped = np.repeat(np.arange(self.n_classes), counts)
            noisy[rows[: len(flipped)]] = flipped
        return noisy

    def _binary(self) -> FloatArray:
        if self.n_classes != 2:
            raise InvalidInputError(
                f"e_neg and e_pos exist for two classes only; this model has {self.n_classes}. "
                "Use `flip_rates` or `transition`."
            )
        return self.transition


def draw_labels(probabilities: FloatArray, rng: np.random.Generator) -> IntArray:
    """Draw one label per row from an (n, K) table of probabilities, by inverting the cumulative sums."""
    cumulated = probabilities.cumsum(axis=1)
    u = rng.random(len(cumulated))[:, None] * cumulated[:, -1:]  # the last entry is 1 up to rounding
    return np.asarray((u >= cumulated).sum(axis=1), dtype=np.int64)


def check_epsilon(epsilon: Any) -> float:
    """Return ``epsilon`` as a float above 0 and at most ``MAX_EPSILON``."""
    number = check_finite(
        epsilon, "epsilon", advice="Pass a number such as 1.0; without privacy, use the labels as they are."
    )
    if not 0.0 < number <= MAX_EPSILON:
        raise InvalidInputError(
            f"`epsilon` must be above 0 and at most {MAX_EPSILON:g}; got {number:g}. Smaller is more "
            "private: at 0 a release would contain no information, beyond the maximum it would hide nothing. "
            "Pass a number such as 1.0."
        )
    return number


def as_noise_model(noise: NoiseModel | ArrayLike, name: str = "noise") -> NoiseModel:
    """Return ``noise``, a model or a transition matrix, as a model; ``name`` is its name in messages."""
    if isinstance(noise, NoiseModel):
        return noise
    try:
        return NoiseModel(noise)
    except InvalidInputError as error:
        raise InvalidInputError(f"`{name}` must be a NoiseModel or a transition matrix; {error}") from error


def _check_transition(transition: ArrayLike) -> FloatArray:
    matrix = as_float_array(transition, "transition", ndim=2).copy()
    if matrix.shape[0] != matrix.shape[1] or matrix.shape[0] < 2:
        raise InvalidInputError(
            f"`transition` must be square with at least 2 classes; got shape {matrix.shape}. "
            "Row i holds P(noisy = j | clean = i) for every j."
        )
    if (matrix < 0).any():
        i, j = (int(n) for n in np.argwhere(matrix < 0)[0])
        raise InvalidInputError(
            f"`transition` must hold probabilities; found {matrix[i, j]:g} at row {i}, column {j}. "
            "Rates are never negative."
        )
    sums = matrix.sum(axis=1)
    # Each of the K entries of a row may have been rounded, to six digits.
    wrong = np.flatnonzero(np.abs(sums - 1.0) > len(matrix) * PROBABILITY_TOLERANCE)
    if wrong.size:
        row = int(wrong[0])
        is_transposed = np.allclose(matrix.sum(axis=0), 1.0) and not np.array_equal(matrix, matrix.T)
        hint = "It looks transposed. " if is_transposed else ""
        raise InvalidInputError(
            f"`transition` must have rows that sum to 1; row {row} sums to {sums[row]:g}. {hint}"
            "Row i holds P(noisy = j | clean = i), so divide each row of counts by its total."
        )
    # Rounded rows are normalised, else n · T could require more than n exact flips. −0 becomes 0, so that
    # equal models have equal hashes. Rows that already sum to one are not changed.
    rounded = np.abs(sums - 1.0) > 1e-12
    matrix[rounded] /= sums[rounded, None]
    return matrix + 0.0
