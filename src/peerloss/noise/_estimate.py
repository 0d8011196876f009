"""Estimate T from what one has: noisy labels with predicted probabilities, or clean and noisy pairs."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np

from peerloss._validation import (
    PROBABILITY_TOLERANCE,
    FloatArray,
    IntArray,
    as_float_array,
    as_labels,
    check_choice,
    check_in_range,
    check_same_length,
)
from peerloss.exceptions import IdentifiabilityWarning, InvalidInputError
from peerloss.noise._model import NoiseModel

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
        Clean labels of the same rows, where known: T is then counted, and ``pred_proba`` is not needed.
    method
        ``"confident"`` (default) takes row n for class k when its probability of k is at least the mean
        such probability among rows labelled k (the likeliest k when several qualify), and counts noisy
        labels within each class so found. ``"anchor"`` reads row k of T off the rows whose probability of
        k is at its ``quantile``; it needs examples that are certainly of each class.
    quantile
        Which quantile counts as certain, for ``"anchor"``.

    Returns
    -------
    The estimated :class:`NoiseModel`.

    Warns
    -----
    IdentifiabilityWarning
        Where the data cannot tell T: a class that no row is confidently of, probabilities that say no
        more than the prior does, or an estimate under which labels are not informative (Σe ≥ 1).

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
    _warn_if_uninformative(table, labels)
    matrix = _confident(table, labels) if method == "confident" else _anchor(table, certain)
    noise = NoiseModel(matrix)
    if not noise.is_informative:
        _warn(f"the estimate {noise!r} says that labels are not informative (Σe ≥ 1)")
    return noise


def _from_pairs(y_noisy: IntArray, y_clean: IntArray) -> NoiseModel:
    check_same_length(y_noisy=y_noisy, y_clean=y_clean)
    k = max(2, int(max(y_noisy.max(), y_clean.max())) + 1)
    counts = np.zeros((k, k))
    np.add.at(counts, (y_clean, y_noisy), 1.0)
    absent = np.flatnonzero(counts.sum(axis=1) == 0)
    if absent.size:
        _warn(f"no row of `y_clean` is of class {absent.tolist()}; those rows of T are taken as noise-free")
    return NoiseModel(_normalise_rows(counts))


def _check_probabilities(pred_proba: ArrayLike, labels: IntArray) -> FloatArray:
    table = as_float_array(pred_proba, "pred_proba", ndim=2).copy()
    check_same_length(y_noisy=labels, pred_proba=table)
    if table.shape[1] < 2:
        raise InvalidInputError(
            f"`pred_proba` must have one column a class, at least 2; got shape {table.shape}. "
            "For two classes stack 1 − p and p."
        )
    as_labels(labels, "y_noisy", n_classes=table.shape[1])
    off = np.abs(table.sum(axis=1) - 1.0)
    if (table < 0).any() or off.max() > max(PROBABILITY_TOLERANCE, 1e-4):
        row = int(np.argmin(table.min(axis=1))) if (table < 0).any() else int(off.argmax())
        raise InvalidInputError(
            f"`pred_proba` must hold probabilities with rows that sum to 1; row {row} is "
            f"{table[row].tolist()}. Apply a softmax to scores first."
        )
    if len(np.unique(labels)) < 2:
        raise InvalidInputError(
            f"`y_noisy` must hold at least two classes; every label is {int(labels[0])}. "
            "Noise cannot be told from the truth when only one label occurs."
        )
    table /= table.sum(axis=1, keepdims=True)
    return table


def _confident(table: FloatArray, labels: IntArray) -> FloatArray:
    k = table.shape[1]
    present = np.bincount(labels, minlength=k) > 0
    thresholds = np.full(k, np.inf)
    for c in np.flatnonzero(present):
        thresholds[c] = table[labels == c, c].mean()
    qualified = np.where(table >= thresholds, table, -np.inf)
    found = qualified.max(axis=1) > -np.inf
    counts = np.zeros((k, k))
    np.add.at(counts, (qualified.argmax(axis=1)[found], labels[found]), 1.0)
    # Calibrate: each noisy label's column is scaled to its observed count, so that the estimated joint
    # table has the observed noisy prior whichever rows qualified.
    observed = np.bincount(labels, minlength=k).astype(float)
    totals = counts.sum(axis=0)
    counts *= np.divide(observed, totals, out=np.zeros(k), where=totals > 0)
    empty = np.flatnonzero(counts.sum(axis=1) == 0)
    if empty.size:
        _warn(f"no row is confidently of class {empty.tolist()}; those rows of T are taken as noise-free")
    return _normalise_rows(counts)


def _anchor(table: FloatArray, quantile: float) -> FloatArray:
    matrix = np.empty((table.shape[1],) * 2)
    for c in range(table.shape[1]):
        top = table[:, c] >= np.quantile(table[:, c], quantile)
        matrix[c] = table[top].mean(axis=0)
        if matrix[c].argmax() != c:
            likelier = int(matrix[c].argmax())
            _warn(f"no row is certainly of class {c}: even the surest are likelier of class {likelier}")
    return matrix


def _warn_if_uninformative(table: FloatArray, labels: IntArray) -> None:
    """Say so where probabilities and labels are no more associated than chance (two standard errors).

    The measure is the peer score of the probabilities, mean P(ỹ_n | x_n) − Σ_k π̃_k P(k | x_n). It sees what
    the likeliest class alone hides: with unbalanced labels that class can be the same on every row.
    """
    n, k = table.shape
    given = table[np.arange(n), labels]
    chance = table @ (np.bincount(labels, minlength=k) / n)
    gain = given - chance
    error = gain.std() / np.sqrt(n)
    if gain.mean() <= 2 * error + 1e-12:
        _warn(
            f"the given labels have mean probability {given.mean():.3f}, by chance it would be "
            f"{chance.mean():.3f} ± {error:.3f}"
        )


def _normalise_rows(counts: FloatArray) -> FloatArray:
    totals = counts.sum(axis=1, keepdims=True)
    return np.where(totals > 0, counts / np.where(totals > 0, totals, 1.0), np.eye(len(counts)))


def _warn(what: str) -> None:
    warnings.warn(
        f"T cannot be identified from these data: {what}. Use a better model, more rows, or a few clean "
        "labels (`y_clean`); peer loss itself needs no T.",
        IdentifiabilityWarning,
        stacklevel=3,
    )
