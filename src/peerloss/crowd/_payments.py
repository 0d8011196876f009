"""Turn scores into money: affine payments, which keep the incentive, and a budget split, which does not."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from peerloss._validation import as_float_array, check_count, check_finite, check_in_range, check_same_length
from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from peerloss._validation import FloatArray, IntArray

#: Floats represent every cent up to this sum, 10¹³ units of currency.
MAX_CENTS = 10**15
#: Upper bound on the relative rounding error of a share.
ROUNDING = 1e-12
#: Payments are rounded to these decimals of a cent before they are rounded down, so that 0.29 is 29 cents.
CENT_DECIMALS = 6


def payment_terms(
    budget: float | str | Decimal, n_reports: int, *, floor: float = 0.0
) -> tuple[float, float]:
    """Return the ``base`` and ``rate`` of :func:`affine_payments` that never cost more than ``budget``.

    A score lies in [−1, 1], so a report costs at least base − rate and at most base + rate. The terms solve
    ``base − rate = floor`` and ``n_reports · (base + rate) = budget``. They depend only on the number of
    reports, not on their labels: fix them before the work starts.

    Parameters
    ----------
    budget
        The worst-case total, positive and in whole cents. The actual total is smaller: reports that do not
        depend on the tasks cost (budget + n_reports · floor)/2 in expectation.
    n_reports
        The number of reports that are paid, over all workers.
    floor
        The least pay per report. If it is negative, a worker can owe money, for example out of a deposit, but
        the same budget allows a larger ``rate``.

    Returns
    -------
    ``base`` and ``rate``, per report.

    Raises
    ------
    InvalidInputError
        If the budget does not exceed ``n_reports`` times the floor, or is not in whole cents.

    Examples
    --------
    >>> payment_terms(100, 200)
    (0.25, 0.25)
    >>> payment_terms(100, 200, floor=0.1)
    (0.3, 0.2)
    """
    total = check_budget(budget) / 100.0
    reports = check_count(n_reports, "n_reports")
    least = check_finite(floor, "floor", advice="Pass the least pay per report, such as 0.05.")
    if not total > reports * least:
        raise InvalidInputError(
            f"`budget` must exceed {reports} reports times the `floor` of {least:g}; got {budget}. "
            "Raise the budget, or lower the floor."
        )
    most = total / reports
    return (most + least) / 2.0, (most - least) / 2.0


def affine_payments(scores: ArrayLike, n_tasks: ArrayLike, *, base: float, rate: float) -> FloatArray:
    """Pay each worker ``n · (base + rate · score)``: the payment that keeps the incentive of the score.

    An increasing affine function of the score is largest in expectation for the same reports as the score.
    With :func:`~peerloss.peer_prediction.correlated_agreement`, a worker who does not look at the tasks
    expects exactly ``n · base``. An honest worker among honest workers expects more if Sgn(Δ) is known or
    estimated correctly (with few tasks the estimate can be wrong: see ``correlated_agreement``). Scores are
    neither clipped nor normalised, because both reward luck: see :func:`untruthful_split`. Fix ``base`` and
    ``rate`` before the reports are seen.

    Parameters
    ----------
    scores
        One score in [−1, 1] per worker, such as the column ``score`` of ``correlated_agreement``. Missing
        scores count as 0.
    n_tasks
        The number of tasks of each worker that are paid.
    base
        The pay per task for a score of 0.
    rate
        The pay per task and unit of score, positive.

    Returns
    -------
    The payment of each worker, not rounded, between ``n · (base − rate)`` and ``n · (base + rate)``.

    Raises
    ------
    InvalidInputError
        If a score lies outside [−1, 1], or the lengths differ.

    Examples
    --------
    >>> base, rate = payment_terms(100, 200)
    >>> affine_payments([0.4, 0.0, -0.1], [80, 80, 40], base=base, rate=rate).round(2).tolist()
    [28.0, 20.0, 9.0]
    """
    score = as_float_array(pd.Series(scores).fillna(0.0), "scores", ndim=1)
    tasks = as_float_array(n_tasks, "n_tasks", ndim=1)
    check_same_length(scores=score, n_tasks=tasks)
    worst = float(score[np.abs(score).argmax()])
    if abs(worst) > 1.0 + ROUNDING:
        raise InvalidInputError(
            f"`scores` must lie in [-1, 1], otherwise the floor and the worst case do not hold; got "
            f"{worst:g}. Use the scores of `correlated_agreement`."
        )
    if (tasks < 0).any():
        raise InvalidInputError(f"`n_tasks` must not be negative; got {tasks.min():g}.")
    fixed = check_finite(base, "base", advice="Use `payment_terms(budget, n_reports)`.")
    slope = check_in_range(rate, "rate", 0.0, np.inf, low_open=True)
    payments: FloatArray = tasks * (fixed + slope * score)
    return payments


def untruthful_split(weights: ArrayLike, budget: float | str | Decimal) -> FloatArray:
    """Divide ``budget`` in proportion to the positive part of ``weights``, which is *not truthful*.

    The payments are in whole cents and sum to the budget exactly, but they do not keep the incentive:
    negative scores are clipped at 0, so bad luck costs nothing, and the pay of a worker depends on the scores
    of all others. Example: ten tasks, P(1) = .05, nine honest workers of accuracy .95, a budget of 100, and
    weights tasks × correlated agreement. A tenth worker earns 8.5 ± 0.3 for honest work (mean and standard
    error of 2,000 draws; no worker is paid if no score is positive), 14.0 ± 0.6 for guessing both labels with
    equal probability and 10.7 ± 0.4 for guessing label 1 in a fifth of the tasks. With
    :func:`affine_payments` and the same worst case of 100 this worker earns 5.39 ± 0.01 for honest work and 5
    in expectation for any guesses.

    Every share is rounded down to the cent. The remaining cents go, one each, to the largest remainders; of
    equal remainders the first comes first.

    Parameters
    ----------
    weights
        One number per worker. Workers with a negative or missing weight are paid nothing.
    budget
        The total, positive and in whole cents.

    Returns
    -------
    The payment of each worker.

    Raises
    ------
    InvalidInputError
        If the budget is not a positive sum in whole cents, or no weight is positive.

    Examples
    --------
    >>> untruthful_split([1, 1, 1, -2], 100).tolist()
    [33.34, 33.33, 33.33, 0.0]
    """
    cents = check_budget(budget)
    share = np.maximum(as_float_array(pd.Series(weights).fillna(0.0), "weights", ndim=1), 0.0)
    if not share.any():
        raise InvalidInputError(
            "`budget` cannot be split: no weight is above zero. Collect more reports on shared tasks, or use "
            "`affine_payments`."
        )
    exact = share / share.sum() * cents
    paid: IntArray = np.floor(exact * (1 - ROUNDING)).astype(np.int64)  # at most the exact share
    largest = np.argsort(paid - exact, kind="stable")
    paid[largest[: cents - int(paid.sum())]] += 1
    return np.asarray(paid / 100.0)


def round_down(payments: FloatArray) -> FloatArray:
    """Round payments down to the cent."""
    cents: FloatArray = np.floor(np.round(payments * 100.0, CENT_DECIMALS))
    return cents / 100.0


def check_budget(budget: Any) -> int:
    """Return an amount of money in cents."""
    try:
        cents = Decimal(str(budget)) * 100
        is_integer = cents == cents.to_integral_value()
    except InvalidOperation:
        cents, is_integer = Decimal(0), False
    if not is_integer or not 0 < cents <= MAX_CENTS:
        raise InvalidInputError(
            f"`budget` must be a positive sum in whole cents; got {budget!r}. For example 100 or 99.50."
        )
    return int(cents)
