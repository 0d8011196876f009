"""From probabilities of the noisy label to decisions: clean probabilities, α, estimated clean accuracy.

:func:`measure_misfit` tests whether the estimated noise explains the noisy labels. If clean probabilities
times T predict them clearly worse than the noisy probabilities do, T does not fit: the noise depends on the
row, or its rates cannot be estimated from these data. On 55 tables no noise was rejected, of whatever kind
(``docs/howto/covered-noise.md``). A T that fits is not a proof. Any noisy posterior is explained by T = I,
and noise that is a function of the features, such as keyword rules, looks like clean labels of an easier
task.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.stats import norm

from peerloss._probabilities import take
from peerloss._validation import check_finite
from peerloss.noise.estimate import warn_if_unidentifiable
from peerloss.posterior._noise_rates import TabulatedPosterior, decide_clean, estimate_class_noise
from peerloss.posterior.boundary_noise import fit_boundary_noise
from peerloss.posterior.many_classes import CleanCurves
from peerloss.posterior.noise_posterior import NoisePosterior
from peerloss.theory import (
    optimal_alpha_from_noisy_prior,
    optimal_alpha_of_weighted,
    unbalancing_label_weights,
)

if TYPE_CHECKING:
    from peerloss._validation import BoolArray, FloatArray, IntArray
    from peerloss.noise import NoiseModel

#: Noisy labels with |δ_p̃| below this count as balanced: α* = d/δ_p̃ would be large and unstable.
NEAR_BALANCE = 0.05
#: Log-likelihood per label that even the best candidate for T may lose: few candidates are quite noise-free,
#: so they predict clean labels worse by a tiny amount, on every row.
SHRINKAGE_LOSS = 1e-4
#: Draws for the interval of the accuracy.
N_DRAWS = 4000
#: Below this p-value the noise model is rejected.
LEVEL = 0.01
#: Probabilities are kept this far from 0 in that test, so that no single row decides it.
FLOOR = 1e-3


@dataclass(frozen=True)
class CleanMap:
    """Maps noisy to clean probabilities; the argmax is the decision."""

    metric: str
    alpha: float | None
    """A number given by the user, or ``None`` for the library's rule."""
    noisy_prior: FloatArray
    noise_posterior: NoisePosterior
    curves: CleanCurves | None = None
    """For balanced accuracy of more than two classes; η/π decides unless ``alpha`` is given."""
    score_curve: TabulatedPosterior | None = None
    """Two classes: P(clean = 1) as a curve over P(noisy = 1)."""
    plain_share: float = 0.0
    """Two classes: weight of the noisy probabilities, as the noise may leave the likeliest label right."""

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
        gold: tuple[IntArray, IntArray] | None = None,
        verified: BoolArray | None = None,
    ) -> CleanMap:
        """Estimate the noise from out-of-fold noisy probabilities and labels."""
        used = weight > 0
        proba, codes, weight = proba[used], codes[used], weight[used]
        verified = None if verified is None else verified[used]
        found = estimate_class_noise(proba, codes, weight=weight, gold=gold, verified=verified)
        if found.by_class is not None:
            score = np.asarray(proba[:, 1], dtype=np.float64)
            boundary = fit_boundary_noise(
                codes, score, found.by_class, weight=weight, gold=gold, verified=verified
            )
            curve, plain_share = found.by_class.tabulate(), boundary.plain_share
            return cls(metric, alpha, noisy_prior, found.posterior, None, curve, plain_share)
        warn_if_unidentifiable(proba, codes, found.noise, weight)
        is_balanced = metric == "balanced_accuracy"
        curves = CleanCurves.fit(proba, codes, weight, found.noise) if is_balanced else None
        return cls(metric, alpha, noisy_prior, found.posterior, curves)

    @property
    def noise(self) -> NoiseModel:
        """The estimated noise."""
        return self.noise_posterior.noise

    def transform(self, proba: FloatArray) -> FloatArray:
        """Return probabilities of the clean classes (of equally frequent ones for balanced accuracy).

        For balanced accuracy, the decision between two classes is peer loss at α = 1, which needs no rates.
        For more classes it is :func:`~peerloss.theory.balanced_posterior`, which needs the estimated noise.
        """
        if self.alpha is not None:
            return clean_proba(proba, self.alpha, self.noisy_prior)
        if self.curves is not None:
            return self.curves.balanced(proba)
        if self.metric == "balanced_accuracy":
            return clean_proba(proba, 1.0, self.noisy_prior)
        return decide_clean(self.noise_posterior, self.score_curve, proba, self.plain_share)

    def misfit(self, proba: FloatArray, codes: IntArray, weight: FloatArray) -> Misfit:
        """Test whether the estimated noise explains the noisy labels (:func:`measure_misfit`)."""
        explained = self.noise_posterior.best_explained(proba, codes, weight)
        return measure_misfit(proba, explained, codes, weight, tolerance=SHRINKAGE_LOSS)

    def implied_alpha(self) -> float:
        """Return the α of the decision, NaN if no α describes it.

        It is the given number, 1 for balanced accuracy of two classes (of more, no α), or α* at the
        estimated rates.
        """
        if self.alpha is not None:
            return self.alpha
        if self.curves is not None:
            return float("nan")
        if self.metric == "balanced_accuracy":
            return 1.0
        try:
            return optimal_alpha_from_noisy_prior(self.noise, self.noisy_prior)
        except ValueError:  # no α* exists: balanced noisy labels with unequal rates, or K > 2
            return float("nan")

    def accuracy(
        self, proba: FloatArray, codes: IntArray, weight: FloatArray, *, seed: int, as_labelled: bool = False
    ) -> tuple[float, float, float]:
        """Estimate the metric on *clean* labels of the decisions on these rows, with a 90 % interval.

        It averages over the uncertainty of the noise and adds the sampling error of the rows. ``proba`` must
        be out of fold. With ``as_labelled`` the labels are taken as clean.
        """
        decided = self.transform(proba).argmax(axis=1)
        k = len(self.noisy_prior)
        noise = NoisePosterior(np.eye(k)[None], np.ones(1)) if as_labelled else self.noise_posterior
        balanced = self.metric == "balanced_accuracy"
        level, error = noise.accuracies(decided, codes, weight, balanced=balanced)
        rng = np.random.default_rng(seed)
        drawn = rng.choice(len(level), size=N_DRAWS, p=noise.weights)
        draws = np.clip(level[drawn] + error[drawn] * rng.normal(size=N_DRAWS), 0.0, 1.0)
        low, high = np.quantile(draws, [0.05, 0.95])
        return float(np.clip(noise.weights @ level, 0.0, 1.0)), float(low), float(high)


def check_alpha_or_auto(alpha: Any, name: str = "alpha") -> float | None:
    """Return a number given as α, or ``None`` for ``"auto"``."""
    if isinstance(alpha, str) and alpha == "auto":
        return None
    return check_finite(alpha, name, advice="Pass 'auto' or a number such as 1.0.")


def clean_proba(noisy_proba: FloatArray, alpha: float, noisy_prior: FloatArray) -> FloatArray:
    """Map η̃ to probabilities whose argmax is that of η̃ − απ̃.

    The docstring of :class:`~peerloss.PeerPlugInClassifier` describes the map.
    """
    n_classes = len(noisy_prior)
    tie = 1.0 / n_classes + alpha * (noisy_prior - 1.0 / n_classes)
    away = noisy_proba - tie
    # The ray from u through x meets the border where the first coordinate becomes 0. Only decreasing ones
    # can, with u_k > x_k ≥ 0. `share` is the position of x on the ray, `reach` the border's from uniform.
    falling = away < 0
    share = np.max(np.divide(-away, tie, out=np.zeros_like(away), where=falling), axis=1, keepdims=True)
    reach = n_classes * np.max(-away, axis=1, keepdims=True)
    stretched = 1.0 / n_classes + away * np.divide(share, reach, out=np.zeros_like(share), where=reach > 0)
    return np.asarray(np.clip(stretched, 0.0, 1.0))


class AutomaticAlpha(NamedTuple):
    """Result of :func:`automatic_alpha`."""

    alpha: float
    label_weights: FloatArray
    """(K,), all 1 unless the noisy labels are so nearly balanced that α* is not usable without weights."""
    noise: NoiseModel


def automatic_alpha(
    proba: FloatArray, codes: IntArray, weight: FloatArray, noisy_prior: FloatArray
) -> AutomaticAlpha:
    """Find one α for accuracy from out-of-fold noisy probabilities.

    It is α* = (e_neg − e_pos)/δ_p̃ at the rates estimated from probabilities and noisy labels. If δ_p̃ is
    near 0 it is α* of rows weighted by their label, as in the paper's downsampling remark. For more than two
    classes without an α* it is 1, the choice that needs no rates; no theorem then covers accuracy.

    ``PeerPlugInClassifier(alpha="auto")`` decides with this α, ``RobustMLPClassifier(alpha="auto")`` compares
    candidates by the peer score at it. ``PeerClassifier(alpha="auto")`` does not use it: it decides by the
    clean posterior.
    """
    fitted = CleanMap.fit(proba, codes, weight, metric="accuracy", alpha=None, noisy_prior=noisy_prior)
    alpha, weights = fitted.implied_alpha(), np.ones(len(noisy_prior))
    if len(noisy_prior) == 2 and abs(noisy_prior[1] - noisy_prior[0]) < NEAR_BALANCE:
        weights = unbalancing_label_weights(noisy_prior)
        alpha = optimal_alpha_of_weighted(fitted.noise, noisy_prior, weights)
    return AutomaticAlpha(alpha if np.isfinite(alpha) else 1.0, weights, fitted.noise)


class Misfit(NamedTuple):
    """How much worse the noise model predicts the noisy labels than their own probabilities do."""

    loss: float
    """Log-likelihood lost per label; negative if the noise model predicts better."""
    p_value: float
    """One-sided p-value of the hypothesis that no more than the tolerance is lost."""


def measure_misfit(
    direct: FloatArray, explained: FloatArray, codes: IntArray, weight: FloatArray, *, tolerance: float = 0.0
) -> Misfit:
    """Compare two predictions (n, K) of the noisy labels on held-out rows by a paired z-test.

    Rows of weight 0 are excluded. A loss per label up to ``tolerance`` is accepted.
    """
    if not weight.any():  # every label is known to be right: no label needs an explanation
        return Misfit(0.0, 1.0)
    share = weight / weight.sum()
    kept = [np.maximum(proba, FLOOR) for proba in (direct, explained)]
    logs = [np.log(take(proba, codes) / proba.sum(axis=1)) for proba in kept]
    lost = logs[0] - logs[1]
    mean = float(share @ lost)
    error = float(np.sqrt(share**2 @ (lost - mean) ** 2))
    if error == 0.0:
        return Misfit(mean, 1.0 if mean <= tolerance else 0.0)
    return Misfit(mean, float(norm.sf((mean - tolerance) / error)))
