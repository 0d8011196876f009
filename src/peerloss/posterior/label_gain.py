"""What one more label of a row is worth: the information that it gives about the clean class.

With q the posterior of the clean class, given everything that is known about the row, and A[k, l] the
probability that a person labels class k as l, the gain is the expected reduction of the entropy of q,

    gain = H(q) − Σ_l m_l·H(q after label l) = H(m) − Σ_k q_k·H(A[k]),    m = q A,

in bits: the mutual information of clean class and label. It is 0 if the class is known or the person guesses,
and H(q) if the person is always right.

The expected reduction of the number of wrong labels, Σ_l max_k q_k·A[k, l] − max_k q_k, is 0 for every row
whose decision a single label cannot change, although two labels could; the information has no such ties.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from peerloss._probabilities import row_sums

if TYPE_CHECKING:
    from peerloss._validation import FloatArray


def expected_gain(clean: FloatArray, annotator: FloatArray | float) -> FloatArray:
    """Return the expected gain of one more label of each row, in bits, shape (n,).

    Parameters
    ----------
    clean
        P(clean = k | what is known about the row), shape (n, K).
    annotator
        P(label | clean) of the person who labels, shape (K, K); or the probability that the label is right,
        if all wrong labels are equally probable.
    """
    k = clean.shape[1]
    if np.ndim(annotator) == 0:
        right, wrong = float(annotator), (1.0 - float(annotator)) / max(k - 1, 1)
        label = wrong + (right - wrong) * clean
        doubt: FloatArray | float = float(entropy(np.array([[right, *[wrong] * (k - 1)]]))[0])
    else:
        matrix = np.asarray(annotator, dtype=np.float64)
        label, doubt = clean @ matrix, clean @ entropy(matrix)
    return np.maximum(entropy(label) - doubt, 0.0)


def entropy(proba: FloatArray) -> FloatArray:
    """Return the entropy of each row, in bits, shape (n,)."""
    return np.asarray(-row_sums(proba * np.log2(np.maximum(proba, 1e-300))))
