"""Estimate T from noisy labels with predicted probabilities, or from pairs of clean and noisy labels.

Except in :func:`estimate_noise`, input is not checked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from peerloss._probabilities import blocks, check_probabilities, label_frequencies, take
from peerloss._validation import as_labels, as_shares, check_choice, check_in_range, check_same_length
from peerloss.exceptions import IdentifiabilityWarning, InvalidInputError, warn_caller
from peerloss.noise._model import NoiseModel

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from peerloss._validation import FloatArray, IntArray

#: Probabilities this much below a threshold pass it: the mean of equal numbers may be rounded above them.
ROUNDING = 1e-6
#: How far the sum of a row of probabilities may be from one in :func:`estimate_noise`.
SUM_TOLERANCE = 1e-4


def estimate_noise(
    y_noisy: ArrayLike,
    pred_proba: ArrayLike | None = None,
    *,
    y_clean: ArrayLike | None = None,
    method: str = "confident",
    quantile: float = 0.97,
) -> NoiseModel:
    """Estimate the transition matrix T.

    Parameters
    ----------
    y_noisy
        Noisy class codes 0..K-1, shape (n,).
    pred_proba
        *Out-of-fold* probabilities P(noisy = k | x) from a model trained on the noisy labels, shape (n, K).
        In-fold probabilities have seen the flips and hide them.
    y_clean
        Clean labels of the same rows, if known: T is then counted, and ``pred_proba`` is not needed.
    method
        ``"confident"`` (default) assigns row n to class k if its probability of k is at least the mean
        of that probability among rows labelled k (the most probable k if several qualify), and counts the
        noisy labels within each class. ``"anchor"`` takes row k of T from the rows whose probability of
        k is at its ``quantile``; it needs examples that are certainly of each class.
    quantile
        The quantile that counts as certain, for ``"anchor"``.

    Returns
    -------
    The estimated :class:`NoiseModel`.

    Warns
    -----
    IdentifiabilityWarning
        If T cannot be identified from the data: no row is confidently of some class, the probabilities are
        no more informative than the prior, or labels are not informative under the estimate (Σe ≥ 1).

    Examples
    --------
    >>> estimate_noise([0, 1, 1, 1], y_clean=[0, 0, 1, 1])
    NoiseModel.binary(e_neg=0.5, e_pos=0)
    """
    labels = as_labels(y_noisy, "y_noisy")
    if y_clean is not None:
        clean = as_labels(y_clean, "y_clean")
        check_same_length(y_noisy=labels, y_clean=clean)
        k = max(2, int(max(labels.max(), clean.max())) + 1)
        counts = np.bincount(clean * k + labels, minlength=k * k).reshape(k, k)
        return NoiseModel(_divide_by_row_sums(counts, "no row of `y_clean` is"))
    if pred_proba is None:
        raise InvalidInputError(
            "estimate_noise needs `pred_proba` (out-of-fold probabilities, shape (n, K)) or `y_clean`; "
            "got neither. sklearn.model_selection.cross_val_predict(..., method='predict_proba') gives them."
        )
    check_choice(method, "method", ("confident", "anchor"))
    certain = check_in_range(quantile, "quantile", 0.5, 1.0)
    table = check_probabilities(pred_proba, len(labels), labels="y_noisy", tolerance=SUM_TOLERANCE)
    as_labels(labels, "y_noisy", n_classes=table.shape[1])
    if len(np.unique(labels)) < 2:
        raise InvalidInputError(
            f"`y_noisy` must hold at least two classes; every label is {int(labels[0])}. "
            "Noise cannot be estimated if only one label occurs."
        )
    proba: FloatArray = table / table.sum(axis=1, keepdims=True, dtype=np.float64)
    if method == "confident":
        noise = NoiseModel(_divide_by_row_sums(confident_joint(proba, labels)[1], "no row is confidently"))
    else:
        noise = NoiseModel(_anchor(proba, certain))
    warn_if_unidentifiable(proba, labels, noise)
    return noise


def confident_joint(proba: NDArray[Any], codes: IntArray) -> tuple[FloatArray, FloatArray]:
    """Count confident rows by class and noisy label.

    Row n counts for class k if its probability of k is at least the mean of that probability among rows
    labelled k. If it qualifies for several classes, the most probable one counts.

    Parameters
    ----------
    proba
        *Out-of-fold* probabilities of the noisy labels, shape (n, K); read in blocks and never copied.
    codes
        Noisy labels 0..K-1, shape (n,).

    Returns
    -------
    Two arrays (K, K), rows by class and columns by label: the counts, and the counts with each column scaled
    to the observed number of its label, whichever rows qualified.
    """
    n, k = proba.shape
    given = np.bincount(codes, minlength=k).astype(np.float64)
    total = np.bincount(codes, take(proba, codes), minlength=k)
    thresholds = np.divide(total, given, out=np.full(k, np.inf), where=given > 0) - ROUNDING
    best = np.empty(n, dtype=np.int64)
    confident = np.empty(n, dtype=bool)
    for rows in blocks(n, k):
        block = proba[rows]
        qualified = np.where(block >= thresholds, block, -1.0)
        best[rows] = qualified.argmax(axis=1)
        confident[rows] = take(qualified, best[rows]) >= 0.0
    pairs = best[confident] * k + codes[confident]
    joint = np.bincount(pairs, minlength=k * k).reshape(k, k).astype(np.float64)
    columns = joint.sum(axis=0)
    return joint, joint * np.divide(given, columns, out=np.zeros(k), where=columns > 0)


def explain_chance_level(proba: NDArray[Any], codes: IntArray, weight: FloatArray | None = None) -> str:
    """Return a message if the probabilities predict the labels no better than chance, else ``""``.

    The measure is the peer score of the probabilities, mean P(ỹ_n | x_n) − Σ_k π̃_k P(k | x_n), which must
    exceed two standard errors. It also works if the most probable class is the same on every row, as it can
    be with unbalanced labels. ``weight`` has the weights of the rows.
    """
    n, k = proba.shape
    share = as_shares(weight, n)
    given = take(proba, codes)
    prior = label_frequencies(codes, k, weight)
    chance = np.asarray(proba @ prior.astype(proba.dtype if proba.dtype.kind == "f" else float), dtype=float)
    gain = given - chance
    mean = float(share @ gain)
    error = float(np.sqrt(share**2 @ (gain - mean) ** 2))
    if mean > 2 * error + 1e-12:
        return ""
    return (
        f"the model predicts the given labels no better than chance (mean probability {share @ given:.3f}, "
        f"by chance {share @ chance:.3f} ± {error:.3f})"
    )


def warn_unidentifiable(reason: str) -> None:
    """Warn that T cannot be identified, with the reason."""
    warn_caller(
        f"T cannot be identified from these data: {reason}. Use a better model, more rows, or a few clean "
        "labels (`y_clean`); peer loss itself needs no T.",
        IdentifiabilityWarning,
    )


def warn_if_unidentifiable(
    proba: NDArray[Any], codes: IntArray, noise: NoiseModel, weight: FloatArray | None = None
) -> None:
    """Warn if probabilities are at chance level, or labels carry no information under the estimated T."""
    if reason := explain_chance_level(proba, codes, weight):
        warn_unidentifiable(reason)
    if not noise.is_informative:
        warn_unidentifiable(f"under the estimate {noise!r} labels are not informative (Σe ≥ 1)")


def _anchor(proba: FloatArray, quantile: float) -> FloatArray:
    matrix = np.empty((proba.shape[1],) * 2)
    for c in range(proba.shape[1]):
        top = proba[:, c] >= np.quantile(proba[:, c], quantile)
        matrix[c] = proba[top].mean(axis=0)
        if matrix[c].argmax() != c:
            other = int(matrix[c].argmax())
            warn_unidentifiable(
                f"no row is certainly of class {c}: on the rows most confidently of it, class {other} is "
                "more probable"
            )
    return matrix


def _divide_by_row_sums(counts: NDArray[Any], absence: str) -> FloatArray:
    """Return shares within each row; a row of zeros becomes noise-free, with a warning."""
    totals = counts.sum(axis=1, keepdims=True)
    if empty := np.flatnonzero(totals == 0).tolist():
        warn_unidentifiable(f"{absence} of class {empty}; those rows of T are taken as noise-free")
    return np.where(totals > 0, counts / np.where(totals > 0, totals, 1.0), np.eye(len(counts)))
