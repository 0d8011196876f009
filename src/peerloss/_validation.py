"""Validate arguments. Every message names the argument, what was expected, what was received, what to do."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Sequence

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

#: Allowed difference between 1 and the sum of probabilities: above rounding errors, below typing errors.
PROBABILITY_TOLERANCE = 1e-6
#: How far the sum of a soft label may be from one: they are often in single precision.
SOFT_LABEL_TOLERANCE = 1e-4
#: Integers from here on may be equal to their neighbours as float64.
FIRST_INEXACT = 2**53
#: Largest feature or weight. Trees, networks and XGBoost compute in float32, and sums of squares of larger
#: numbers can overflow float64.
LARGEST_NUMBER = float(np.finfo(np.float32).max)
#: Standardised features are clipped here, so that the float32 numbers of networks do not overflow.
MAX_STANDARDISED = 1e30
#: Values of ``metric`` of the classifiers, here so that the command line can check them without scikit-learn.
METRICS = ("accuracy", "balanced_accuracy")
#: Which rows an audit flags.
FLAG_TARGETS = ("auto", "f1", "precision")
#: Counts must fit into the integers of compiled code.
MAX_COUNT = 2**63 - 1


def short_repr(value: object) -> str:
    """Return the text of a value for a message, at most 100 characters."""
    if isinstance(value, int) and value.bit_length() > 300:  # Python refuses to print very long numbers
        return f"an integer of about {int(value.bit_length() * math.log10(2)) + 1} digits"
    try:
        text = repr(value)
    except ValueError:  # it contains such a number
        text = f"a {type(value).__name__} that holds a very long integer"
    return text if len(text) <= 100 else f"{text[:97]}..."


def check_choice(value: object, name: str, choices: tuple[str, ...]) -> str:
    """Return ``value`` if it is one of ``choices``."""
    if isinstance(value, str) and value in choices:
        return value
    listed = ", ".join(repr(choice) for choice in choices)
    raise InvalidInputError(f"`{name}` must be one of {listed}; got {short_repr(value)}.")


def check_finite(value: Any, name: str, *, advice: str = "Pass a number such as 1.0.") -> float:
    """Return ``value`` as a finite float."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):  # OverflowError: an integer too large for a float
        number = math.nan
    if not math.isfinite(number):
        raise InvalidInputError(f"`{name}` must be a finite number; got {short_repr(value)}. {advice}")
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


def check_non_negative(value: Any, name: str, *, positive: bool = False) -> float:
    """Return ``value`` as a finite float that is at least 0, or above 0 if ``positive``."""
    number = check_finite(value, name)
    if number < 0.0 or (positive and number == 0.0):
        wanted = "positive" if positive else "zero or positive"
        raise InvalidInputError(f"`{name}` must be {wanted}; got {number:g}. Pass a number such as 1.0.")
    return number


def check_count(value: Any, name: str, *, minimum: int = 1) -> int:
    """Return ``value`` as an integer of at least ``minimum``; booleans and fractions are refused."""
    if isinstance(value, int | np.integer) and not isinstance(value, bool) and minimum <= value <= MAX_COUNT:
        return int(value)
    bound = f"at least {minimum}"
    if isinstance(value, int) and value > MAX_COUNT:
        bound += " and at most 2**63 - 1"
    raise InvalidInputError(f"`{name}` must be an integer of {bound}; got {short_repr(value)}.")


def check_n_jobs(n_jobs: Any) -> None:
    """Refuse a number of jobs that joblib does not accept."""
    if n_jobs is None or (
        isinstance(n_jobs, int | np.integer) and not isinstance(n_jobs, bool) and n_jobs != 0
    ):
        return
    raise InvalidInputError(
        f"`n_jobs` must be an integer other than 0, or None; got {short_repr(n_jobs)}. Use 1 for one "
        "process, or -1 for all cores."
    )


def check_flag(value: Any, name: str) -> bool:
    """Return ``value`` if it is true or false."""
    if isinstance(value, bool | np.bool_):
        return bool(value)
    raise InvalidInputError(f"`{name}` must be True or False; got {short_repr(value)}.")


def make_plain(record: Any) -> None:
    """Apply :func:`as_plain` to a frozen dataclass, so that it can be hashed, compared and saved."""
    for field in fields(record):
        object.__setattr__(record, field.name, as_plain(getattr(record, field.name)))


def as_plain(value: Any) -> Any:
    """Convert NumPy numbers, arrays and lists to Python numbers and tuples, recursively."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    return tuple(map(as_plain, value)) if isinstance(value, tuple | list) else value


def as_float_array(
    value: ArrayLike, name: str, *, ndim: int, advice: str = "Drop or impute such entries."
) -> FloatArray:
    """Return ``value`` as a finite float64 array with ``ndim`` dimensions.

    The message about NaN and infinity ends with ``advice``.
    """
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
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
        raise InvalidInputError(f"`{name}` must be finite; found {array[where]} at index {where}. {advice}")
    return array


def check_magnitude(
    X: NDArray[Any],
    *,
    names: Sequence[Any] | None = None,
    name: str = "X",
    advice: str = "Measure it in a larger unit, take logarithms, or correct the value.",
) -> None:
    """Refuse numbers, (n, d) or (n,), that would overflow in later arithmetic; NaN is allowed.

    The message contains ``names``, those of the columns (by default numbers from 0), ``name`` and ``advice``.
    """
    with np.errstate(invalid="ignore"):
        if X.size == 0 or not (np.nanmax(np.abs(X), initial=0.0) > LARGEST_NUMBER):
            return
    place = [int(i) for i in np.argwhere(np.abs(X) > LARGEST_NUMBER)[0]]
    column = ""
    if len(place) > 1:
        column = f" in column {short_repr(place[1] if names is None else names[place[1]])}"
    raise InvalidInputError(
        f"`{name}` must hold numbers with an absolute value up to {LARGEST_NUMBER:.2g}; found "
        f"{X[tuple(place)]:.3g}{column}, row {place[0]}. {advice}"
    )


def check_varies(X: NDArray[Any], name: str = "X") -> None:
    """Refuse features (n, d) whose columns are all constant; NaN counts as a value."""
    if all(((column == column[0]) | (np.isnan(column) & np.isnan(column[0]))).all() for column in X.T):
        raise InvalidInputError(
            f"`{name}` must have a column that varies; each of its {X.shape[1]} columns has the same value "
            "in every row, so classes cannot be distinguished. Add features, or check how they were read."
        )


def as_labels(value: ArrayLike, name: str, *, n_classes: int | None = None) -> IntArray:
    """Return ``value`` as a 1-D int64 array of class codes in ``0..n_classes-1``."""
    array = np.asarray(value)
    if array.ndim != 1:
        raise InvalidInputError(
            f"`{name}` must be one-dimensional; got shape {array.shape}. Pass one label per row."
        )
    if array.size == 0:
        raise InvalidInputError(f"`{name}` is empty; pass at least one label.")
    is_integral = array.dtype.kind in "biu" or (
        array.dtype.kind == "f" and np.isfinite(array).all() and (array == array.round()).all()
    )
    if not is_integral:
        raise InvalidInputError(
            f"`{name}` must hold integer class codes 0..K-1; got dtype {array.dtype}. "
            "Encode labels first, for example with sklearn.preprocessing.LabelEncoder."
        )
    check_exact_labels(array, f"`{name}`")
    low, high = int(array.min()), int(array.max())
    if low < 0 or (n_classes is not None and high >= n_classes):
        top = "K-1" if n_classes is None else str(n_classes - 1)
        raise InvalidInputError(
            f"`{name}` must hold labels in 0..{top}; found {low if low < 0 else high}. "
            "Encode labels first (−1/+1 becomes 0/1), or pass a noise model with more classes."
        )
    if high > MAX_COUNT:
        raise InvalidInputError(f"`{name}` must hold class codes under 2**63; found {high}.")
    return array.astype(np.int64)


class GivenLabels(NamedTuple):
    """Checked labels."""

    codes: IntArray
    """(n,) class codes; −1 marks a row without a label. Of soft labels, the class of the largest share."""
    shares: FloatArray | None = None
    """(n, K) soft labels, NaN in rows without a label; ``None`` if every label is one class."""

    @property
    def is_known(self) -> BoolArray:
        """(n,) whether a row has a label."""
        return np.asarray(self.codes >= 0)


def read_labels(y: Any, name: str, *, n_classes: int | None = None, eps: float | None = None) -> GivenLabels:
    """Check labels (n,) or soft labels (n, K); errors call the argument ``name``.

    Floats in two dimensions are soft labels: class probabilities that sum to one in each row. Entries may be
    negative (negative label smoothing). A row of NaN has no label. ``eps`` is the precision of soft labels if
    they were rounded more than their dtype shows. Rows in half precision are divided by their sums.
    """
    array = np.asarray(y)
    if array.ndim == 2 and array.dtype.kind == "f":
        return _soft_labels(array, name, n_classes, float(np.finfo(array.dtype).eps) if eps is None else eps)
    return GivenLabels(_codes_with_missing(array, name, n_classes))


def _codes_with_missing(y: NDArray[Any], name: str, n_classes: int | None) -> IntArray:
    signed = y.dtype.kind in "if"
    if signed and (y < -1).any():
        raise InvalidInputError(
            f"`{name}` must hold class codes of at least 0, or -1 for rows without a label; found {y.min():g}"
            ". Set these labels to -1."
        )
    missing = y == -1
    if not signed or not missing.any():
        return as_labels(y, name, n_classes=n_classes)
    codes = as_labels(np.where(missing, 0, y), name, n_classes=n_classes)
    if len(np.unique(codes[~missing])) < 2:
        raise InvalidInputError(
            f"`{name}` must have labels of more than one class; got {np.unique(y).tolist()}, of which -1 "
            "marks rows without a label. If -1 and 1 are two classes, encode them as 0 and 1."
        )
    return np.where(missing, -1, codes)


def _soft_labels(table: NDArray[Any], name: str, n_classes: int | None, eps: float) -> GivenLabels:
    if table.shape[1] < 2 or n_classes not in (None, table.shape[1]):
        columns = "a column for each class" if n_classes is None else f"{n_classes} columns, one per class"
        raise InvalidInputError(
            f"`{name}` must have {columns}, if it holds soft labels (floats); got shape {table.shape}. Class "
            "codes are one-dimensional."
        )
    shares: FloatArray = table.astype(np.float64)
    missing = np.isnan(shares).all(axis=1)
    if missing.all():
        raise InvalidInputError(
            f"`{name}` must have a label in some rows; all {len(table)} rows of soft labels are missing "
            "(NaN). Pass the shares of the classes, and leave only unknown rows missing."
        )
    with np.errstate(invalid="ignore"):  # infinity minus infinity
        sums = shares.sum(axis=1)
    tolerance = max(SOFT_LABEL_TOLERANCE, eps)  # of rounding in half precision
    wrong = ~missing & ~(np.abs(sums - 1.0) <= tolerance)
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        what = f"row {row} sums to {sums[row]:g}" if np.isfinite(sums[row]) else f"row {row} is not finite"
        raise InvalidInputError(
            f"`{name}` must hold class probabilities that sum to 1 in each row, if it holds soft labels "
            f"(floats); {what}. Divide votes by their number; a row of NaN has no label."
        )
    if eps > SOFT_LABEL_TOLERANCE:  # in single precision, losses would refuse these sums
        shares /= sums[:, None]
    return GivenLabels(np.where(missing, -1, np.nan_to_num(shares).argmax(axis=1)), shares)


def check_exact_labels(labels: NDArray[Any], where: str) -> None:
    """Refuse float labels that do not identify one class: infinite, or too large to be exact.

    pandas converts integers to floats if some are missing, and integers of 2**53 or more are then rounded.
    """
    if labels.dtype.kind != "f":
        return
    wrong = labels[np.isinf(labels) | (np.abs(labels) >= FIRST_INEXACT)]
    if wrong.size:
        raise InvalidInputError(
            f"{where} must hold class labels; found {wrong[0]:.17g}. Floats cannot represent all integers of "
            "2**53 or more. Write such labels as text, or as integers without missing labels."
        )


def is_minus_one_missing(labels: NDArray[Any]) -> bool:
    """Return whether -1 marks a missing label: if all other labels are non-negative integers.

    There is one exception: -1 and 1 alone are two classes.
    """
    if labels.dtype.kind not in "if" or not (labels == -1).any():
        return False
    others = np.unique(labels[labels != -1])
    return bool((others >= 0).all() and (others == np.floor(others)).all() and others.tolist() != [1])


def sorted_labels(y: ArrayLike) -> tuple[NDArray[Any], IntArray]:
    """Return the sorted distinct labels of ``y``, of any type, and the index of each label among them."""
    check_exact_labels(np.asarray(y), "`y`")
    try:
        classes, codes = np.unique(y, return_inverse=True)
    except TypeError as error:
        raise InvalidInputError(
            f"`y` must hold labels of one type; it mixes types that cannot be sorted: {error}. "
            "Convert them, for example with `y.astype(str)`."
        ) from error
    return classes, codes


def as_prior(value: ArrayLike, name: str, *, n_classes: int | None = None) -> FloatArray:
    """Return ``value`` as a probability vector; a single number means P(Y = 1) of two classes."""
    array = np.asarray(value)
    if array.ndim == 0:
        positive = check_in_range(value, name, 0.0, 1.0)
        array = np.array([1.0 - positive, positive])
    prior = as_float_array(array, name, ndim=1)
    if prior.size < 2 or (n_classes is not None and prior.size != n_classes):
        expected = "at least 2" if n_classes is None else str(n_classes)
        raise InvalidInputError(
            f"`{name}` must have {expected} entries, one per class; got {prior.size}. "
            "For two classes a single number P(Y = 1) is enough."
        )
    if (prior < 0).any() or abs(prior.sum() - 1.0) > PROBABILITY_TOLERANCE:
        raise InvalidInputError(
            f"`{name}` must be probabilities that sum to 1; got {prior.tolist()} with sum {prior.sum():g}. "
            "Divide counts by their total."
        )
    return np.asarray(prior / prior.sum())


def as_joint(value: ArrayLike, name: str) -> FloatArray:
    """Return ``value`` as a matrix of joint probabilities that sum to one."""
    joint = as_float_array(value, name, ndim=2)
    if (joint < 0).any() or abs(joint.sum() - 1.0) > PROBABILITY_TOLERANCE:
        raise InvalidInputError(
            f"`{name}` must be joint probabilities that sum to 1; got sum {joint.sum():g} and minimum "
            f"{joint.min():g}. Divide a table of counts by its total."
        )
    return np.asarray(joint / joint.sum())


def check_same_length(**arrays: NDArray[Any]) -> None:
    """Refuse arrays of different lengths."""
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"`{name}` has {length}" for name, length in lengths.items())
        raise InvalidInputError(f"{' and '.join(f'`{n}`' for n in lengths)} must be equally long; {listed}.")


def as_shares(sample_weight: ArrayLike | None, n_rows: int) -> FloatArray:
    """Return the weights of ``n_rows`` rows as shares that sum to 1; equal shares without weights."""
    weight = np.ones(n_rows) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    if weight.shape != (n_rows,) or not (np.isfinite(weight) & (weight >= 0)).all() or not weight.any():
        raise InvalidInputError(
            f"`sample_weight` must hold {n_rows} non-negative numbers, not all zero; got shape "
            f"{weight.shape}."
        )
    weight = weight / weight.max()  # the sum of huge weights would overflow
    return np.asarray(weight / weight.sum())
