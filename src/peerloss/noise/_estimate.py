"""Estimate T from noisy labels with predicted probabilities, or from pairs of clean and noisy labels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from peerloss._probabilities import check_probabilities
from peerloss._validation import (
    FloatArray,
    IntArray,
    as_labels,
    check_choice,
    check_in_range,
    check_same_length,
)
from peerloss.exceptions import InvalidInputError
from peerloss.noise._model import NoiseModel
from peerloss.noise.confident import confident_joint, warn_if_unidentifiable, warn_unidentifiable

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

METHODS = ("confident", "anchor")


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
        return _from_pairs(labels, as_labels(y_clean, "y_clean"))
    if pred_proba is None:
        raise InvalidInputError(
            "estimate_noise needs `pred_proba` (out-of-fold probabilities, shape (n, K)) or `y_clean`; "
            "got neither. sklearn.model_selection.cross_val_predict(..., method='predict_proba') gives them."
        )
    check_choice(method, "method", METHODS)
    certain = check_in_range(quantile, "quantile", 0.5, 1.0)
    table = _check_probabilities(pred_proba, labels)
    noise = NoiseModel(_confident(table, labels) if method == "confident" else _anchor(table, certain))
    warn_if_unidentifiable(table, labels, noise)
    return noise


def _from_pairs(y_noisy: IntArray, y_clean: IntArray) -> NoiseModel:
    check_same_length(y_noisy=y_noisy, y_clean=y_clean)
    k = max(2, int(max(y_noisy.max(), y_clean.max())) + 1)
    counts = np.zeros((k, k))
    np.add.at(counts, (y_clean, y_noisy), 1.0)
    absent = np.flatnonzero(counts.sum(axis=1) == 0)
    if absent.size:
        warn_unidentifiable(
            f"no row of `y_clean` is of class {absent.tolist()}; those rows of T are taken as noise-free"
        )
    return NoiseModel(_divide_by_row_sums(counts))


def _check_probabilities(pred_proba: ArrayLike, labels: IntArray) -> FloatArray:
    """Return the probabilities with rows that sum to 1, as a copy."""
    table = check_probabilities(pred_proba, len(labels), labels="y_noisy")
    as_labels(labels, "y_noisy", n_classes=table.shape[1])
    if len(np.unique(labels)) < 2:
        raise InvalidInputError(
            f"`y_noisy` must hold at least two classes; every label is {int(labels[0])}. "
            "Noise cannot be estimated if only one label occurs."
        )
    probabilities: FloatArray = table / table.sum(axis=1, keepdims=True, dtype=np.float64)
    return probabilities


def _confident(table: FloatArray, labels: IntArray) -> FloatArray:
    _, counts = confident_joint(table, labels)
    empty = np.flatnonzero(counts.sum(axis=1) == 0)
    if empty.size:
        warn_unidentifiable(
            f"no row is confidently of class {empty.tolist()}; those rows of T are taken as noise-free"
        )
    return _divide_by_row_sums(counts)


def _anchor(table: FloatArray, quantile: float) -> FloatArray:
    matrix = np.empty((table.shape[1],) * 2)
    for c in range(table.shape[1]):
        top = table[:, c] >= np.quantile(table[:, c], quantile)
        matrix[c] = table[top].mean(axis=0)
        if matrix[c].argmax() != c:
            other = int(matrix[c].argmax())
            warn_unidentifiable(
                f"no row is certainly of class {c}: on the rows most confidently of it, class {other} is "
                "more probable"
            )
    return matrix


def _divide_by_row_sums(counts: FloatArray) -> FloatArray:
    """Return shares within each row; a row of zeros becomes noise-free."""
    totals = counts.sum(axis=1, keepdims=True)
    return np.where(totals > 0, counts / np.where(totals > 0, totals, 1.0), np.eye(len(counts)))
