"""The confident joint: noisy labels counted among rows of which a model is confident.

For use inside the library: input is not checked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from peerloss._probabilities import blocks, take

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from peerloss._validation import FloatArray, IntArray

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
