"""What to expect from training on audited labels, and whether the conditions of peer loss hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import norm

from peerloss.exceptions import NotIdentifiableError
from peerloss.theory import excess_risk_bound, is_categorical, optimal_alpha_from_noisy_prior

if TYPE_CHECKING:
    from peerloss._validation import FloatArray
    from peerloss.noise import NoiseModel
    from peerloss.posterior.label_posterior import LabelPosterior

#: The bound is for the best of this many classifiers, about as many as a search compares.
N_CLASSIFIERS = 100
CONFIDENCE = 0.95
#: The confidence of the intervals of T, entry by entry.
ENTRY_CONFIDENCE = 0.9
#: Entries of T that differ by less than this are equal.
ROUNDING = 1e-9


@dataclass(frozen=True)
class Outlook:
    """Whether peer loss applies to the labels, and what to expect from training on them."""

    applies: bool
    """For more than two classes: whether the conditions hold within the uncertainty of the estimated noise.
    With few rows this is weak evidence."""
    why: str
    """The condition that holds or fails, in the paper's symbols."""
    sum_of_rates: float | None
    """Σ_j e_j. If T has no such rates (more than two classes), e_j is the mean of column j off the
    diagonal."""
    sign_is_identity: bool | None
    """Whether Sgn(Δ) = I: each label is positively correlated with its own class only. For two classes this
    is Σe < 1. For more it is not sufficient for peer loss to apply."""
    alpha: float | None
    """α* at the estimated noise (with more than two classes within its uncertainty); ``None`` if no α*
    exists."""
    bound: float | None
    """With 95 % probability, the best of 100 classifiers by α*-peer loss is worse than the truly best of them
    by at most this (Theorem 5); ``None`` if the theorem does not apply."""
    accuracy_as_labelled: float
    """Expected clean accuracy of a model that takes the labels as they are."""
    accuracy_corrected: float
    """Expected clean accuracy of a model that accounts for the noise."""

    @property
    def headline(self) -> str:
        """The expected accuracies in words, and which method to use; ``theory`` has the reasons."""
        gain = round(100 * (self.accuracy_corrected - self.accuracy_as_labelled), 1) + 0.0  # never -0.0
        text = (
            f"A model trained on these labels is expected to be right in {self.accuracy_as_labelled:.1%} of "
            f"the rows, and in {self.accuracy_corrected:.1%} if training accounts for the wrong labels "
            f"({gain:+.1f} points)."
        )
        if self.sum_of_rates is None:
            return f"{text} Whether peer loss applies is unknown."
        if self.applies and gain <= 0.0:
            return f"{text} Training with peer loss is not expected to help here."
        if self.applies:
            return f"{text} Peer loss applies to these labels."
        return f"{text} Peer loss does not apply to these labels."

    @property
    def theory(self) -> str:
        """Which conditions of the paper hold, and its bound, in the paper's symbols."""
        if self.bound is None or self.bound >= 1.0:
            return self.why
        return (
            f"{self.why} Excess error at most {self.bound:.1%} (95 %, best of {N_CLASSIFIERS} classifiers)."
        )

    def __str__(self) -> str:
        return self.headline


def assess_training(posterior: LabelPosterior, noisy_prior: FloatArray, n_rows: int) -> Outlook:
    """Check the paper's conditions on the estimated noise.

    Two classes need Σe < 1. More classes also need T[i, j] = e_j for i ≠ j and an α* that makes e_j − α·π̃_j
    the same for all j (α* = 1 for equally frequent classes, 0 for equal rates). Both must hold within the
    uncertainty of T. Sgn(Δ) = I is not sufficient.
    """
    noise, accuracies = posterior.noise, (posterior.accuracy_as_labelled, posterior.accuracy_corrected)
    if noise is None:
        why = "Whether peer loss applies is unknown: the noise rates cannot be estimated."
        return Outlook(False, why, None, None, None, None, *accuracies)
    total = float((noise.transition.sum() - np.trace(noise.transition)) / (noise.n_classes - 1))
    joint = posterior.clean_prior[:, None] * noise.transition
    categorical = bool(is_categorical(joint / joint.sum()))
    if noise.n_classes == 2:
        alpha, has_rates, applies = _alpha(noise, noisy_prior), True, total < 1.0
    else:
        has_rates, alpha = _rates_and_alpha(posterior, noise, noisy_prior)
        alpha = alpha if total < 1.0 else None
        applies = alpha is not None
    why = _why(noise.n_classes, total, alpha, has_rates=has_rates)
    bound = None
    if alpha is not None and noise.column_rates is not None:
        worst = excess_risk_bound(
            n_rows, noise, alpha=alpha, confidence=CONFIDENCE, n_hypotheses=N_CLASSIFIERS
        )
        bound = min(1.0, worst)
    return Outlook(applies, why, total, categorical, alpha, bound, *accuracies)


def _alpha(noise: NoiseModel, noisy_prior: FloatArray) -> float | None:
    try:
        return float(optimal_alpha_from_noisy_prior(noise, noisy_prior))
    except NotIdentifiableError:
        return None


def _rates_and_alpha(
    posterior: LabelPosterior, noise: NoiseModel, noisy_prior: FloatArray
) -> tuple[bool, float | None]:
    """Return whether T[i, j] = e_j, and the α* at which e_j = c + α·π̃_j, within the uncertainty of T.

    The 90 % intervals of the K(K − 1) entries off the diagonal are widened so that they hold jointly
    (Bonferroni's correction).
    """
    off_diagonal = ~np.eye(noise.n_classes, dtype=bool)
    width = np.full(off_diagonal.shape, ROUNDING)
    if posterior.noise_low is not None and posterior.noise_high is not None:
        joint_tail = (1.0 - CONFIDENCE) / (2.0 * off_diagonal.sum())
        widen = norm.isf(joint_tail) / norm.isf((1.0 - ENTRY_CONFIDENCE) / 2.0)
        width = np.maximum(widen * (posterior.noise_high - posterior.noise_low) / 2.0, ROUNDING)
    weight = off_diagonal / width**2
    column_weight = weight.sum(axis=0)
    rates: FloatArray = (weight * noise.transition).sum(axis=0) / column_weight

    def fits(column_rates: FloatArray) -> bool:
        return bool((np.abs(noise.transition - column_rates) <= width)[off_diagonal].all())

    prior = noisy_prior - np.average(noisy_prior, weights=column_weight)
    spread = float(column_weight @ prior**2)
    slope = float(column_weight @ (prior * rates)) / spread if spread > 0.0 else 0.0
    # Nearly balanced labels do not determine α: a value between 0 and 1 is preferred if it fits.
    for alpha in (float(np.clip(slope, 0.0, 1.0)), slope):
        if fits(np.average(rates, weights=column_weight) + alpha * prior):
            return True, alpha
    return fits(rates), None


def _why(n_classes: int, total: float, alpha: float | None, *, has_rates: bool) -> str:
    if total >= 1.0:
        return f"Peer loss does not apply: Σe = {total:.2f} is not below 1, labels are no better than chance."
    if n_classes == 2:
        return f"Peer loss applies: Σe = {total:.2f} < 1."
    if alpha is not None:
        return (
            f"Peer loss applies: Σe = {total:.2f} < 1 and, within the uncertainty of the estimate, a wrong "
            f"label is equally probable from every class (T[i, j] = e_j); α* = {alpha:.2f}."
        )
    if has_rates:
        return (
            f"Peer loss does not apply to accuracy: Σe = {total:.2f} and T[i, j] = e_j within the "
            "uncertainty of the estimate, but for no α does peer loss rank classifiers in the same order as "
            "accuracy (e_j − α·π̃_j differs between classes). Correct with T (forward or backward correction)."
        )
    return (
        f"Peer loss does not apply as it is: Σe = {total:.2f}, but some wrong labels are more probable from "
        "one class than from another (T[i, j] ≠ e_j). Merge classes that are confused, or correct with T "
        "(forward or backward correction)."
    )
