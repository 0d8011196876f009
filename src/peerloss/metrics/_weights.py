"""Weights of rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from peerloss._validation import FloatArray


def as_shares(sample_weight: ArrayLike | None, n_rows: int) -> FloatArray:
    """Return the weights of ``n_rows`` rows as shares that sum to 1; equal shares without weights."""
    weight = np.ones(n_rows) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    if weight.shape != (n_rows,) or not (np.isfinite(weight) & (weight >= 0)).all() or not weight.any():
        raise InvalidInputError(
            f"`sample_weight` must hold {n_rows} non-negative numbers, not all zero; got shape "
            f"{weight.shape}."
        )
    weight = weight / weight.max()  # the sum of huge weights would overflow
    shares: FloatArray = weight / weight.sum()
    return shares
