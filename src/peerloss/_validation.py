"""The checks at the public doors. Every message says: argument, expected, received, what to do."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from peerloss.exceptions import InvalidInputError

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

#: How far a probability vector may be from summing to one: far above rounding, far below a typing error.
PROBABILITY_TOLERANCE = 1e-6


def check_choice(value: object, name: str, choices: tuple[str, ...]) -> str:
    """Return ``value`` if it is one of ``choices``."""
    if isinstance(value, str) and value in choices:
        return value
    listed = ", ".join(repr(choice) for choice in choices)
    raise InvalidInputError(f"`{name}` must be one of {listed}; got {value!r}.")


def check_finite(value: Any, name: str, *, advice: str = "Pass a number such as 1.0.") -> float:
    """Return ``value`` as a finite float."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise InvalidInputError(f"`{name}` must be a finite number; got {value!r}. {advice}")
    return number


def check_in_range(
    value: Any, name: str, low: float, high: float, *, low_open: bool = False, high_open: bool = False
) -> float:
    """Return ``value`` as a float inside the interval from ``low`` to ``high``."""
    number = check_finite(value, name, advice=f"Pass a number between {low:g} and {high:g}.")
    above = number > low if low_open else number >= low
    below = number < high if high_open else number <= high
    if above and below:
        return number
    interval = f"{'(' if low_open else '['}{low:g}, {high:g}{')' if high_open else ']'}"
    raise InvalidInputError(f"`{name}` must lie in {interval}; got {number:g}.")


def check_count(value: Any, name: str, *, minimum: int = 1) -> int:
    """Return ``value`` as an integer of at least ``minimum``; booleans and fractions are refused."""
    if isinstance(value, int | np.integer) and not isinstance(value, bool) and value >= minimum:
        return int(value)
    raise InvalidInputError(f"`{name}` must be an integer of at least {minimum}; got {value!r}.")


def check_flag(value: Any, name: str) -> bool:
    """Return ``value`` if it is true or false."""
    if isinstance(value, bool | np.bool_):
        return bool(value)
    raise InvalidInputError(f"`{name}` must be True or False; got {value!r}.")


def make_plain(record: Any) -> None:
    """Turn NumPy's numbers, arrays and lists in a frozen record into Python's numbers and tuples.

    So it can be hashed, compared and saved in files that hold plain values only.
    """
    for field in fields(record):
        object.__setattr__(record, field.name, as_plain(getattr(record, field.name)))


def as_plain(value: Any) -> Any:
    """Return NumPy's numbers and arrays, and lists, as Python's numbers and tuples, inner ones too."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    return tuple(map(as_plain, value)) if isinstance(value, tuple | list) else value


def as_float_array(value: ArrayLike, name: str, *, ndim: int) -> FloatArray:
    """Return ``value`` as a finite float64 array with ``ndim`` dimensions."""
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(
            f"`{name}` must be an array of numbers with {ndim} dimension(s); could not convert it: {error}."
        ) from error
    if array.ndim != ndim:
        raise InvalidInputError(
            f"`{name}` must have {ndim} dimension(s); got shape {array.shape}."
            + (" Reshape it with `.ravel()`." if ndim == 1 else " Pass one row per example.")
        )
    if array.size == 0:
        raise InvalidInputError(f"`{name}` is empty (shape {array.shape}); pass at least one row.")
    if not np.isfinite(array).all():
        where = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        raise InvalidInputError(
            f"`{name}` must be finite; found {array[where]} at index {where}. Drop or impute such entries."
        )
    return array


def as_labels(value: ArrayLike, name: str, *, n_classes: int | None = None) -> IntArray:
    """Return ``value`` as a 1-D int64 array of class codes in ``0..n_classes-1``."""
    array = np.asarray(value)
    if array.ndim != 1:
        raise InvalidInputError(
            f"`{name}` must be one-dimensional; got shape {array.shape}. Pass one label per row."
        )
    if array.size == 0:
        raise InvalidInputError(f"`{name}` is empty; pass at least one label.")
    if array.dtype.kind not in "biu" and not _is_whole(array):
        raise InvalidInputError(
            f"`{name}` must hold integer class codes 0..K-1; got dtype {array.dtype}. "
            "Encode labels first, for example with sklearn.preprocessing.LabelEncoder."
        )
    codes = array.astype(np.int64)
    low, high = int(codes.min()), int(codes.max())
    if low < 0 or (n_classes is not None and high >= n_classes):
        top = "K-1" if n_classes is None else str(n_classes - 1)
        bad = low if low < 0 else high
        raise InvalidInputError(
            f"`{name}` must hold labels in 0..{top}; found {bad}. "
            "Encode labels first (−1/+1 becomes 0/1), or pass a noise model with more classes."
        )
    return codes


def sorted_labels(y: ArrayLike) -> tuple[NDArray[Any], IntArray]:
    """Return the distinct labels of ``y``, of any type, sorted; and the place of each label among them."""
    try:
        classes, codes = np.unique(y, return_inverse=True)
    except TypeError as error:
        raise InvalidInputError(
            f"`y` must hold labels of one type; it mixes types that cannot be sorted: {error}. "
            "Convert them, for example with `y.astype(str)`."
        ) from error
    return classes, codes


def _is_whole(array: NDArray[Any]) -> bool:
    return array.dtype.kind == "f" and bool(np.isfinite(array).all()) and bool((array == array.round()).all())


def as_prior(value: ArrayLike, name: str, *, n_classes: int | None = None) -> FloatArray:
    """Return ``value`` as a probability vector; a single number means P(Y = 1) of two classes."""
    array = np.asarray(value)
    if array.ndim == 0:
        positive = check_in_range(value, name, 0.0, 1.0)
        array = np.array([1.0 - positive, positive])
    prior = as_float_array(array, name, ndim=1)
    if prior.size < 2 or (n_classes is not None and prior.size != n_classes):
        wanted = "at least 2" if n_classes is None else str(n_classes)
        raise InvalidInputError(
            f"`{name}` must have {wanted} entries, one a class; got {prior.size}. "
            "For two classes a single number P(Y = 1) will do."
        )
    if (prior < 0).any() or abs(prior.sum() - 1.0) > PROBABILITY_TOLERANCE:
        raise InvalidInputError(
            f"`{name}` must be probabilities that sum to 1; got {prior.tolist()} with sum {prior.sum():g}. "
            "Divide counts by their total."
        )
    normalised: FloatArray = prior / prior.sum()
    return normalised


def as_joint(value: ArrayLike, name: str) -> FloatArray:
    """Return ``value`` as a table of joint probabilities (non-negative, summing to one)."""
    joint = as_float_array(value, name, ndim=2)
    if (joint < 0).any() or abs(joint.sum() - 1.0) > PROBABILITY_TOLERANCE:
        raise InvalidInputError(
            f"`{name}` must be joint probabilities that sum to 1; got sum {joint.sum():g} and minimum "
            f"{joint.min():g}. Divide a table of counts by its total."
        )
    normalised: FloatArray = joint / joint.sum()
    return normalised


def check_same_length(**arrays: NDArray[Any]) -> None:
    """Refuse arrays of different length, naming each."""
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"`{name}` has {length}" for name, length in lengths.items())
        raise InvalidInputError(f"{' and '.join(f'`{n}`' for n in lengths)} must be equally long; {told}.")
