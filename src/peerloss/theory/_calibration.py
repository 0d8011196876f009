"""When the α-peer loss is calibrated (Theorem 6) and when its risk is convex (Lemma 4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from peerloss._validation import as_prior, check_finite
from peerloss.theory._optimal_alpha import ROUNDING, binary_noise, informative_factor, is_same

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from peerloss.noise import NoiseModel


@dataclass(frozen=True)
class CalibrationReport:
    """Whether Theorem 6 applies, by which of its conditions, and why or why not."""

    holds: bool
    """Whether one of the two conditions of Theorem 6 holds as printed."""
    condition: int | None
    """1 or 2: the condition that holds; ``None`` if neither does."""
    reasons: tuple[str, ...]
    """Sentences: the conditions that are met or missing, and remarks."""
    bounded_below: bool
    """Whether the expected peer loss is bounded below for *every* distribution and every base φ ≥ 0.

    That is e_neg ≥ α·π̃₁ and e_pos ≥ α·π̃₀; at α = α* it is α ≤ e_neg + e_pos.
    """


@dataclass(frozen=True)
class ConvexityReport:
    """Whether Lemma 4 applies, and whether the expected peer loss is convex at all."""

    holds: bool
    """Whether the condition of Lemma 4 holds as printed."""
    reasons: tuple[str, ...]
    """Sentences: what is missing, or that everything is met, and our remarks."""
    curvature_factor: float
    """1 − α: what the peer term leaves of a symmetric second derivative."""
    convex: bool
    """Whether the expected peer loss of a convex base is convex: wider than Lemma 4 (our finding)."""


def calibration_condition(
    noise: NoiseModel | ArrayLike,
    clean_prior: ArrayLike,
    *,
    alpha: Any,
    symmetric_curvature: bool = True,
    worst_on_flipped: bool | None = None,
) -> CalibrationReport:
    """Check the two sufficient conditions of Theorem 6 for a calibrated α-peer loss.

    (1) α = 1, p = ½, and f*_ℓ is the worst classifier on flipped labels. (2) α < 1, max(e_neg, e_pos) < ½,
    ℓ''(t, y) = ℓ''(t, −y), and ``α(1 − 2p)(1 − Σe) = (1 − α)(e_pos − e_neg)``, which means α = α*.

    Parameters
    ----------
    noise
        Binary noise with Σe < 1.
    clean_prior
        P(Y = 1), or the vector of both probabilities.
    alpha
        Weight of the peer term.
    symmetric_curvature
        Whether the base loss is convex with ℓ''(t, y) = ℓ''(t, −y), as the logistic loss and the square loss
        (1 − t)² are and hinge is not (``SYMMETRIC_CURVATURE_BASES``).
    worst_on_flipped
        Whether E[ℓ(f*_ℓ(X), −Y)] ≥ E[ℓ(f(X), −Y)] for every f (``FLIP_SYMMETRIC_BASES``); ``None`` if
        unknown.

    Returns
    -------
    The verdict with its reasons.

    Raises
    ------
    NotIdentifiableError
        If Σe ≥ 1.
    InvalidInputError
        If the noise is not binary or ``alpha`` is not finite.

    Notes
    -----
    Under condition 2 the expected peer loss is c₁·φ(β) + c₂·φ(−β) with c₁ − c₂ = 1 − Σe and c₁ + c₂ = 1 − α,
    hence c₂ = (Σe − α)/2. The paper then cites Bartlett's theorem, which is for losses bounded below; for a φ
    unbounded above (logistic, hinge) and c₂ < 0 the expected loss falls to −∞ wherever the clean posterior
    exceeds c₁/(c₁ − c₂), no minimiser exists and calibration is vacuous. So condition 2 also needs α* ≤
    e_neg + e_pos: see ``bounded_below``. If that holds, both weights are non-negative, and every convex
    calibrated φ keeps its calibration: neither symmetric curvature nor max(e) < ½ is needed. The square loss
    (1 − t)² does not need it: its expected peer loss is (1 − α)(1 + β²) − 2(c₁ − c₂)(2η − 1)β, which has a
    minimum for every α < 1. Condition 1 is never met by a φ unbounded above, since no f is worst on flipped
    labels then.

    Examples
    --------
    >>> from peerloss.noise import NoiseModel
    >>> noise = NoiseModel.binary(e_neg=0.25, e_pos=0.35)
    >>> report = calibration_condition(noise, 0.25, alpha=1 / 3)
    >>> report.holds, report.condition, report.bounded_below
    (True, 2, True)
    """
    terms = _Terms.of(noise, clean_prior, alpha)
    first = terms.missing_for_first(worst_on_flipped=worst_on_flipped)
    second = terms.missing_for_second(symmetric_curvature=symmetric_curvature)
    condition = None if first and second else 2 if first else 1
    reasons = [f"Condition {condition} of Theorem 6 holds."]
    if condition is None:
        reasons = [f"Condition {n} fails: {'; '.join(why)}." for n, why in ((1, first), (2, second))]
    all_reasons = (*reasons, terms.boundedness())
    return CalibrationReport(condition is not None, condition, all_reasons, terms.bounded_below)


def convexity_condition(
    noise: NoiseModel | ArrayLike, clean_prior: ArrayLike, *, alpha: Any, symmetric_curvature: bool = True
) -> ConvexityReport:
    """Check the sufficient condition of Lemma 4 for a convex expected α-peer loss.

    The condition is (2) of Theorem 6; under it the second derivative in the score is (1 − α)·ℓ''(t).

    Parameters
    ----------
    noise, clean_prior, alpha, symmetric_curvature
        As for :func:`calibration_condition`.

    Returns
    -------
    The verdict with its reasons, and whether the risk is convex by the wider rule below.

    Raises
    ------
    NotIdentifiableError
        If Σe ≥ 1.
    InvalidInputError
        If the noise is not binary or ``alpha`` is not finite.

    Notes
    -----
    The lemma requires more than is needed. At every x the weights of φ(β) and φ(−β) are η̃ − α·π̃₁ and
    (1 − η̃) − α·π̃₀, which sum to 1 − α whatever the noise; so symmetric curvature and α ≤ 1 suffice. Without
    symmetric curvature it is enough that both weights are never negative (e_neg ≥ α·π̃₁, e_pos ≥ α·π̃₀).

    Examples
    --------
    >>> from peerloss.noise import NoiseModel
    >>> report = convexity_condition(NoiseModel.binary(0.1, 0.3), 0.5, alpha=0.5)
    >>> report.holds, report.convex, report.curvature_factor
    (False, True, 0.5)
    """
    terms = _Terms.of(noise, clean_prior, alpha)
    missing = terms.missing_for_second(symmetric_curvature=symmetric_curvature)
    by_curvature = symmetric_curvature and terms.alpha <= 1.0 + ROUNDING
    convex = by_curvature or terms.bounded_below
    reasons = [f"Lemma 4 fails: {'; '.join(missing)}." if missing else "The condition of Lemma 4 holds."]
    if missing and convex:
        rule = "α ≤ 1 with symmetric curvature" if by_curvature else "e_neg ≥ α·π̃₁ and e_pos ≥ α·π̃₀"
        reasons.append(f"The expected peer loss of a convex base is convex all the same: {rule} suffices.")
    return ConvexityReport(not missing, tuple(reasons), 1.0 - terms.alpha, convex)


@dataclass(frozen=True)
class _Terms:
    """The numbers both conditions are about."""

    alpha: float
    e_neg: float
    e_pos: float
    clean_positive: float
    noisy_positive: float

    @classmethod
    def of(cls, noise: NoiseModel | ArrayLike, clean_prior: ArrayLike, alpha: Any) -> _Terms:
        model = binary_noise(noise)
        informative_factor(model)
        weight = check_finite(alpha, "alpha", advice="Use `optimal_alpha(noise, clean_prior)` or 1.0.")
        clean = as_prior(clean_prior, "clean_prior", n_classes=2)
        noisy = model.noisy_prior(clean)
        return cls(weight, model.e_neg, model.e_pos, float(clean[1]), float(noisy[1]))

    @property
    def bounded_below(self) -> bool:
        positive = self.e_neg - self.alpha * self.noisy_positive
        negative = self.e_pos - self.alpha * (1.0 - self.noisy_positive)
        return min(positive, negative) >= -ROUNDING

    def missing_for_first(self, *, worst_on_flipped: bool | None) -> list[str]:
        is_unknown = worst_on_flipped is None
        conditions = {
            f"it needs α = 1, and α = {self.alpha:g}": is_same(self.alpha, 1.0),
            f"it needs p = ½, and p = {self.clean_positive:g}": is_same(self.clean_positive, 0.5),
            "whether f*_ℓ is worst on flipped labels is unknown (pass worst_on_flipped)": not is_unknown,
            "f*_ℓ must be worst on flipped labels, as for zero_one, sigmoid, mae and ramp": (
                is_unknown or worst_on_flipped
            ),
        }
        return [text for text, holds in conditions.items() if not holds]

    def missing_for_second(self, *, symmetric_curvature: bool) -> list[str]:
        left = self.alpha * (1.0 - 2.0 * self.clean_positive) * (1.0 - self.e_neg - self.e_pos)
        right = (1.0 - self.alpha) * (self.e_pos - self.e_neg)
        highest = max(self.e_neg, self.e_pos)
        unequal = f"α(1−2p)(1−Σe) = {left:g} is not (1−α)(e_pos−e_neg) = {right:g}"
        conditions = {
            f"it needs α < 1, and α = {self.alpha:g}": self.alpha < 1.0 and not is_same(self.alpha, 1.0),
            f"it needs rates under ½, and one is {highest:g}": highest < 0.5,
            "the base must have ℓ''(t, y) = ℓ''(t, −y)": symmetric_curvature,
            f"it needs α = α*, and {unequal}": is_same(left, right),
        }
        return [text for text, holds in conditions.items() if not holds]

    def boundedness(self) -> str:
        if self.bounded_below:
            return (
                "The expected peer loss is bounded below for every base that is (α small against the rates)."
            )
        return (
            "For a base unbounded above (logistic, hinge) the expected peer loss has no minimum at confident "
            f"points: α = {self.alpha:g} is too large for Σe = {self.e_neg + self.e_pos:g}; use a bounded "
            "base, clip, or lower α."
        )
