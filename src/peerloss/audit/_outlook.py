"""What the estimated noise means for training: does peer loss apply, and what can be expected of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from peerloss.exceptions import NotIdentifiableError
from peerloss.theory import excess_risk_bound, is_categorical, optimal_alpha_from_noisy_prior

if TYPE_CHECKING:
    from peerloss._validation import FloatArray
    from peerloss.audit._posterior import LabelPosterior
    from peerloss.noise import NoiseModel

#: The bound is for the best of so many classifiers, about what a search compares.
N_CLASSIFIERS = 100
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Outlook:
    """Whether peer loss applies to the labels, and what to expect of training on them."""

    applies: bool
    why: str
    sum_of_rates: float | None
    """Σ_j e_j; where T has no such rates (more than two classes), e_j is the mean of column j off the
    diagonal."""
    sign_is_identity: bool | None
    """Whether Sgn(Δ) = I: a label goes with its own class only."""
    alpha: float | None
    """α* at the estimated noise; ``None`` where no α* exists."""
    bound: float | None
    """With 95 % probability the best of 100 classifiers by α*-peer loss is worse than the truly best of them
    by no more than this (Theorem 5); ``None`` where the theorem does not apply."""
    accuracy_as_labelled: float
    """Clean accuracy expected of a model that takes the labels as they are."""
    accuracy_corrected: float
    """The same once noise is accounted for."""

    def __str__(self) -> str:
        gain = 100 * (self.accuracy_corrected - self.accuracy_as_labelled)
        told = (
            f"{self.why} Expected accuracy {self.accuracy_as_labelled:.1%} as labelled, "
            f"{self.accuracy_corrected:.1%} with the noise accounted for ({gain:+.1f} points)."
        )
        if self.bound is not None and self.bound < 1.0:
            told += f" Excess error at most {self.bound:.1%} (95 %, best of {N_CLASSIFIERS} classifiers)."
        return told


def look_ahead(posterior: LabelPosterior, noisy_prior: FloatArray, n_rows: int) -> Outlook:
    """Judge the estimated noise by the paper's conditions."""
    noise, accuracies = posterior.noise, (posterior.accuracy_as_labelled, posterior.accuracy_corrected)
    if noise is None:
        why = "Whether peer loss applies cannot be told: the noise cannot be estimated."
        return Outlook(False, why, None, None, None, None, *accuracies)
    total = _sum_of_rates(noise)
    joint = posterior.clean_prior[:, None] * noise.transition
    categorical = bool(is_categorical(joint / joint.sum()))
    alpha = _alpha(noise, noisy_prior)
    bound = None
    if alpha is not None:
        bound = min(
            1.0,
            excess_risk_bound(n_rows, noise, alpha=alpha, confidence=CONFIDENCE, n_hypotheses=N_CLASSIFIERS),
        )
    applies = total < 1.0 and categorical
    return Outlook(
        applies, _why(total, categorical=categorical), total, categorical, alpha, bound, *accuracies
    )


def _sum_of_rates(noise: NoiseModel) -> float:
    k = noise.n_classes
    return float((noise.transition.sum() - np.trace(noise.transition)) / (k - 1))


def _alpha(noise: NoiseModel, noisy_prior: FloatArray) -> float | None:
    try:
        if noise.sum_of_rates >= 1.0:
            return None
        return float(optimal_alpha_from_noisy_prior(noise, noisy_prior))
    except NotIdentifiableError:
        return None


def _why(total: float, *, categorical: bool) -> str:
    rates = f"Σe = {total:.2f}"
    if total >= 1.0:
        return f"Peer loss does not apply: {rates} is not under 1, labels say no more than chance."
    if not categorical:
        return (
            f"Peer loss does not apply as it is: {rates}, but some label goes with another class more than "
            "by chance (Sgn(Δ) ≠ I). Merge such classes, or use correlated agreement with Sgn(Δ)."
        )
    return f"Peer loss applies: {rates} < 1 and Sgn(Δ) = I."
