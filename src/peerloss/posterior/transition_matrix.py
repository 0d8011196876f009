"""T of more than two classes, from one curve per class.

**Diagonal.** However certain the rows at the top of the scores of class i are, they have label i no more
often than T[i, i]. So each class against the rest is a problem of two classes
(:mod:`peerloss.posterior.rate_curves`) whose second rate is 1 − T[i, i]. Its first rate, the frequency of
label i among rows of other classes, is not one number but depends on the class; only its lowest level enters.
With few rows per class the diagonal is uncertain, so the classes share a prior, a Beta distribution. Its
parameters are averaged in proportion to how well they explain all classes. Where classes overlap, the curves
of all classes are wrong in the same direction, so the evidence of K classes counts as √(2/K) of their sum.

**Other entries.** The labels that rows near the top of class i have instead of i are counted. Their shares
are shrunk towards equal shares, by as much as the counts of all classes support.

A candidate for T has the same quantile of every diagonal entry, for the same reason: with independent rates,
the errors of many classes would cancel, and the interval of the accuracy would be too narrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import betaln, expit, gammaln, logsumexp, xlog1py, xlogy

from peerloss.posterior.noise_posterior import NoisePosterior
from peerloss.posterior.rate_curves import (
    LEAST_RATE,
    NO_NOISE,
    RankScale,
    RatePairs,
    clean_curves,
    weigh_rate_pairs,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from peerloss._validation import BoolArray, FloatArray, IntArray

#: The curve of a class is fitted to this many times as many rows as lie above the drop of its label's
#: frequency, and at least to so many. Further below, label i has other levels, one for each class that is
#: mistaken for i.
TOP_ROWS, MIN_TOP_ROWS = 1.5, 100
#: The rows above the drop are at least as many as have the label, and at most this many times as many: if
#: classes overlap much, the place of the drop is hardly known.
MAX_ABOVE = 1.5
#: Candidates of 1 − T[i, i], and of the lowest frequency of label i elsewhere as a share of its frequency.
FLIP_RATES = np.array([0.0, 0.02, *np.arange(1, 16) / 20])
FLOOR_SHARES = np.array([0.0, 0.2, 0.4, 0.6, 0.8, 0.95])
MAX_SUM_OF_RATES = 0.97
#: Only flexible curves: stiff ones gained nothing on development tables and take as long.
STEP_SCALES = (0.7,)
#: Values at which the posterior of 1 − T[i, i] is tabulated.
TABLE = np.arange(0.0, 0.8005, 0.01)
#: Added to likelihoods, so that no value is impossible.
TINY = 1e-12
#: Candidates for mean and concentration of the prior that classes share.
MEANS = (0.01, 0.03, 0.06, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6)
CONCENTRATIONS = (0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
#: Rows are near the top of a class if it is at least this probable, or among this share of the class's rows.
NEAR_TOP, TOP_SHARE = 0.9, 0.3
#: Candidates for the number of rows per other class that the prior of equal shares counts for.
PRIOR_ROWS = np.array([0.5, 2.0, 8.0, 32.0, 128.0])
#: Number of candidates for T; fewer if they would have more than this many entries.
N_CANDIDATES, MAX_ENTRIES = 32, 2_000_000


def estimate_transitions(
    proba: NDArray[Any],
    codes: IntArray,
    weight: FloatArray,
    is_clean: BoolArray,
    *,
    gold: tuple[IntArray, IntArray] | None = None,
) -> NoisePosterior:
    """Estimate T of K > 2 classes; the arguments are those of ``estimate_class_noise``."""
    k = proba.shape[1]
    known = np.zeros((k, k))
    if gold is not None:
        np.add.at(known, gold, 1.0)
    flips, counts = np.empty((k, len(TABLE))), known.copy()
    for i in range(k):
        score = np.asarray(proba[:, i], dtype=np.float64)
        top = _top_rows(score, codes == i)
        score, is_one, top_weight = score[top], codes[top] == i, weight[top]
        z = RankScale.fit(score, top_weight).transform(score)
        share = max(float(np.average(is_one, weights=top_weight)), 0.5 / len(codes))
        floors = FLOOR_SHARES * share
        pairs = weigh_rate_pairs(
            z,
            is_one,
            top_weight,
            is_clean[top],
            e_neg=floors,
            e_pos=FLIP_RATES,
            max_sum=MAX_SUM_OF_RATES,
            step_scales=STEP_SCALES,
        )
        flips[i] = _tabulate(pairs) * _likelihood(known[i, i], known[i].sum() - known[i, i])
        noisy_weight = np.where(is_clean[top], 0.0, top_weight)
        counts[i] += _labels_near_top(
            pairs.weights @ clean_curves(pairs.curves, z), codes[top], noisy_weight, k, share
        )
    flips, no_noise = _share_prior(flips / flips.sum(axis=1, keepdims=True))
    return _sample(flips, _shrink_shares(counts), no_noise)


def _top_rows(score: FloatArray, is_one: BoolArray) -> IntArray:
    """Return the rows with the largest scores: more than lie above the drop, so that both levels are seen.

    The number of rows with the label would be too small if more than a third of a class has other labels. The
    drop is looked for among the rows that may be used. Among all rows, the largest drop can be that behind
    the rows of another class, whose labels are often exchanged with this one.
    """
    # A stable sort: which of equal scores `argpartition` takes depends on the processor.
    order = np.argsort(-score, kind="stable")
    ones = float(is_one.sum())

    def size(above: float) -> int:
        return min(len(score), max(MIN_TOP_ROWS, int(TOP_ROWS * above)))

    usable = order[: size(MAX_ABOVE * ones)]
    above = np.clip(_rows_above_drop(is_one[usable]), ones, MAX_ABOVE * ones)
    return np.sort(order[: size(above)])


def _rows_above_drop(is_one: BoolArray) -> int:
    """Return the number of rows after which a label becomes rarer, by the likeliest two levels.

    ``is_one`` tells which rows have the label, those with the largest scores first.
    """
    n, ones = len(is_one), np.cumsum(is_one)
    above, below = np.arange(1, n), np.arange(n - 1, 0, -1)
    seen, left = ones[:-1], ones[-1] - ones[:-1]
    log_likelihood = sum(
        xlogy(count, count / total) + xlogy(total - count, 1.0 - count / total)
        for count, total in ((seen, above), (left, below))
    )
    falls = seen / above >= left / below
    return int(above[np.where(falls, log_likelihood, -np.inf).argmax()]) if falls.any() else n


def _tabulate(pairs: RatePairs) -> FloatArray:
    """Return the likelihood of the second rate at the values of ``TABLE``, averaged over the first rate."""
    values, place = np.unique(pairs.rates[:, 1], return_inverse=True)
    likelihood = np.bincount(place, pairs.weights / pairs.cells[:, 1])
    return np.asarray(np.interp(TABLE, values, likelihood, left=0.0, right=0.0)) + TINY


def _likelihood(n_kept: float, n_flipped: float) -> FloatArray:
    """Return the likelihood of known labels at the values of ``TABLE``."""
    rate = np.clip(TABLE, LEAST_RATE, 1.0)
    log = xlogy(n_flipped, rate) + xlog1py(n_kept, -rate)
    return np.asarray(np.exp(log - log.max()))


def _labels_near_top(
    clean: FloatArray, codes: IntArray, weight: FloatArray, k: int, share: float
) -> FloatArray:
    """Count the noisy labels of rows that are near the top of a class."""
    top = np.quantile(clean, 1.0 - max(TOP_SHARE * share, min(3.0 / len(clean), 1.0)))
    near = np.where(clean >= min(NEAR_TOP, top), clean * weight, 0.0)
    return np.asarray(np.bincount(codes, near, minlength=k), dtype=np.float64)


def _share_prior(flips: FloatArray) -> tuple[FloatArray, float]:
    """Return the posterior of each class's flip rate under the prior that all classes share.

    Also return the posterior probability that all rates are 0.
    """
    rate = np.clip(TABLE, LEAST_RATE, None)
    independent = np.sqrt(2.0 / len(flips))  # the share of the evidence that counts
    log_evidence, posteriors = [], []
    for mean in MEANS:
        for concentration in CONCENTRATIONS:
            a, b = mean * concentration, (1.0 - mean) * concentration
            density = np.exp((a - 1.0) * np.log(rate) + (b - 1.0) * np.log1p(-rate) - betaln(a, b))
            joint = flips * (density / density.sum())
            total = np.maximum(joint.sum(axis=1, keepdims=True), 1e-300)
            log_evidence.append(independent * float(np.log(total).sum()))
            posteriors.append(joint / total)
    log_of_some = float(logsumexp(log_evidence)) - np.log(len(log_evidence))
    log_of_none = independent * float(np.log(flips[:, 0]).sum())
    odds = np.log(NO_NOISE) - np.log1p(-NO_NOISE) + log_of_none - log_of_some
    weights = np.exp(np.array(log_evidence) - max(log_evidence))
    return np.tensordot(weights / weights.sum(), np.array(posteriors), axes=1), float(expit(odds))


def _shrink_shares(counts: FloatArray) -> FloatArray:
    """Return the shares of the other labels among the flipped labels of each class, zero on the diagonal."""
    k = len(counts)
    other = ~np.eye(k, dtype=bool)
    seen = counts[other].reshape(k, k - 1)
    total = seen.sum(axis=1)
    # The counts of a row are Dirichlet-multinomial about equal shares.
    evidence = np.array(
        [
            (gammaln(s + seen) - gammaln(s)).sum()
            + (gammaln(s * (k - 1)) - gammaln(s * (k - 1) + total)).sum()
            for s in PRIOR_ROWS
        ]
    )
    weights = np.exp(evidence - evidence.max())
    weights /= weights.sum()
    shrunk = sum(
        w * (seen + s) / (total + s * (k - 1))[:, None] for w, s in zip(weights, PRIOR_ROWS, strict=True)
    )
    shares = np.zeros((k, k))
    shares[other] = np.ravel(shrunk)
    return shares


def _sample(flips: FloatArray, shares: FloatArray, no_noise: float) -> NoisePosterior:
    """Return candidates for T: no noise, then the quantiles of all rates, the lower ones first."""
    k = len(flips)
    size = max(1, min(N_CANDIDATES, MAX_ENTRIES // k**2))
    levels = (np.arange(size) + 0.5) / size
    transitions = np.empty((size, k, k))
    for i, table in enumerate(flips):
        below = np.append(0.0, np.cumsum(table))
        level = levels * below[-1]
        cell = np.minimum(np.searchsorted(below, level, side="right") - 1, len(TABLE) - 1)
        inside = (level - below[cell]) / np.maximum(table[cell], 1e-300) - 0.5
        rates = TABLE[cell] + np.where(cell > 0, inside * TABLE[1], 0.0)  # a rate of 0 is exactly 0
        transitions[:, i] = shares[i] * rates[:, None]
        transitions[:, i, i] = 1.0 - rates
    weights = np.append(no_noise, np.full(size, (1.0 - no_noise) / size))
    return NoisePosterior(np.concatenate([np.eye(k)[None], transitions]), weights)
