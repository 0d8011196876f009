"""What estimators of T share: the confident joint, and whether the noise can be identified.

For use inside the library: input is not checked.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from peerloss._probabilities import blocks, label_frequencies, take
from peerloss.exceptions import IdentifiabilityWarning

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from peerloss._validation import FloatArray, IntArray
    from peerloss.noise._model import NoiseModel

#: Probabilities this much below a threshold pass it: the mean of equal numbers may be rounded above them.
ROUNDING = 1e-6


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


def explain_chance_level(proba: NDArray[Any], codes: IntArray) -> str:
    """Return a message if the probabilities predict the labels no better than chance, else ``""``.

    The measure is the peer score of the probabilities, mean P(ỹ_n | x_n) − Σ_k π̃_k P(k | x_n), which must
    exceed two standard errors. It also works if the most probable class is the same on every row, as it can
    be with unbalanced labels.
    """
    n, k = proba.shape
    given = take(proba, codes)
    prior = label_frequencies(codes, k)
    chance = np.asarray(proba @ prior.astype(proba.dtype if proba.dtype.kind == "f" else float), dtype=float)
    gain = given - chance
    error = float(gain.std() / np.sqrt(n))
    if float(gain.mean()) > 2 * error + 1e-12:
        return ""
    return (
        f"the model predicts the given labels no better than chance (mean probability {given.mean():.3f}, "
        f"by chance {chance.mean():.3f} ± {error:.3f})"
    )


def warn_unidentifiable(reason: str) -> None:
    """Warn that T cannot be identified, with the reason; the stack level is that of ``estimate_noise``."""
    warnings.warn(
        f"T cannot be identified from these data: {reason}. Use a better model, more rows, or a few clean "
        "labels (`y_clean`); peer loss itself needs no T.",
        IdentifiabilityWarning,
        stacklevel=4,
    )


def warn_if_unidentifiable(proba: NDArray[Any], codes: IntArray, noise: NoiseModel) -> None:
    """Warn if probabilities are at chance level, or labels carry no information under the estimated T."""
    if reason := explain_chance_level(proba, codes):
        warn_unidentifiable(reason)
    if not noise.is_informative:
        warn_unidentifiable(f"under the estimate {noise!r} labels are not informative (Σe ≥ 1)")
