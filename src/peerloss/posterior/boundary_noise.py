"""Labels of two classes that are wrong near the boundary, as an alternative to class-conditional noise.

If classes are unequal, labels that are wrong only near the boundary look like noise that flips the smaller
class, because hardly any of its labels are confident. So one more hypothesis describes them: labels flip with
probability 2η(1 − η), ½ at the boundary and 0 far from it. Then η̃ = ½ + ½(2η − 1)³ flattens in the middle of
the scores, while class-conditional noise flattens at both ends. The curves and their evidence are those of
:mod:`peerloss.posterior.rate_curves`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import expit, logsumexp
from scipy.stats import beta

from peerloss._probabilities import as_rows
from peerloss.noise import NoiseModel
from peerloss.posterior._noise_rates import TabulatedPosterior, bayes
from peerloss.posterior.noise_posterior import QUANTILES, TINY, log_mean, reweighted
from peerloss.posterior.rate_curves import (
    STEP_SCALES,
    RankScale,
    boundary_flips,
    boundary_noise,
    clean_curves,
    fit_rank_curves,
    gold_evidence,
    group_by_rank,
)

if TYPE_CHECKING:
    from peerloss._validation import BoolArray, FloatArray, IntArray
    from peerloss.posterior._noise_rates import CleanPosterior

#: Prior probability of noise near the boundary.
NEAR_BOUNDARY = 0.05
#: The same if only a decision is needed. There, the hypothesis also stands for other noise that depends on
#: the row and leaves the likeliest label right, which is common in practice.
NEAR_BOUNDARY_TO_DECIDE = 0.35


@dataclass(frozen=True, eq=False)
class BoundaryPosterior:
    """Clean probabilities if labels flip near the boundary."""

    probability: float
    """The posterior probability of noise near the boundary."""
    curves: FloatArray
    weights: FloatArray
    """Clean curves (S, J + 1) and their posterior probabilities (S,)."""
    scale: RankScale

    @property
    def plain_share(self) -> float:
        """Return the weight of the plain decision, the likeliest noisy label."""
        other_prior = _log_odds(NEAR_BOUNDARY_TO_DECIDE) - _log_odds(NEAR_BOUNDARY)
        return float(expit(_log_odds(self.probability) + other_prior))

    def tabulate(self) -> TabulatedPosterior:
        """Return P(clean = 1 | score) at the scores that the ranks are interpolated between."""
        return TabulatedPosterior(self.scale.scores, self.weights @ clean_curves(self.curves, self.scale.z))

    def tabulate_given_label(self, label: int) -> TabulatedPosterior:
        """Return P(clean = 1 | score, label) at the same scores."""
        clean = clean_curves(self.curves, self.scale.z)
        flips = boundary_flips(clean)
        if_one, if_zero = (1.0 - flips, flips) if label == 1 else (flips, 1.0 - flips)
        return TabulatedPosterior(self.scale.scores, self.weights @ bayes(clean, if_one, if_zero))

    def given_gold(
        self, score: FloatArray, label: IntArray, gold: IntArray, log_by_class: float
    ) -> BoundaryPosterior:
        """Return the hypothesis weighted also by P(clean | score, label) of known rows.

        ``log_by_class`` is its logarithm under class-conditional noise.
        """
        clean = clean_curves(self.curves, self.scale.transform(score))
        flips = boundary_flips(clean)
        one = bayes(clean, np.where(label == 1, 1.0 - flips, flips), np.where(label == 1, flips, 1.0 - flips))
        log = np.log(np.maximum(np.where(gold == 1, one, 1.0 - one), TINY)).sum(axis=1)
        odds = _log_odds(self.probability) + log_mean(self.weights, log) - log_by_class
        probability = float(expit(odds))
        return replace(self, probability=probability, weights=reweighted(self.weights, log))

    def average_noise(self, score: FloatArray) -> NoiseModel:
        """Return T averaged over rows, with the share of each class that flips."""
        clean = self._clean(score)
        rows, flips = np.stack([1.0 - clean, clean]), boundary_flips(clean)
        flipped = (rows * flips).sum(axis=1) / np.maximum(rows.sum(axis=1), 1e-300)
        return NoiseModel.binary(*map(float, flipped))

    def largest_noise(self, codes: IntArray, score: FloatArray) -> tuple[NoiseModel, float]:
        """Return T and the share of wrong labels if the classes do not overlap at all.

        Then each label that differs from the likeliest one is wrong. One label per row has the same
        distribution if classes overlap and fewer labels are wrong. Both are the upper ends of intervals.
        """
        decided = (self._clean(score) > 0.5).astype(np.int64)
        counts = np.zeros((2, 2))
        np.add.at(counts, (decided, codes), 1.0)
        kept, flipped = np.diag(counts), np.diag(counts[:, ::-1])

        def upper_end(flipped: float, kept: float) -> float:
            return float(beta.ppf(QUANTILES[1], flipped + 0.5, kept + 0.5))

        rates = (upper_end(*pair) for pair in zip(flipped, kept, strict=True))
        return NoiseModel.binary(*rates), upper_end(flipped.sum(), kept.sum())

    def _clean(self, score: FloatArray) -> FloatArray:
        return np.asarray(self.weights @ clean_curves(self.curves, self.scale.transform(score)))


def fit_boundary_noise(
    codes: IntArray,
    score: FloatArray,
    by_class: CleanPosterior,
    *,
    weight: FloatArray | None = None,
    gold: tuple[IntArray, IntArray] | None = None,
    verified: BoolArray | None = None,
) -> BoundaryPosterior:
    """Fit noise near the boundary and compare it with class-conditional noise fitted to the same rows.

    Weights are positive. ``gold`` and ``verified`` are those of
    :func:`~peerloss.posterior.estimate_class_noise`.
    """
    rows = np.ones(len(codes)) if weight is None else as_rows(weight)
    is_clean = np.zeros(len(codes), dtype=bool) if verified is None else verified
    groups = group_by_rank(by_class.scale.transform(score), codes == 1, rows, is_clean)
    fits = [fit_rank_curves(groups, boundary_noise, 1, scale) for scale in STEP_SCALES]
    curves = np.concatenate([curve for curve, _ in fits])
    log_evidence = np.concatenate([found for _, found in fits])
    total = float(logsumexp(log_evidence)) - np.log(len(fits))
    weights = np.exp(log_evidence - log_evidence.max())
    found = BoundaryPosterior(0.0, curves, weights / weights.sum(), by_class.scale)
    if gold is not None:  # their scores are not known, so the average rates are compared
        total += float(gold_evidence(*gold, found.average_noise(score).flip_rates[None])[0])
    odds = _log_odds(NEAR_BOUNDARY) + total - by_class.pairs.log_evidence
    return replace(found, probability=float(expit(odds)))


def _log_odds(probability: float) -> float:
    with np.errstate(divide="ignore"):  # the probability may be 0 or 1
        return float(np.log(probability) - np.log1p(-probability))
