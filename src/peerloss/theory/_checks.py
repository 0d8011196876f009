"""Checks shared by the statements: two classes, informative noise, numbers that may not be negative."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from peerloss._validation import FloatArray, check_finite
from peerloss.exceptions import InvalidInputError, NotIdentifiableError
from peerloss.noise import NoiseModel, as_noise_model

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

#: Differences up to this are rounding: sums of a few products of numbers under 1.
ROUNDING = 1e-12

#: How closely an α must satisfy an equation of the paper to count as satisfying it.
EQUATION_TOLERANCE = 1e-9


def column_rates_of(noise: NoiseModel) -> FloatArray:
    """Return the e_j with ``T[i, j] = e_j`` for all i ≠ j, or raise an error if there are none."""
    rates = noise.column_rates
    if rates is None:
        raise NotIdentifiableError(
            "`noise` must satisfy T[i, j] = e_j for every i ≠ j (every binary and every uniform noise does); "
            f"got {noise!r}, for which no e_j exist (as for pair flip with more than two classes). "
            "Peer loss is not invariant under it: use backward or forward correction with T instead."
        )
    return rates


def informative_factor(noise: NoiseModel | ArrayLike) -> float:
    """Return 1 − Σe, refusing noise for which it does not exist or is not positive."""
    model = as_noise_model(noise)
    factor = 1.0 - float(column_rates_of(model).sum())
    if factor <= ROUNDING:
        raise NotIdentifiableError(
            f"`noise` must be informative, Σe < 1; got {model!r} with Σe = {1.0 - factor:g}. "
            "At Σe = 1 the labels carry no information; above it they are reversed: swap the label codes."
        )
    return factor


def binary_noise(noise: NoiseModel | ArrayLike) -> NoiseModel:
    """Return ``noise`` as a model of two classes."""
    model = as_noise_model(noise)
    if model.n_classes != 2:
        raise InvalidInputError(
            f"`noise` must have two classes for this statement; got {model.n_classes}. "
            "Merge classes, or look at one class against the rest."
        )
    return model


def check_non_negative(value: Any, name: str, *, positive: bool = False) -> float:
    """Return ``value`` as a finite float that is at least 0, or above 0 if ``positive``."""
    number = check_finite(value, name)
    if number < 0.0 or (positive and number == 0.0):
        wanted = "positive" if positive else "zero or positive"
        raise InvalidInputError(f"`{name}` must be {wanted}; got {number:g}. Pass a number such as 1.0.")
    return number


def is_same(first: float, second: float) -> bool:
    """Return whether two numbers are equal up to ``EQUATION_TOLERANCE``."""
    return math.isclose(first, second, rel_tol=0.0, abs_tol=EQUATION_TOLERANCE)
