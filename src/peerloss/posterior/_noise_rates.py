"""Estimate class-conditional noise from noisy labels and out-of-fold probabilities.

``PeerClassifier``, ``PeerPlugInClassifier``, ``RobustMLPClassifier(alpha="auto")`` and the audit use this
estimate. There are two exceptions: ``RobustMLPClassifier(noise="estimate")`` uses
:func:`peerloss.estimate_noise`, and an audit of two classes whose labels flip near the boundary reports the
rates of its ranking.

Two classes: every pair of rates on a grid has a curve (:mod:`peerloss.posterior.rate_curves`), and its weight
is the evidence of that curve. More classes:
:mod:`peerloss.posterior.transition_matrix`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import norm

from peerloss._probabilities import as_rows
from peerloss.noise import NoiseModel
from peerloss.posterior.many_classes import count_noise
from peerloss.posterior.noise_posterior import TINY, NoisePosterior, log_mean, reweighted
from peerloss.posterior.rate_curves import (
    EVIDENCE,
    NO_NOISE,
    RankScale,
    RatePairs,
    clean_curves,
    counted_share,
    gold_evidence,
    weigh_rate_pairs,
)
from peerloss.posterior.transition_matrix import estimate_transitions

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from peerloss._validation import BoolArray, FloatArray, IntArray

#: Prior of e_neg − e_pos of two classes. With probability ``EQUAL_RATES`` the rates are nearly equal, so the
#: plain decision is right. Otherwise the difference is normal around ½·δ_p̃, that is α* = ½. The prior matters
#: with hundreds of rows, which hardly determine the difference.
EQUAL_RATES, EQUAL_SCALE, OTHER_SCALE = 0.5, 0.03, 0.13
#: With more classes T is counted from confident rows, because one curve per class would take too long.
MAX_CURVES = 100


def bayes(clean: FloatArray, if_one: FloatArray, if_zero: FloatArray) -> FloatArray:
    """Return P(clean = 1 | report) from P(clean = 1) and the likelihoods of the report."""
    one, zero = clean * if_one, (1.0 - clean) * if_zero
    return np.asarray(one / np.maximum(one + zero, 1e-300))


@dataclass(frozen=True)
class TabulatedPosterior:
    """P(clean = 1 | score) at some scores, interpolated in between."""

    scores: FloatArray
    clean: FloatArray

    def transform(self, score: FloatArray) -> FloatArray:
        """Return P(clean = 1 | score), shape (n,)."""
        return np.asarray(np.interp(score, self.scores, self.clean))


@dataclass(frozen=True, eq=False)
class NoiseEstimate:
    """Estimated noise with its uncertainty; created by :func:`estimate_class_noise`."""

    noise: NoiseModel
    low: FloatArray
    high: FloatArray
    """Ends of the 90 % intervals of each entry of T, shape (K, K)."""
    posterior: NoisePosterior
    """Candidates for T and their probabilities."""
    by_class: CleanPosterior | None = None
    """Two classes: the fitted curves over P(noisy = 1)."""


def estimate_class_noise(
    proba: NDArray[Any],
    codes: IntArray,
    *,
    weight: FloatArray | None = None,
    gold: tuple[IntArray, IntArray] | None = None,
    verified: BoolArray | None = None,
) -> NoiseEstimate:
    """Estimate T from out-of-fold probabilities of the noisy labels.

    ``PeerClassifier``, ``PeerPlugInClassifier``, ``RobustMLPClassifier(alpha="auto")`` and
    :func:`~peerloss.find_label_issues` report this estimate, so they agree on the same probabilities.
    :func:`peerloss.estimate_noise` has simpler methods, which need no model of the scores. With more than 100
    classes T is counted from confident rows, which counts the overlap of classes as noise.

    Parameters
    ----------
    proba
        *Out-of-fold* probabilities P(noisy = k | x), shape (n, K). Only the order of the rows within each
        column matters up to 100 classes, so they need not be calibrated.
    codes
        Noisy labels 0..K-1, shape (n,).
    weight
        Non-negative weights of the rows. They count as the number of rows that would be as informative,
        (Σw)²/Σw². Rows of weight 0 are excluded.
    gold
        Clean and noisy labels of rows for which both are known. They make T more certain.
    verified
        Rows whose label is known to be clean: they help to find the curves, and tell nothing about T.

    Returns
    -------
    The :class:`NoiseEstimate`.
    """
    n, k = proba.shape
    weight = np.ones(n) if weight is None else weight
    used = weight > 0
    if not used.all():
        proba, codes, weight = proba[used], codes[used], weight[used]
        verified = None if verified is None else verified[used]
    is_clean = np.zeros(len(codes), dtype=bool) if verified is None else verified
    if k > MAX_CURVES:
        noise, low, high, _ = count_noise(proba, codes)
        return NoiseEstimate(noise, low, high, NoisePosterior(noise.transition[None], np.ones(1)))
    if k == 2:
        score = np.asarray(proba[:, 1], dtype=np.float64)
        found = fit_clean_posterior(codes, score, weight=weight, gold=gold, verified=is_clean)
        posterior = found.noise_posterior()
        return NoiseEstimate(posterior.noise, *posterior.interval(), posterior, found)
    posterior = estimate_transitions(proba, codes, as_rows(weight), is_clean, gold=gold)
    return NoiseEstimate(posterior.noise, *posterior.interval(), posterior)


def decide_clean(
    posterior: NoisePosterior, curve: TabulatedPosterior | None, proba: FloatArray, plain_share: float = 0.0
) -> FloatArray:
    """Return clean probabilities whose argmax is the decision for accuracy, shape (n, K).

    For two classes, η̃ T⁻¹ and the fitted curve are averaged. The first needs calibrated probabilities, the
    second only their order but a curve of the right shape. On development tables each was better on some, and
    their average nearly as good as the better one. ``plain_share`` is the probability that no noise is to be
    undone: the noisy probabilities have this weight.
    """
    clean = posterior.transform(proba)
    if curve is None:
        return clean
    one = curve.transform(np.asarray(proba[:, 1], dtype=np.float64))
    by_class = (clean + np.column_stack([1.0 - one, one])) / 2.0
    return (1.0 - plain_share) * by_class + plain_share * proba


@dataclass(frozen=True, eq=False)
class CleanPosterior:
    """A fitted map from scores to P(clean = 1 | score); created by :func:`fit_clean_posterior`."""

    pairs: RatePairs
    scale: RankScale

    @property
    def rates(self) -> FloatArray:
        """Candidate pairs (e_neg, e_pos), shape (G, 2)."""
        return self.pairs.rates

    @property
    def weights(self) -> FloatArray:
        """Posterior probabilities of the candidates, shape (G,)."""
        return self.pairs.weights

    @property
    def noise(self) -> NoiseModel:
        """The noise with the posterior mean of each rate."""
        return NoiseModel.binary(*map(float, self.weights @ self.rates))

    def interval(self) -> tuple[FloatArray, FloatArray]:
        """Return the lower and upper ends of the 90 % interval of each entry of T, two arrays (2, 2)."""
        return self.noise_posterior().interval()

    def noise_posterior(self) -> NoisePosterior:
        """Return the candidates as matrices T; several curves of one pair are one candidate."""
        pairs, place = np.unique(self.rates, axis=0, return_inverse=True)
        weights = np.bincount(np.ravel(place), self.weights).astype(np.float64)
        return NoisePosterior(np.stack([NoiseModel.binary(*pair).transition for pair in pairs]), weights)

    def tabulate(self) -> TabulatedPosterior:
        """Return P(clean = 1 | score) at the scores that the ranks are interpolated between."""
        return TabulatedPosterior(self.scale.scores, self.transform(self.scale.scores))

    def tabulate_given_label(self, label: int) -> TabulatedPosterior:
        """Return P(clean = 1 | score, label), averaged over the candidates, at the same scores."""
        one = self._one_given_label(self.scale.z, label == 1)
        return TabulatedPosterior(self.scale.scores, self.weights @ one)

    def given_gold(self, score: FloatArray, label: IntArray, gold: IntArray) -> tuple[CleanPosterior, float]:
        """Return the candidates weighted also by P(clean | score, label) of known rows, and its logarithm.

        The rows may be selected by score and label, as in
        :meth:`~peerloss.posterior.NoisePosterior.given_gold`.

        Parameters
        ----------
        score, label, gold
            Scores, given labels and clean labels of the known rows, shape (m,).
        """
        one = self._one_given_label(self.scale.transform(score), label == 1)
        log = np.log(np.maximum(np.where(gold == 1, one, 1.0 - one), TINY)).sum(axis=1)
        weights = reweighted(self.weights, log)
        return replace(self, pairs=replace(self.pairs, weights=weights)), log_mean(self.weights, log)

    def _one_given_label(self, z: FloatArray, is_one: Any) -> FloatArray:
        """Return P(clean = 1 | score, label) under each candidate, shape (G, n)."""
        clean = clean_curves(self.pairs.curves, z)
        if_zero, if_one = self.rates[:, :1], 1.0 - self.rates[:, 1:]  # P(label = 1 | clean)
        if_zero, if_one = (np.where(is_one, rate, 1.0 - rate) for rate in (if_zero, if_one))
        return bayes(clean, if_one, if_zero)

    def transform(self, score: FloatArray) -> FloatArray:
        """Return P(clean = 1 | score), averaged over the candidates, shape (n,)."""
        return np.asarray(self.weights @ clean_curves(self.pairs.curves, self.scale.transform(score)))


def fit_clean_posterior(
    y_noisy: IntArray,
    score: FloatArray,
    *,
    weight: FloatArray | None = None,
    gold: tuple[IntArray, IntArray] | None = None,
    verified: BoolArray | None = None,
) -> CleanPosterior:
    """Estimate rates and P(clean = 1 | score) from where the noisy labels level off over the score.

    Parameters
    ----------
    y_noisy
        Noisy labels 0 or 1, shape (n,).
    score
        *Out-of-fold* scores, larger for class 1, shape (n,). Only their order matters.
    weight, gold, verified
        As in :func:`estimate_class_noise`.

    Returns
    -------
    The fitted :class:`CleanPosterior`.
    """
    weight = np.ones(len(score)) if weight is None else weight
    used = weight > 0
    is_clean = np.zeros(int(used.sum()), dtype=bool) if verified is None else verified[used]
    return CleanPosterior(*_weigh(score[used], y_noisy[used], as_rows(weight[used]), is_clean, gold))


def _weigh(
    score: FloatArray,
    codes: IntArray,
    weight: FloatArray,
    is_clean: BoolArray,
    gold: tuple[IntArray, IntArray] | None,
) -> tuple[RatePairs, RankScale]:
    """Weight pairs of rates of two classes."""
    scale = RankScale.fit(score, weight)
    centre = float(np.average(codes, weights=weight)) - 0.5
    # Labels above a number of them do not count. Without this factor the prior would keep its influence.
    share = counted_share(float(weight.sum())) / EVIDENCE

    def log_prior(pairs: FloatArray) -> FloatArray:
        difference = pairs[:, 0] - pairs[:, 1]
        equal = norm.pdf(difference, scale=EQUAL_SCALE)
        other = norm.pdf(difference, loc=centre, scale=OTHER_SCALE)
        return np.asarray(share * np.log(EQUAL_RATES * equal + (1.0 - EQUAL_RATES) * other))

    found = weigh_rate_pairs(
        scale.transform(score),
        codes,
        weight,
        is_clean,
        log_prior=log_prior,
        evidence=None if gold is None else partial(gold_evidence, *gold),
        no_noise=NO_NOISE,
    )
    return found, scale
