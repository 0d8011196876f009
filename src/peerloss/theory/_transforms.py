"""Calibration transforms Ψ: from excess surrogate risk to excess 0-1 risk (Definition 1, Theorem 6)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import xlogy

from peerloss._validation import FloatArray, check_choice, check_finite, check_in_range, check_non_negative
from peerloss.exceptions import InvalidInputError, NotIdentifiableError
from peerloss.theory._optimal_alpha import ROUNDING, informative_factor, is_same

if TYPE_CHECKING:
    from peerloss.noise import NoiseModel

#: A transform Ψ: non-decreasing, convex, Ψ(0) = 0, from numbers or arrays to float arrays of that shape.
Transform = Callable[[ArrayLike], FloatArray]

_SLOPES = {"zero_one": 1.0, "hinge": 1.0, "mae": 1.0, "sigmoid": 0.5, "ramp": 0.5}
_BASES = (
    "cross_entropy",
    "logistic",
    "sigmoid",
    "mae",
    "gce",
    "unhinged",
    "ramp",
    "hinge",
    "squared",
    "margin_square",
    "zero_one",
)

#: Bounded bases with ℓ(f, −y) = C − ℓ(f, y): their minimiser is worst on flipped labels (Theorem 6, condition
#: 1). ``unhinged`` satisfies the identity too, but it is unbounded: it has no minimiser that could be worst.
FLIP_SYMMETRIC_BASES = ("zero_one", "sigmoid", "mae", "ramp")

#: Bases with ℓ''(t, y) = ℓ''(t, −y) that are convex in the margin (Theorem 6, condition 2, and Lemma 4). The
#: paper names the square and the logistic loss. Its square loss is (1 − t)² of the score, ``margin_square``
#: here; the base loss ``squared`` is the Brier score of softmax probabilities, which is not convex in the
#: margin.
SYMMETRIC_CURVATURE_BASES = ("cross_entropy", "logistic", "margin_square", "unhinged")


def calibration_transform(base: str, *, q: float = 0.7) -> Transform:
    """Return Bartlett's ψ of a base loss: the Ψ_ℓ of Definition 1.

    ``ψ(θ) = H⁻((1 + θ)/2) − H((1 + θ)/2)``, with H(η) the least expected loss at P(Y = 1) = η and H⁻ the
    least one with the wrong sign; then ψ(excess 0-1 risk) ≤ excess ℓ-risk for every classifier. In the
    two-class form of the base losses:

    ========================  ==========================================================
    zero_one, hinge, mae      θ
    sigmoid, ramp             θ/2
    logistic, cross_entropy   ((1+θ)/2)·log(1+θ) + ((1−θ)/2)·log(1−θ), at eps = 0
    squared                   θ²/2
    margin_square             θ²
    gce                       [(η^(1/(1−q)) + (1−η)^(1/(1−q)))^(1−q) − 2^(−q)]/q, η = (1+θ)/2
    ========================  ==========================================================

    Parameters
    ----------
    base
        Name of the base loss, or ``"margin_square"``, the square loss (1 − t)² of a score t that the paper
        names after Theorem 6. It exists in theory only: it is not a base loss of :class:`~peerloss.PeerLoss`.
    q
        Exponent of ``gce``, in (0, 1]; other bases ignore it.

    Returns
    -------
    ψ on numbers or arrays in [0, 1].

    Raises
    ------
    NotIdentifiableError
        For ``unhinged``: it is not bounded below, its H is −∞, so it has no ψ.
    InvalidInputError
        For an unknown base, a q outside (0, 1], or (when called) a θ outside [0, 1].

    Examples
    --------
    >>> psi = calibration_transform("logistic")
    >>> [round(float(psi(theta)), 4) for theta in (0.0, 0.5, 1.0)]
    [0.0, 0.1308, 0.6931]

    References
    ----------
    Bartlett, Jordan, McAuliffe (2006), Convexity, classification, and risk bounds.
    """
    name = check_choice(base, "base", _BASES)
    exponent = check_in_range(q, "q", 0.0, 1.0, low_open=True)
    if name == "unhinged":
        raise NotIdentifiableError(
            "`base` 'unhinged' has no calibration transform: the loss 1 − m is not bounded below, so its "
            "least expectation is −∞. Use its bounded relative 'ramp', or bound the margin."
        )

    def transform(theta: ArrayLike) -> FloatArray:
        values = np.asarray(theta, dtype=np.float64)
        if not ((values >= -ROUNDING) & (values <= 1.0 + ROUNDING)).all():
            raise InvalidInputError(
                f"`theta` must lie in [0, 1], being an excess 0-1 risk; got values from {values.min():g} to "
                f"{values.max():g}."
            )
        t = np.clip(values, 0.0, 1.0)
        if name in _SLOPES:
            return _SLOPES[name] * t
        if name in ("squared", "margin_square"):
            return t**2 / (2.0 if name == "squared" else 1.0)
        return _gce_transform(t, exponent) if name == "gce" else _logistic_transform(t)

    return transform


def peer_transform(base_transform: Transform, noise: NoiseModel | ArrayLike, *, alpha: Any) -> Transform:
    """Return Ψ of the α-peer loss, acting on excess noisy α-peer 0-1 risk (proof of Theorem 6).

    α = 1 (condition 1): ``Ψ_peer(u) = (1 − Σe)/2 · Ψ(u/(1 − Σe))``, the paper's (1/c)·Ψ(·/(1 − Σe)).

    α < 1 (condition 2, α = α*): ``Ψ_peer(u) = (1 − α)·Ψ(u/(1 − α))``, and +∞ for u > 1 − α. The paper
    proves that some Ψ exists; this one is our derivation. At x with clean posterior η the expected peer loss
    is a·φ(β) + b·φ(−β) with a + b = 1 − α and a − b = (2η − 1)(1 − Σe), so it is (1 − α) times the
    expected φ at a posterior η' with 2η' − 1 = (2η − 1)(1 − Σe)/(1 − α). Bartlett's inequality at η' and
    Jensen's over x give Ψ_peer, since u = (1 − Σe)·E[1(wrong)·|2η − 1|] = (1 − α)·E[1(wrong)·|2η' − 1|].

    Parameters
    ----------
    base_transform
        Ψ of the base loss, for example from :func:`calibration_transform`.
    noise
        A NoiseModel or a transition matrix, with Σe < 1.
    alpha
        Weight of the peer term, at most 1.

    Returns
    -------
    Ψ_peer on numbers or arrays u ≥ 0; +∞ if no excess that large is possible.

    Raises
    ------
    NotIdentifiableError
        If α > 1 (not covered by Theorem 6) or Σe ≥ 1.
    InvalidInputError
        If (when called) a u is negative.

    Notes
    -----
    For α ≤ Σe the second form holds for every base, for then η' is a probability. For Σe < α < 1 it holds for
    bases unbounded above and bounded below (logistic, hinge), whose expected peer loss is −∞ wherever η'
    leaves [0, 1]. It does not hold there for ``margin_square``, whose expected peer loss stays bounded below:
    its Ψ_peer is u²/(1 − α) also for u > 1 − α, not +∞. α = 1 needs condition 1 (p = ½, and a base of
    ``FLIP_SYMMETRIC_BASES``).

    Examples
    --------
    >>> from peerloss.noise import NoiseModel
    >>> psi = peer_transform(calibration_transform("sigmoid"), NoiseModel.binary(0.1, 0.3), alpha=1.0)
    >>> round(float(psi(0.3)), 12)
    0.075
    """
    factor = informative_factor(noise)
    weight = check_finite(alpha, "alpha")
    if weight > 1.0 and not is_same(weight, 1.0):
        raise NotIdentifiableError(
            f"`alpha` must be at most 1 for a calibration transform; got {weight:g}. Theorem 6 covers α = 1 "
            "at p = ½ and α = α* < 1. Balance the clean classes (then α* = 1), or use Theorem 5."
        )
    at_one = is_same(weight, 1.0)
    scale, outer = (factor, factor / 2.0) if at_one else (1.0 - weight, 1.0 - weight)

    def transform(u: ArrayLike) -> FloatArray:
        values = np.asarray(u, dtype=np.float64)
        if not (values >= 0.0).all():
            raise InvalidInputError(
                f"`u` must be an excess risk, zero or positive; got minimum {values.min():g}."
            )
        theta = values / scale
        inside = np.asarray(base_transform(np.minimum(theta, 1.0)), dtype=np.float64)
        return np.where(theta <= 1.0 + ROUNDING, outer * inside, np.inf)

    return transform


def invert_transform(transform: Transform, value: Any, *, upper: Any = 1.0) -> float:
    """Find the largest excess a transform allows: Ψ⁻¹(value), at most ``upper`` (used by Theorem 7).

    Parameters
    ----------
    transform
        A non-decreasing Ψ with Ψ(0) = 0; it may jump to +∞.
    value
        The excess surrogate risk.
    upper
        Where to stop: the inverse saturates there when Ψ(upper) ≤ value.

    Returns
    -------
    t with Ψ(t) = value, or the place of a jump over it, or ``upper``.

    Raises
    ------
    InvalidInputError
        If ``value`` is negative or ``upper`` is not positive.

    Examples
    --------
    >>> round(invert_transform(calibration_transform("squared"), 0.02), 9)
    0.2
    >>> invert_transform(calibration_transform("squared"), 7.0)
    1.0
    """
    target = check_non_negative(value, "value")
    top = check_non_negative(upper, "upper", positive=True)

    def overshoot(t: float) -> float:
        return min(float(transform(t)) - target, 1.0)  # an infinite Ψ would stop the secant steps

    if overshoot(top) <= 0.0:
        return top
    if overshoot(0.0) >= 0.0:
        return 0.0
    return float(brentq(overshoot, 0.0, top, xtol=1e-15, rtol=1e-14))


def _logistic_transform(t: FloatArray) -> FloatArray:
    exact = xlogy((1.0 + t) / 2.0, 1.0 + t) + xlogy((1.0 - t) / 2.0, 1.0 - t)
    # The two terms cancel near 0: their series keeps the digits (and the sign) there.
    return np.asarray(np.where(t < 1e-3, t**2 / 2.0 + t**4 / 12.0 + t**6 / 30.0, exact), dtype=np.float64)


def _gce_transform(theta: FloatArray, q: float) -> FloatArray:
    if q == 1.0:
        return theta / 2.0
    high = (1.0 + theta) / 2.0
    ratio = (1.0 - theta) / (1.0 + theta)
    # The larger term is taken out of the norm: 1/(1 − q) may be so large that the powers underflow.
    norm = high * (1.0 + ratio ** (1.0 / (1.0 - q))) ** (1.0 - q)
    values: FloatArray = (norm - 2.0**-q) / q
    return np.maximum(values, 0.0)
