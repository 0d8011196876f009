"""Split a sum of money by truthful scores, to the cent."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from peerloss._validation import as_float_array
from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from peerloss._validation import FloatArray, IntArray

#: Above this a float no longer tells cents apart: 10¹³ units of currency.
MAX_CENTS = 10**15

#: Relative error of a share, with room to spare.
ROUNDING = 1e-12


def split_budget(weights: ArrayLike, budget: float | str | Decimal) -> FloatArray:
    """Divide ``budget`` in proportion to the non-negative part of ``weights``, in whole cents.

    Every share is rounded down to the cent; the cents left over go one each to the largest remainders, the
    first of equals first. The payments sum to the budget exactly.

    Parameters
    ----------
    weights
        One number a worker; what is negative or nan is paid nothing.
    budget
        The sum, positive and in whole cents.

    Returns
    -------
    The payment of each worker.

    Raises
    ------
    InvalidInputError
        If the budget is not a positive sum in whole cents, or no weight is positive.

    Examples
    --------
    >>> split_budget([1, 1, 1, -2], 100).tolist()
    [33.34, 33.33, 33.33, 0.0]
    """
    cents = check_budget(budget)
    share = np.maximum(as_float_array(pd.Series(weights).fillna(0.0), "weights", ndim=1), 0.0)
    if not share.any():
        raise InvalidInputError(
            "`budget` cannot be split: nobody's truthful score is above zero. Collect more reports on shared "
            "tasks, or pay equally."
        )
    exact = share / share.sum() * cents
    paid: IntArray = np.floor(exact * (1 - ROUNDING)).astype(np.int64)  # never above the exact share
    largest = np.argsort(paid - exact, kind="stable")
    paid[largest[: cents - int(paid.sum())]] += 1
    return np.asarray(paid / 100.0)


def check_budget(budget: Any) -> int:
    """Return a sum of money in cents."""
    try:
        cents = Decimal(str(budget)) * 100
        whole = cents == cents.to_integral_value()
    except InvalidOperation:
        cents, whole = Decimal(0), False
    if not whole or not 0 < cents <= MAX_CENTS:
        raise InvalidInputError(
            f"`budget` must be a positive sum in whole cents; got {budget!r}. For example 100 or 99.50."
        )
    return int(cents)
