"""Tables of probabilities (n, K): checked and read in blocks, because they may be too large to copy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from peerloss._validation import as_shares, sorted_labels
from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd
    from numpy.typing import NDArray

    from peerloss._validation import FloatArray, IntArray

#: Numbers in a block of rows: 1 MB as float64, which fits into the processor's cache.
BLOCK_CELLS = 1 << 17
#: How far the sum of a row may be from one by default. Models in half precision are off by this much.
SUM_TOLERANCE = 5e-3
#: A model has learned something if it improves the score of the frequencies by this many standard errors,
#: or by this share.
STANDARD_ERRORS_LEARNED, SHARE_LEARNED = 3.0, 0.05
#: How the message about a model that has learned nothing begins.
NOTHING_LEARNED = "nothing can be learned from these columns"


def check_probabilities(
    pred_proba: Any,
    n_rows: int,
    n_classes: int | None = None,
    *,
    labels: str = "labels",
    tolerance: float = SUM_TOLERANCE,
    name: str = "pred_proba",
    advice: str = "Pass probabilities, not scores: scipy.special.softmax(scores, axis=1) converts scores.",
) -> NDArray[Any]:
    """Return probabilities as an array of numbers, without a copy if they are one already.

    Parameters
    ----------
    pred_proba
        What the user passed as probabilities.
    n_rows, n_classes
        The expected shape; ``None`` accepts any number of classes.
    labels
        Name of the argument that holds the labels, for messages.
    tolerance
        How far the sum of a row may be from one.
    name, advice
        Name of the argument that holds the probabilities, and what to do if a row is wrong, for messages.
    """
    table = np.asarray(pred_proba)
    if table.dtype.kind not in "fiu":
        try:
            table = table.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise InvalidInputError(
                f"`{name}` must hold numbers; it holds something else: {error}. Pass the result of "
                "`predict_proba`, one column per class in sorted order of the labels."
            ) from error
    if table.ndim != 2 or table.shape[1] < 2:
        raise InvalidInputError(
            f"`{name}` must have one row per example and one column per class; got shape {table.shape}."
            + (" For two classes use np.column_stack([1 - p, p])." if table.ndim == 1 else "")
        )
    if len(table) != n_rows:
        raise InvalidInputError(
            f"`{name}` and `{labels}` must be equally long; got {len(table)} and {n_rows}."
        )
    if n_classes is not None and table.shape[1] != n_classes:
        raise InvalidInputError(
            f"`{name}` must have one column for each class of `{labels}`, {n_classes}; got "
            f"{table.shape[1]}. If a class has no row, use codes 0..K-1 or a pandas Categorical as labels."
        )
    for rows in blocks(*table.shape):
        _check_block(table[rows], rows.start, tolerance, name, advice)
    return table


def _check_block(block: NDArray[Any], first: int, tolerance: float, name: str, advice: str) -> None:
    sums = row_sums(block)
    if (np.abs(sums - 1.0) <= tolerance).all() and block.min() >= 0:  # NaN fails
        return
    low = block.min(axis=1)
    wrong = ~(np.abs(sums - 1.0) <= tolerance) | ~(low >= 0.0)
    row = int(np.flatnonzero(wrong)[0])
    what = f"{low[row]:g}" if low[row] < 0 else f"a sum of {sums[row]:g}"
    if not np.isfinite(block[row]).all():
        what = "a missing or infinite value"
    raise InvalidInputError(
        f"`{name}` must hold probabilities that sum to 1 in each row; found {what} in row {first + row}. "
        f"{advice}"
    )


def blocks(n_rows: int, width: int) -> Iterator[slice]:
    """Yield slices of rows, each with about ``BLOCK_CELLS`` numbers."""
    step = max(1, BLOCK_CELLS // width)
    return (slice(start, min(start + step, n_rows)) for start in range(0, n_rows, step))


def row_sums(block: NDArray[Any]) -> NDArray[Any]:
    """Return the sum of each row; a product with ones is several times faster than summing short rows."""
    floats = block if block.dtype.kind == "f" else block.astype(np.float64)
    return np.asarray(floats @ np.ones(block.shape[1], dtype=floats.dtype))


def normalise_rows(table: FloatArray) -> FloatArray:
    """Divide each row by its sum, in place; rows of zeros stay zero."""
    table /= np.maximum(row_sums(table), 1e-300)[:, None]
    return table


def take(table: NDArray[Any], codes: IntArray) -> FloatArray:
    """Return the entry of each row in the column of its code."""
    return np.asarray(table[np.arange(len(codes)), codes], dtype=np.float64)


def label_frequencies(codes: IntArray, n_classes: int, weight: FloatArray | None = None) -> FloatArray:
    """Return π̃, the (weighted) share of each label 0..K-1, shape (K,)."""
    counts = np.bincount(codes, weight, minlength=n_classes)
    return np.asarray(counts / counts.sum())


def as_rows(weight: FloatArray) -> FloatArray:
    """Scale weights such that they sum to the number of rows that would be as informative, (Σw)²/Σw²."""
    return np.asarray(weight * weight.sum() / (weight**2).sum())


def is_nothing_learned(reason: str) -> bool:
    """Return whether a reason is that of :func:`explain_nothing_learned`."""
    return reason.startswith(NOTHING_LEARNED)


def explain_nothing_learned(
    proba: NDArray[Any],
    codes: IntArray,
    weight: FloatArray | None = None,
    *,
    rows: IntArray | None = None,
) -> str:
    """Return a message if held-out probabilities predict the labels no better than their frequencies do.

    The measure is the mean difference of the two Brier scores. It must exceed three standard errors, or a
    twentieth of the score of the frequencies, which few rows cannot show with certainty. Two standard errors
    would be too few for calibrated probabilities: their calibration was chosen on the same rows. Do not use
    it for probabilities that are not calibrated. If these are overconfident, they have a worse score than the
    frequencies even if they are informative; ``explain_chance_level`` in :mod:`peerloss.noise` is for them.
    ``rows`` is the row of each label if a row has several, such as the classes of a soft label.
    """
    n, k = proba.shape
    share = as_shares(weight, n)
    prior = label_frequencies(codes, k, weight)
    by_class = np.square(prior).sum() - 2.0 * prior  # the score minus one, as for the model below
    score = np.square(proba).sum(axis=1, dtype=np.float64) - 2.0 * take(proba, codes)
    gain = by_class[codes] - score
    mean = float(share @ gain)
    deviation = share * (gain - mean)
    if rows is not None:  # the labels of a row are one observation
        deviation = np.bincount(rows, deviation)
    error = float(np.sqrt(np.square(deviation).sum()))
    of_frequencies = 1.0 + float(share @ by_class[codes])
    if mean > min(STANDARD_ERRORS_LEARNED * error, SHARE_LEARNED * of_frequencies) + 1e-12:
        return ""
    return (
        f"{NOTHING_LEARNED}: predictions of held-out labels are no better than the label frequencies "
        f"(Brier score {1.0 + share @ score:.3f}, of the frequencies "
        f"{of_frequencies:.3f}, difference {mean:.4f} ± {error:.4f})"
    )


def encode(y: pd.Series, n_columns: int | None) -> tuple[NDArray[Any], IntArray]:
    """Return the classes and the code of each label.

    Classes are the categories of a Categorical. For integer labels that are columns of a table with
    ``n_columns`` columns they are 0..K-1. Otherwise they are the distinct labels, sorted.
    """
    if hasattr(y, "cat"):  # isinstance would import pandas, which training does not need
        return np.asarray(y.cat.categories), np.asarray(y.cat.codes, dtype=np.int64)
    values = y.to_numpy()
    classes, codes = sorted_labels(values)
    if (
        values.dtype.kind in "iu"
        and n_columns is not None
        and len(classes) < n_columns
        and 0 <= classes[0] <= classes[-1] < n_columns
    ):
        return np.arange(n_columns), values.astype(np.int64)
    return classes, np.asarray(codes, dtype=np.int64)
