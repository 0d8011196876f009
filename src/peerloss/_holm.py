"""Holm's correction of p-values for multiple tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from peerloss._validation import FloatArray


def holm_correction(p_values: ArrayLike) -> FloatArray:
    """Correct p-values for their number (Holm 1979), which bounds the probability of any false positive.

    >>> holm_correction([0.01, 0.04, 0.03]).tolist()
    [0.03, 0.06, 0.06]
    """
    p = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(p, kind="stable")
    corrected: FloatArray = np.empty_like(p)
    corrected[order] = np.minimum(np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)), 1.0)
    return corrected
