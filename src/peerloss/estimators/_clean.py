"""From the noisy posterior of the portfolio to clean probabilities, α and an estimate of clean accuracy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from peerloss._validation import check_finite
from peerloss.estimators._calibration import clean_proba
from peerloss.noise import CleanPosterior, NoiseModel, estimate_noise, fit_clean_posterior
from peerloss.theory import (
    optimal_alpha_from_noisy_prior,
    optimal_alpha_of_weighted,
    unbalancing_label_weights,
)

if TYPE_CHECKING:
    from peerloss._validation import BoolArray, FloatArray, IntArray

#: Probabilities are kept this far from 0 and 1 before log-odds are taken.
CLIP = 1e-3
#: Noisy labels with |δ_p̃| below this are taken for balanced: α* = d/δ_p̃ would be large and unsteady.
NEAR_BALANCE = 0.05
#: The most that undoing the noise may multiply errors by.
MAX_GAIN = 20.0


@dataclass(frozen=True)
class CleanMap:
    """What turns noisy into clean probabilities; its argmax is the decision."""

    metric: str
    alpha: float | None
    """A number given by the user, or ``None`` for the library's rule."""
    noisy_prior: FloatArray
    noise: NoiseModel
    """Estimated noise."""
    posterior: CleanPosterior | None
    """For two classes; carries the uncertainty of the rates."""

    @classmethod
    def fit(
        cls,
        proba: FloatArray,
        codes: IntArray,
        weight: FloatArray,
        *,
        metric: str,
        alpha: float | None,
        noisy_prior: FloatArray,
        gold: tuple[IntArray, IntArray] | None,
        verified: BoolArray | None,
    ) -> CleanMap:
        """Estimate the noise from out-of-fold noisy probabilities and labels."""
        if proba.shape[1] == 2:
            posterior = fit_clean_posterior(
                codes, log_odds(proba), weight=weight, gold=gold, verified=verified
            )
            return cls(metric, alpha, noisy_prior, posterior.noise, posterior)
        used = weight > 0
        return cls(metric, alpha, noisy_prior, estimate_noise(codes[used], proba[used]), None)

    def transform(self, proba: FloatArray) -> FloatArray:
        """Return probabilities of the clean classes (of equally frequent ones for balanced accuracy)."""
        if self.alpha is not None:
            return clean_proba(proba, self.alpha, self.noisy_prior)
        if self.metric == "balanced_accuracy":
            return clean_proba(proba, 1.0, self.noisy_prior)
        if self.posterior is not None:
            positive = self.posterior.transform(log_odds(proba))
            return np.column_stack([1.0 - positive, positive])
        return unmix(proba, self.noise)

    def explained(self, proba: FloatArray) -> FloatArray:
        """Return P(noisy label | x) as the estimated noise explains it: clean probabilities times T."""
        if self.posterior is None:
            return unmix(proba, self.noise) @ self.noise.transition
        rates = self.posterior.rates
        gain = 1.0 - rates.sum(axis=1, keepdims=True)
        positive = self.posterior.weights @ (rates[:, :1] + gain * self.posterior.candidates(log_odds(proba)))
        return np.column_stack([1.0 - positive, positive])

    def implied_alpha(self) -> float:
        """Return the α of the decision: given, 1 for balanced accuracy, else α* at the estimated rates."""
        if self.alpha is not None:
            return self.alpha
        if self.metric == "balanced_accuracy":
            return 1.0
        try:
            return optimal_alpha_from_noisy_prior(self.noise, self.noisy_prior)
        except ValueError:  # no α* exists: balanced noisy labels with unequal rates, or K > 2
            return float("nan")

    def accuracy(
        self, proba: FloatArray, *, seed: int, as_labelled: bool = False
    ) -> tuple[float, float, float]:
        """Estimate the metric on *clean* labels of the decisions on these rows, with a 90 % interval.

        For two classes it averages over what the noisy labels leave open about the rates, and adds the
        sampling error of the rows; for more classes the rates are taken as estimated. With ``as_labelled``
        the labels are taken for clean: no rates at all.
        """
        decided = self.transform(proba).argmax(axis=1)
        if as_labelled or self.posterior is None:
            clean = (proba if as_labelled else unmix(proba, self.noise))[None]
            weights = np.ones(1)
        else:
            positive = self.posterior.candidates(log_odds(proba))
            clean = np.stack([1.0 - positive, positive], axis=2)
            weights = self.posterior.weights
        right = np.take_along_axis(clean, np.broadcast_to(decided[None, :, None], (*clean.shape[:2], 1)), 2)[
            ..., 0
        ]
        if self.metric == "accuracy":
            level = right.mean(axis=1)
            spread = np.sqrt(level * (1.0 - level) / len(decided))
        else:
            mass = clean.sum(axis=1)
            hits = np.stack(
                [(clean[:, :, c] * (decided == c)).sum(axis=1) for c in range(mass.shape[1])], axis=1
            )
            recall = hits / np.maximum(mass, 1e-9)
            level = recall.mean(axis=1)
            spread = np.sqrt((recall * (1.0 - recall) / np.maximum(mass, 1.0)).sum(axis=1)) / mass.shape[1]
        rng = np.random.default_rng(seed)
        drawn = rng.choice(len(weights), size=4000, p=weights)
        draws = np.clip(level[drawn] + spread[drawn] * rng.normal(size=4000), 0.0, 1.0)
        low, high = np.quantile(draws, [0.05, 0.95])
        return float(weights @ level), float(low), float(high)


def check_alpha_or_auto(alpha: Any, name: str = "alpha") -> float | None:
    """Return a number given as α, or ``None`` for ``"auto"``."""
    if isinstance(alpha, str) and alpha == "auto":
        return None
    return check_finite(alpha, name, advice="Pass 'auto' or a number such as 1.0.")


class AutomaticAlpha(NamedTuple):
    """What ``alpha="auto"`` means for some data."""

    alpha: float
    label_weights: FloatArray
    """(K,), 1 but where noisy labels are so nearly balanced that no useful α* exists without weights."""
    noise: NoiseModel
    """The estimated noise."""


def automatic_alpha(
    proba: FloatArray, codes: IntArray, weight: FloatArray, noisy_prior: FloatArray
) -> AutomaticAlpha:
    """Apply the library's rule for α to out-of-fold noisy probabilities.

    It is α* = (e_neg − e_pos)/δ_p̃ at the rates that probabilities and noisy labels suggest. Where δ_p̃ is
    near 0 it is that of rows weighted by their label, the paper's downsampling remark. For several classes
    without an α* it is 1, the choice that needs no rates.
    """
    fitted = CleanMap.fit(
        proba, codes, weight, metric="accuracy", alpha=None, noisy_prior=noisy_prior, gold=None, verified=None
    )
    equal = np.ones(len(noisy_prior))
    if len(noisy_prior) == 2 and abs(noisy_prior[1] - noisy_prior[0]) < NEAR_BALANCE:
        weights = unbalancing_label_weights(noisy_prior)
        return AutomaticAlpha(
            optimal_alpha_of_weighted(fitted.noise, noisy_prior, weights), weights, fitted.noise
        )
    alpha = fitted.implied_alpha()
    return AutomaticAlpha(alpha if np.isfinite(alpha) else 1.0, equal, fitted.noise)


def unmix(proba: FloatArray, noise: NoiseModel) -> FloatArray:
    """Return η = η̃ T⁻¹ as probabilities, with T drawn towards the identity as far as its inverse needs it.

    An estimated T that is nearly singular would multiply the error of η̃ instead of undoing the noise.
    """
    identity = np.eye(noise.n_classes)
    for share in np.linspace(0.0, 1.0, 21):
        matrix = (1.0 - share) * noise.transition + share * identity
        if np.linalg.cond(matrix) <= MAX_GAIN:
            break
    clipped = np.clip(proba @ np.linalg.inv(matrix), 1e-6, None)
    clean: FloatArray = clipped / clipped.sum(axis=1, keepdims=True)
    return clean


def log_odds(proba: FloatArray) -> FloatArray:
    """Return the log-odds of class 1."""
    p = np.clip(proba[:, 1], CLIP, 1.0 - CLIP)
    odds: FloatArray = np.log(p / (1.0 - p))
    return odds
