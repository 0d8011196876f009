"""Holm's correction of p-values for multiple tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from peerloss._validation import FloatArray


def holm(p_values: ArrayLike) -> FloatArray:
    """Return p-values corrected for their number, in the order of the input.

    The correction controls the family-wise error rate. The k-th smallest of n p-values is multiplied by
    n − k + 1; then the products are made monotone and limited to 1.

    References
    ----------
    Holm (1979). A simple sequentially rejective multiple test procedure.

    Examples
    --------
    >>> holm([0.01, 0.04, 0.03])
    array([0.03, 0.06, 0.06])
    """
    p = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(p, kind="stable")
    corrected = np.empty_like(p)
    corrected[order] = np.minimum(np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)), 1.0)
    return corrected
