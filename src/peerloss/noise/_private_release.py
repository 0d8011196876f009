"""Release labels and label frequencies under differential privacy.

Sampling in floating point can break a guarantee: rounded probabilities differ from the stated ones. Here
every random decision compares integers from the system's entropy, so the probabilities are exact.
"""

from __future__ import annotations

import math
import os
import secrets
from decimal import ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from peerloss.exceptions import InvalidInputError
from peerloss.noise._model import NoiseModel, check_epsilon

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import ArrayLike, NDArray

    from peerloss._validation import FloatArray, IntArray

#: The integer weights of the released labels of a row add up to at most this.
MAX_TOTAL = 2**62
#: 60 digits, three times those of the largest weight. Products are rounded down.
DECIMALS = Context(prec=60, rounding=ROUND_FLOOR)


def release_labels(
    labels: ArrayLike, epsilon: float, *, classes: Sequence[Any] | ArrayLike
) -> tuple[NDArray[Any], NoiseModel]:
    """Return a copy of the labels that may be published, and its noise: randomised response.

    **Guarantee.** Each released label is ε-locally differentially private: for any two true labels, the
    probabilities of a released label differ at most by the factor e^ε. So whatever is computed from the
    released labels, by anybody, is ε-differentially private with respect to one label. The probabilities are
    ratios of integers, rounded towards more privacy (ε decreases by less than 10⁻¹² for up to a million
    classes), and the random numbers are those of the operating system (``os.urandom``).

    **Limits.** The features, the number of rows and their order are not protected. If one person has m rows,
    ε of that person is at most m·ε. Two releases of the same labels cost the sum of their ε, so store the
    released labels instead of releasing them again.

    There is no ``random_state``, because a seed reveals the labels, and no ``exact``, because with fixed
    numbers of flips anyone who knows all other labels can compute the last one. To simulate noise in
    experiments use :func:`flip_labels`.

    Parameters
    ----------
    labels
        True labels of any type, shape (n,). They are not modified. NaN, ``None`` and ``pandas.NA`` are one
        label, "missing".
    epsilon
        ε, above 0 and at most 32; smaller is more private.
    classes
        All labels that are possible, each once, at least two. They are not taken from ``labels``, because
        which classes occur depends on the data and is not protected. Include ``None`` if labels may be
        missing.

    Returns
    -------
    The released labels, shape (n,), with the type of ``classes``, and their noise, whose classes are in the
    order of ``classes``.

    Raises
    ------
    InvalidInputError
        If ε is not positive, if ``classes`` are not distinct, or if a label, also a missing one, is not one
        of them. The message contains this label: do not publish it.

    References
    ----------
    P. Kairouz, S. Oh and P. Viswanath, Extremal Mechanisms for Local Differential Privacy, 2016.

    Examples
    --------
    >>> released, noise = release_labels(["yes", "no", "no"], 1.0, classes=["no", "yes"])
    >>> released.shape, round(noise.e_pos, 3)
    ((3,), 0.269)
    """
    names, codes = _encode(labels, classes)
    keep, flip = response_weights(len(names), check_epsilon(epsilon))
    total = keep + (len(names) - 1) * flip
    noise = np.full((len(names), len(names)), flip / total)
    np.fill_diagonal(noise, keep / total)
    return names[respond(codes, draw_below(total, len(codes)), keep, flip)], NoiseModel(noise)


def private_label_frequencies(
    labels: ArrayLike, epsilon: float, *, classes: Sequence[Any] | ArrayLike
) -> FloatArray:
    """Return the frequencies of the classes with noise that makes them ε-differentially private.

    They can be published, or passed to a loss that is trained with differential privacy:
    ``PeerLoss(noisy_prior=...)``. Each count gets independent discrete Laplace noise, P(z) ∝ e^(−ε|z|).
    Negative counts then become 0, and the counts are divided by their sum; if no count is positive, all
    frequencies are equal.

    **Guarantee.** If one row is added or removed, the probability of every result changes at most by the
    factor e^ε. (If one label is changed, at most by e^2ε.) The noise is sampled exactly, with integers from
    the random numbers of the operating system. A result costs ε once, however often it is used; ε of
    further results from the same labels is added.

    Parameters
    ----------
    labels
        Labels of any type, shape (n,).
    epsilon
        ε, above 0 and at most 32. The standard deviation of a noisy count is about √2/ε.
    classes
        All labels that are possible, each once, at least two; the order of the result.

    Returns
    -------
    Frequencies that sum to one, shape (K,).

    Raises
    ------
    InvalidInputError
        As in :func:`release_labels`.

    References
    ----------
    C. Canonne, G. Kamath and T. Steinke, The Discrete Gaussian for Differential Privacy, 2020 (section 5.2).

    Examples
    --------
    >>> frequencies = private_label_frequencies([0] * 700 + [1] * 300, 1.0, classes=[0, 1])
    >>> bool(abs(frequencies[1] - 0.3) < 0.05)
    True
    """
    names, codes = _encode(labels, classes)
    exact = Fraction(check_epsilon(epsilon))
    counts = np.bincount(codes, minlength=len(names)).tolist()
    noisy = [max(0, count + discrete_laplace(exact, secrets.randbelow)) for count in counts]
    total = sum(noisy)
    return np.array([count / total for count in noisy] if total else [1 / len(noisy)] * len(noisy))


def response_weights(n_classes: int, epsilon: float) -> tuple[int, int]:
    """Return integer weights of the true label and of each other label; their ratio is at most e^ε."""
    flip = MAX_TOTAL // (math.floor(math.exp(epsilon)) + 1 + n_classes)
    # The exponential is correctly rounded to 60 digits, so the decimal number below it is less than e^ε.
    factor = DECIMALS.next_minus(DECIMALS.exp(Decimal(epsilon)))
    keep = int(DECIMALS.multiply(Decimal(flip), factor))
    return max(keep, flip), flip  # for a tiny ε `factor` is below 1


def respond(codes: IntArray, draws: IntArray, keep: int, flip: int) -> IntArray:
    """Return the released codes; draws are uniform below the sum of the weights of one row.

    The first ``keep`` draws return the true code, the next ``flip`` the smallest other code, and so on.
    """
    other = (draws - keep) // flip
    return np.where(draws < keep, codes, other + (other >= codes))


def draw_below(
    bound: int, size: int, *, read: Callable[[int], bytes] = os.urandom, width: int = 8
) -> IntArray:
    """Return ``size`` uniform integers below ``bound``, from words of ``width`` bytes that ``read`` returns.

    Words at or above the largest multiple of ``bound`` are rejected, so all remainders are equally frequent.
    """
    largest = 256**width // bound * bound - 1
    found = np.empty(0, dtype=np.int64)
    while len(found) < size:
        words = np.frombuffer(read(width * (size - len(found))), dtype=f"<u{width}").astype(np.uint64)
        accepted = words[words <= np.uint64(largest)] % np.uint64(bound)
        found = np.concatenate([found, accepted.astype(np.int64)])
    return found


def discrete_laplace(epsilon: Fraction, below: Callable[[int], int]) -> int:
    """Return an integer z with probability proportional to e^(−ε|z|), for a rational ε.

    ``below(n)`` returns a uniform integer below n. With ε = s/t, the sum of u below t, accepted with
    probability e^(−u/t), and t times a geometric number is x with P(x) ∝ e^(−x/t); so x // s is |z|.
    """
    s, t = epsilon.numerator, epsilon.denominator
    while True:
        u = below(t)
        if not _happens(u, t, below):
            continue
        v = 0
        while _happens(1, 1, below):
            v += 1
        size = (u + t * v) // s
        is_negative = below(2) == 1
        if size or not is_negative:  # 0 would otherwise have two signs
            return -size if is_negative else size


def _happens(numerator: int, denominator: int, below: Callable[[int], int]) -> bool:
    """Return True with probability e^(−γ), where γ = numerator / denominator is at most 1.

    Trial k succeeds with probability γ/k. The first failure is at an odd k with probability Σ (−γ)^k / k!.
    """
    k = 1
    while below(denominator * k) < numerator:
        k += 1
    return k % 2 == 1


def _encode(labels: ArrayLike, classes: Sequence[Any] | ArrayLike) -> tuple[NDArray[Any], IntArray]:
    """Return the classes as an array and the index of each label among them."""
    names, values = _as_array(classes), _as_array(labels)
    n_distinct = len(set(_keys(names.ravel())))
    if names.ndim != 1 or n_distinct < max(2, len(names)):
        raise InvalidInputError(
            f"`classes` must list at least two labels, each once; got shape {names.shape} with {n_distinct} "
            "distinct. List every label that is possible, whether it occurs in the data or not."
        )
    if values.ndim != 1:
        raise InvalidInputError(
            f"`labels` must be one-dimensional; got shape {values.shape}. Pass one label per row."
        )
    index = {name: code for code, name in enumerate(_keys(names))}
    codes = np.array([index.get(value, -1) for value in _keys(values)], dtype=np.int64)
    if (codes < 0).any():
        unknown = _plain(values[codes < 0][0])
        raise InvalidInputError(
            f"`labels` must be among `classes`; found {unknown!r}. Add it to `classes`, also if it stands "
            "for a missing label: whether a label is missing is protected too."
        )
    return names, codes


def _as_array(values: Any) -> NDArray[Any]:
    """Return an array in which labels of several types stay what they are; NumPy makes text of them."""
    array = np.asarray(values)
    if array.dtype.kind in "US":
        objects = np.asarray(values, dtype=object)
        if not all(isinstance(value, str | bytes) for value in objects.ravel()):
            return objects
    return array


def _keys(values: NDArray[Any]) -> list[Any]:
    """Return plain values to look up; each missing one (NaN, None, pandas.NA) is ``None``."""
    if values.dtype.kind in "biuUS":
        plain: list[Any] = values.tolist()
        return plain
    import pandas as pd  # noqa: PLC0415 - classes without missing labels do not need pandas

    pairs = zip(values, pd.isna(values), strict=True)
    return [None if is_missing else _plain(value) for value, is_missing in pairs]


def _plain(value: Any) -> Any:
    """Return a NumPy scalar as the Python value that it holds."""
    return value.item() if isinstance(value, np.generic) else value
