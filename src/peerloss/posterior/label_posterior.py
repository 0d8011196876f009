"""The probability that each label is wrong: P(clean ≠ given | x, given label).

With p the clean posterior at x and T the noise, P(clean = k | x, ỹ) = p_k·T[k, ỹ] / Σ_j p_j·T[j, ỹ].
Ranking by it compares rows of different labels correctly for any T. Self-confidence does so for symmetric
noise only, and one threshold per class for one kind of asymmetric noise only. The *reported* noise is that of
:func:`~peerloss.posterior.estimate_class_noise`, as in ``PeerClassifier``, unless labels flip near the
boundary. For more than two classes the ranking uses it too, with p from
:mod:`peerloss.posterior.many_classes`. Tables (n, K) are read in blocks and not copied; other arrays have one
entry per row.

Two classes: every pair of rates of a grid is a candidate with its own clean curve
(:mod:`peerloss.posterior.rate_curves`), and p_error is averaged over the candidates in proportion to their
posterior probability. Noise near the boundary (:mod:`peerloss.posterior.boundary_noise`) is one more
candidate. P(clean | score, label) is a function of one score, which is tabulated.

"No label is wrong" is always a candidate. Labels of classes that overlap are then not taken for errors unless
their frequencies level off. Its probability decides whether anything is flagged
(:mod:`peerloss.posterior.flags`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from peerloss._probabilities import blocks, label_frequencies, take
from peerloss.noise.estimate import explain_chance_level
from peerloss.posterior._noise_rates import (
    NoiseEstimate,
    decide_clean,
    estimate_class_noise,
    fit_clean_posterior,
)
from peerloss.posterior.boundary_noise import fit_boundary_noise
from peerloss.posterior.label_gain import expected_gain
from peerloss.posterior.many_classes import CalibratedPosterior, sample_rows
from peerloss.posterior.noise_posterior import QUANTILES, NoisePosterior
from peerloss.posterior.unexplained_noise import unexplained_share

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from peerloss._validation import FloatArray, IntArray
    from peerloss.noise import NoiseModel
    from peerloss.posterior._noise_rates import TabulatedPosterior

#: Above this probability of noise near the boundary, noise counts as that and not as class-conditional.
BOUNDARY_PROBABILITY = 0.5
#: More than two classes: the ranking averages over this many candidates for T, and over fewer if rows times
#: classes times candidates would exceed the second number.
MAX_RANKED, RANKING_CELLS = 9, 5_000_000
#: With more classes, clean posteriors are not calibrated: that would need more rows per class.
MAX_CALIBRATED_CLASSES = 100
#: With more classes, the gain of a label assumes equally probable wrong labels: K steps and not K².
MAX_GAIN_CLASSES = 100


@dataclass(frozen=True, eq=False, kw_only=True)
class LabelPosterior:
    """Estimates for each row, and the estimated noise."""

    p_error: FloatArray
    """(n,) P(clean ≠ given)."""
    likeliest_other: IntArray
    """(n,) the most probable clean class other than the given label."""
    p_other: FloatArray
    """(n,) its probability, given features and label."""
    clean_given_label: Callable[[Any], FloatArray]
    """Return P(clean = k | features, label) of the rows at these positions, shape (rows, K)."""
    clean_prior: FloatArray
    """(K,)"""
    noise: NoiseModel | None = None
    """The reported T, averaged over rows if labels flip near the boundary; ``None`` if not estimated."""
    noise_low: FloatArray | None = None
    noise_high: FloatArray | None = None
    """Ends of the 90 % intervals of each entry of T."""
    no_noise: float = 0.0
    """The probability that no label is wrong."""
    no_noise_elsewhere: float | None = None
    """The same of the rows whose label is not known, if some are known; ``None`` otherwise."""
    error_rate_interval: tuple[float, float] | None = None
    """Ends of the 90 % interval of the share of wrong labels; ``None`` if the noise is not estimated."""
    accuracy_as_labelled: float
    """Expected clean accuracy of a classifier that takes the labels as they are."""
    accuracy_corrected: float
    """Expected clean accuracy of a classifier that knows the noise."""
    reason: str = ""
    """Why the noise cannot be estimated; empty if it can."""
    near_boundary: float = 0.0
    """The probability that labels flip near the boundary between two classes, and not by class."""
    model_ignored: str = ""
    """Why only the annotators' reports and not the model's probabilities were used; empty if both were."""
    gain: FloatArray
    """(n,) the expected gain of one more label (:mod:`peerloss.posterior.label_gain`), in bits: of a label
    that is wrong as often as the given ones or, with several annotators, as that of a random one."""
    annotator: FloatArray | float
    """P(label | clean) of that label, (K, K), or the probability that it is right."""
    from_features: Callable[[NDArray[Any]], FloatArray] | None = None
    """Return P(clean = k | features), (m, K), from probabilities of noisy labels, (m, K), of rows that may
    have no label; ``None`` if the model was not used."""
    overlap: FloatArray | None = None
    """(K, K): the expected number of rows of class i for which j is the most probable class by the features
    alone. It does not contain noise. ``None`` without features."""

    refitted: FloatArray | None = None
    """(n, K) P(clean = k | features) of a model that was fitted to the first posterior, if there is one."""

    @property
    def is_class_conditional(self) -> bool:
        """Whether the noise is estimated and depends on the class alone, so that T describes every row."""
        return self.noise is not None and self.near_boundary <= BOUNDARY_PROBABILITY


def label_posterior(
    proba: NDArray[Any], codes: IntArray, *, gold: IntArray | None = None, reason: str = ""
) -> LabelPosterior:
    """Return the posterior of every row's label.

    If a model predicts the given labels no better than chance, rows are ranked by its confidence in their
    label.

    Parameters
    ----------
    proba, codes
        Out-of-fold probabilities of the noisy labels, (n, K), and the given labels, 0..K-1.
    gold
        The known clean labels, −1 if unknown, shape (n,). They inform the noise and decide their own rows.
        Rows may be selected by their features and given labels, for example the most suspicious ones:
        candidates for the noise are weighted by P(clean | x, given label).
    reason
        Why the model cannot be used, if that is known already.
    """
    if gold is not None and not (gold >= 0).any():
        gold = None
    reason = reason or explain_chance_level(proba, codes)
    if reason:
        found = _by_self_confidence(proba, codes, reason)
    else:
        found = (_of_two_classes if proba.shape[1] == 2 else _of_many_classes)(proba, codes, gold)
    return found if gold is None else decide_gold(found, codes, gold)


def decide_gold(found: LabelPosterior, codes: IntArray, gold: IntArray) -> LabelPosterior:
    """Return the posterior with known labels decided: p_error is 0 or 1, and another label gains nothing."""
    known = gold >= 0
    wrong = known & (gold != codes)
    interval = found.error_rate_interval
    if interval is not None:  # of the rows whose label is not known
        n_wrong, unknown = float(wrong.mean()), float(1.0 - known.mean())
        interval = n_wrong + unknown * interval[0], n_wrong + unknown * interval[1]

    def clean_given_label(rows: Any) -> FloatArray:
        clean, known_here = found.clean_given_label(rows), gold[rows]
        clean[known_here >= 0] = np.eye(clean.shape[1])[known_here[known_here >= 0]]
        return clean

    return replace(
        found,
        p_error=np.where(known, wrong, found.p_error),
        likeliest_other=np.where(wrong, gold, found.likeliest_other),
        p_other=np.where(known, wrong, found.p_other),
        clean_given_label=clean_given_label,
        gain=np.where(known, 0.0, found.gain),
        no_noise=0.0 if wrong.any() else found.no_noise,
        no_noise_elsewhere=found.no_noise,
        error_rate_interval=interval,
    )


def of_two(p_error: FloatArray, codes: IntArray) -> FloatArray:
    """Return P(clean = k) of two classes, shape (n, 2), from the probabilities that labels are wrong."""
    return np.where(np.arange(2) == codes[:, None], 1.0 - p_error[:, None], p_error[:, None])


def likeliest_other(clean: NDArray[Any], codes: IntArray) -> tuple[IntArray, FloatArray]:
    """Return the most probable class of each row other than its label, and its probability."""
    others = np.array(clean, dtype=np.float64)
    others[np.arange(len(codes)), codes] = -1.0
    best = others.argmax(axis=1).astype(np.int64)
    return best, np.clip(take(others, best), 0.0, 1.0)


def class_probabilities(found: LabelPosterior, proba: NDArray[Any], codes: IntArray) -> FloatArray:
    """Return P(clean = k | features, label) of every row with the mean of T, shape (n, K).

    ``found`` was computed from ``proba`` and ``codes`` and has an estimated noise.
    """
    if proba.shape[1] == 2:
        return of_two(found.p_error, codes)
    assert found.noise is not None  # noqa: S101 - for mypy
    certain = NoisePosterior(found.noise.transition[None], np.ones(1))
    return certain.given_label(proba, codes)


def overlap_of(from_features: FloatArray, n_rows: int) -> FloatArray:
    """Return the expected number of rows of class i for which class j is the most probable, (K, K).

    ``from_features`` has P(clean = k | x) of some of the ``n_rows`` rows.
    """
    rows, k = from_features.shape
    counts = np.zeros((k, k))
    np.add.at(counts.T, from_features.argmax(axis=1), from_features)
    return np.asarray(counts * (n_rows / rows))


def _by_self_confidence(proba: NDArray[Any], codes: IntArray, reason: str) -> LabelPosterior:
    n, k = proba.shape
    other, p_other, gain = np.empty(n, dtype=np.int64), np.empty(n), np.empty(n)
    for rows in blocks(n, k):
        other[rows], p_other[rows] = likeliest_other(proba[rows], codes[rows])
        gain[rows] = expected_gain(np.asarray(proba[rows], dtype=np.float64), 1.0)
    accuracy = float(np.maximum(p_other, take(proba, codes)).mean())
    return LabelPosterior(
        p_error=np.clip(1.0 - take(proba, codes), 0.0, 1.0),
        likeliest_other=other,
        p_other=p_other,
        clean_given_label=lambda rows: np.array(proba[rows], dtype=np.float64),
        clean_prior=np.asarray(proba.mean(axis=0), dtype=np.float64),
        accuracy_as_labelled=accuracy,
        accuracy_corrected=accuracy,
        reason=reason,
        gain=gain,
        annotator=1.0,
        from_features=lambda proba: np.array(proba, dtype=np.float64),
    )


def _of_two_classes(proba: NDArray[Any], codes: IntArray, gold: IntArray | None) -> LabelPosterior:
    score = np.asarray(proba[:, 1], dtype=np.float64)
    by_class = fit_clean_posterior(codes, score)
    boundary = fit_boundary_noise(codes, score, by_class)
    if gold is not None:
        known = score[gold >= 0], codes[gold >= 0], gold[gold >= 0]
        by_class, log_by_class = by_class.given_gold(*known)
        boundary = boundary.given_gold(*known, log_by_class)

    def averaged(first: TabulatedPosterior, second: TabulatedPosterior, score: FloatArray) -> FloatArray:
        share = boundary.probability
        return (1.0 - share) * first.transform(score) + share * second.transform(score)

    curves = by_class.tabulate(), boundary.tabulate()

    def from_features(proba: NDArray[Any]) -> FloatArray:
        one = averaged(*curves, np.asarray(proba[:, 1], dtype=np.float64))
        return np.column_stack([1.0 - one, one])

    clean = from_features(proba)
    one = clean[:, 1]
    zero_label, one_label = (
        averaged(by_class.tabulate_given_label(label), boundary.tabulate_given_label(label), score)
        for label in (0, 1)
    )
    one_given_label = np.where(codes == 1, one_label, zero_label)
    other = unexplained_share(codes, 2)
    one_given_label += other * (score - one_given_label)
    posterior = by_class.noise_posterior()
    noise, (low, high) = posterior.noise, posterior.interval()
    noisy_prior = label_frequencies(codes, 2)
    least, most = posterior.error_rate_interval(noisy_prior)
    average = boundary.average_noise(score)
    if boundary.probability > QUANTILES[0]:  # then it belongs to 90 % intervals
        largest, largest_share = boundary.largest_noise(codes, score)
        possible = np.stack([low, high, average.transition, largest.transition])
        low, high, most = possible.min(axis=0), possible.max(axis=0), max(most, largest_share)
    if boundary.probability <= BOUNDARY_PROBABILITY:
        prior = posterior.clean_prior(noisy_prior)
        as_labelled, corrected = _expected_accuracies(
            posterior, proba, codes, curves[0], boundary.plain_share
        )
    else:
        noise, prior = average, np.array([1.0 - one.mean(), one.mean()])
        as_labelled = float(np.where(score > 0.5, one, 1.0 - one).mean())
        corrected = float(np.maximum(one, 1.0 - one).mean())
    p_error = np.clip(np.where(codes == 1, 1.0 - one_given_label, one_given_label), 0.0, 1.0)
    return LabelPosterior(
        p_error=p_error,
        likeliest_other=1 - codes.astype(np.int64),
        p_other=p_error,
        clean_given_label=lambda rows: of_two(p_error[rows], codes[rows]),
        clean_prior=prior,
        noise=noise,
        noise_low=low,
        noise_high=high,
        no_noise=(1.0 - other) * (1.0 - boundary.probability) * posterior.no_noise,
        error_rate_interval=(least, most),
        accuracy_as_labelled=as_labelled,
        accuracy_corrected=corrected,
        near_boundary=boundary.probability,
        gain=expected_gain(of_two(p_error, codes), noise.transition),
        annotator=noise.transition,
        from_features=from_features,
        overlap=overlap_of(clean, len(codes)),
    )


def _of_many_classes(proba: NDArray[Any], codes: IntArray, gold: IntArray | None) -> LabelPosterior:
    n, k = proba.shape
    estimate = estimate_class_noise(proba, codes)
    if gold is not None:
        known = gold >= 0
        candidates = estimate.posterior.given_gold(proba[known], codes[known], gold[known])
        estimate = NoiseEstimate(candidates.noise, *candidates.interval(), candidates)
    posterior = _ranking_posterior(estimate.posterior, proba, codes)
    as_labelled, corrected = _expected_accuracies(estimate.posterior, proba, codes)
    p_given, best, p_best = np.empty(n), np.empty(n, dtype=np.int64), np.empty(n)
    gain, prior = np.empty(n), np.zeros(k)
    other = unexplained_share(codes, k)
    transition = estimate.noise.transition
    annotator: FloatArray | float = transition if k <= MAX_GAIN_CLASSES else float(np.diag(transition).mean())

    def explained(rows: Any) -> FloatArray:
        return posterior.given_label(proba[rows], codes[rows])

    def clean_given_label(rows: Any) -> FloatArray:
        return mixed(explained(rows), rows)

    def mixed(clean: FloatArray, rows: Any) -> FloatArray:
        return clean + other * (proba[rows] - clean) if other else clean

    for rows in blocks(n, k):
        clean = explained(rows)
        prior += np.ones(len(clean)) @ clean
        clean = mixed(clean, rows)
        p_given[rows] = take(clean, codes[rows])
        best[rows], p_best[rows] = likeliest_other(clean, codes[rows])
        gain[rows] = expected_gain(clean, annotator)
    some = np.asarray(proba[sample_rows(n, k)], dtype=np.float64)
    return LabelPosterior(
        p_error=np.clip(1.0 - p_given, 0.0, 1.0),
        likeliest_other=best,
        p_other=p_best,
        clean_given_label=clean_given_label,
        clean_prior=prior / prior.sum(),
        noise=estimate.noise,
        noise_low=estimate.low,
        noise_high=estimate.high,
        no_noise=(1.0 - other) * estimate.posterior.no_noise,
        error_rate_interval=estimate.posterior.error_rate_interval(label_frequencies(codes, k)),
        accuracy_as_labelled=as_labelled,
        accuracy_corrected=corrected,
        gain=gain,
        annotator=annotator,
        from_features=posterior.transform,
        overlap=overlap_of(posterior.transform(some), n),
    )


def _ranking_posterior(
    posterior: NoisePosterior, proba: NDArray[Any], codes: IntArray
) -> NoisePosterior | CalibratedPosterior:
    """Return the candidates for T that rank the rows of more than two classes."""
    n, k = proba.shape
    few = posterior.thinned(min(MAX_RANKED, RANKING_CELLS // (n * k)))
    return few if k > MAX_CALIBRATED_CLASSES else CalibratedPosterior.fit(few, proba, codes)


def _expected_accuracies(
    posterior: NoisePosterior,
    proba: NDArray[Any],
    codes: IntArray,
    curve: TabulatedPosterior | None = None,
    plain_share: float = 0.0,
) -> tuple[float, float]:
    """Return the expected clean accuracy of plain decisions and of those of ``PeerClassifier``."""
    some = sample_rows(*proba.shape)
    proba, codes = np.asarray(proba[some], dtype=np.float64), codes[some]
    every_row = np.ones(len(codes))
    decided = decide_clean(posterior, curve, proba, plain_share)
    decisions = proba.argmax(axis=1), decided.argmax(axis=1)
    plain, corrected = (posterior.weights @ posterior.accuracies(d, codes, every_row)[0] for d in decisions)
    return float(np.clip(plain, 0.0, 1.0)), float(np.clip(corrected, 0.0, 1.0))
