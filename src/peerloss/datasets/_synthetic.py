"""Generate synthetic data: Breiman's twonorm and waveform, and two circles in the plane."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from peerloss._random import RandomState, as_generator
from peerloss._validation import check_count, check_in_range

if TYPE_CHECKING:
    from peerloss._validation import FloatArray, IntArray


def make_twonorm(
    n_positive: int = 3703, n_negative: int = 3697, *, random_state: RandomState = 0
) -> tuple[FloatArray, IntArray]:
    """Draw two normal clouds in 20 dimensions, N(+a·1, I) for class 1 and N(−a·1, I) for 0, a = 2/√20.

    The Bayes error is Φ(−2) = 2.3 %. ``n_positive`` and ``n_negative`` are the numbers of rows of class 1
    and of class 0; the defaults are those of the data set that the paper used.
    """
    y = _labels(n_positive, n_negative)
    centre = 2.0 / np.sqrt(20.0)
    noise = as_generator(random_state).normal(size=(len(y), 20))
    return noise + np.where(y == 1, centre, -centre)[:, None], y


def make_waveform(
    n_positive: int = 1647, n_negative: int = 3353, *, random_state: RandomState = 0
) -> tuple[FloatArray, IntArray]:
    """Draw noisy mixtures of two out of three triangular waves, 21 points each.

    With h1, h2, h3 triangles of height 6 around points 11, 15 and 7, class 1 mixes h1 and h3; class 0 mixes
    h1 and h2 or h2 and h3, equally often. ``n_positive`` and ``n_negative`` are the numbers of rows of class
    1 and of class 0; the defaults are those of the data set that the paper used.
    """
    y = _labels(n_positive, n_negative)
    rng = as_generator(random_state)
    points = np.arange(1, 22)
    h1, h2, h3 = (np.maximum(6.0 - np.abs(points - peak), 0.0) for peak in (11, 15, 7))
    mix = rng.random((len(y), 1))
    second = (np.arange(len(y)) % 2 == 0)[:, None]
    negative = np.where(second, mix * h1 + (1 - mix) * h2, mix * h2 + (1 - mix) * h3)
    waves = np.where((y == 1)[:, None], mix * h1 + (1 - mix) * h3, negative)
    return waves + rng.normal(size=waves.shape), y


def make_two_circles(
    n_positive: int = 1000,
    n_negative: int = 1000,
    *,
    inner_radius: float = 0.5,
    spread: float = 0.1,
    random_state: RandomState = 0,
) -> tuple[FloatArray, IntArray]:
    """Draw random points on two circles around the origin: class 1 on the inner, class 0 on radius 1.

    Parameters
    ----------
    n_positive, n_negative
        Number of points on the inner and on the outer circle.
    inner_radius
        Radius of the inner circle, between 0 and 1.
    spread
        Standard deviation of the normal noise added to both coordinates.
    random_state
        Seed or generator of the points.
    """
    y = _labels(n_positive, n_negative)
    check_in_range(inner_radius, "inner_radius", 0.0, 1.0, low_open=True, high_open=True)
    check_in_range(spread, "spread", 0.0, math.inf, high_open=True)
    rng = as_generator(random_state)
    angle = rng.uniform(0.0, 2.0 * np.pi, len(y))
    circle = np.where(y == 1, inner_radius, 1.0)[:, None] * np.column_stack([np.cos(angle), np.sin(angle)])
    return circle + spread * rng.normal(size=circle.shape), y


def _labels(n_positive: int, n_negative: int) -> IntArray:
    check_count(n_positive, "n_positive")
    check_count(n_negative, "n_negative")
    return np.repeat(np.array([1, 0], dtype=np.int64), [n_positive, n_negative])
