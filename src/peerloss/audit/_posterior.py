"""Of each label, how probable it is that it is wrong: P(clean ≠ given | x, given label).

With p the clean posterior at x and T the noise, P(clean = k | x, ỹ) = p_k·T[k, ỹ] / Σ_j p_j·T[j, ỹ].
Ranking by it compares rows of different labels rightly, which neither self-confidence (right for
symmetric noise) nor thresholds a class (right for one kind of asymmetric noise) do everywhere.

p and T come from :mod:`peerloss.audit._two_classes`, and with more classes from
:mod:`peerloss.audit._confident`, in memory that does not grow with the number of rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from peerloss.audit._confident import count_noise, fit_curve, sample_rows
from peerloss.audit._probabilities import blocks, normalise_rows, take
from peerloss.audit._two_classes import fit_candidates
from peerloss.noise import NoiseModel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from peerloss._validation import FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class LabelPosterior:
    """What the audit knows of each row and of the noise."""

    p_error: FloatArray
    """(n,) P(clean ≠ given)."""
    likeliest: IntArray
    """(n,) the likeliest clean class given features and label."""
    p_likeliest: FloatArray
    """(n,) its probability."""
    clean_prior: FloatArray
    """(K,)"""
    noise: NoiseModel | None
    """``None`` where the data cannot tell."""
    noise_low: FloatArray | None
    noise_high: FloatArray | None
    """Ends of the 90 % intervals of each entry of T."""
    accuracy_as_labelled: float
    """Clean accuracy expected of a classifier that takes the labels as they are."""
    accuracy_corrected: float
    """The same of one that knows the noise."""
    reason: str
    """Why the noise cannot be told; empty where it can."""
    near_boundary: float = 0.0
    """How probably labels flip near the boundary between two classes, and not by class."""


def label_posterior(
    proba: NDArray[Any], codes: IntArray, *, likelihood: FloatArray | None = None
) -> LabelPosterior:
    """Return the posterior of every row's label.

    Parameters
    ----------
    proba
        Out-of-fold probabilities of the noisy labels, (n, K).
    codes
        The given labels, 0..K-1.
    likelihood
        P(what was said of the row | clean = k), (n, K), where more is known than one label: it takes the
        place of T[k, ỹ]. T is then that of the given labels.
    """
    reason = _no_better_than_chance(proba, codes)
    if reason:
        return _by_self_confidence(proba, codes, reason)
    estimate = _by_candidates if proba.shape[1] == 2 else _by_confident_joint
    return estimate(proba, codes, likelihood)


def _no_better_than_chance(proba: NDArray[Any], codes: IntArray) -> str:
    """Say so where labels and probabilities agree no more than by chance (two standard errors)."""
    n, k = proba.shape
    given = take(proba, codes)
    prior = np.bincount(codes, minlength=k) / n
    chance = np.asarray(proba @ prior.astype(proba.dtype if proba.dtype.kind == "f" else float), dtype=float)
    gain = given - chance
    error = float(gain.std() / np.sqrt(n))
    if float(gain.mean()) > 2 * error + 1e-12:
        return ""
    return (
        f"the model predicts the given labels no better than chance (mean probability {given.mean():.3f}, "
        f"by chance {chance.mean():.3f} ± {error:.3f})"
    )


def _by_self_confidence(proba: NDArray[Any], codes: IntArray, reason: str) -> LabelPosterior:
    n, k = proba.shape
    best = np.concatenate([proba[rows].argmax(axis=1) for rows in blocks(n, k)]).astype(np.int64)
    top = take(proba, best)
    accuracy = float(top.mean())
    return LabelPosterior(
        p_error=np.clip(1.0 - take(proba, codes), 0.0, 1.0),
        likeliest=best,
        p_likeliest=top,
        clean_prior=np.asarray(proba.mean(axis=0), dtype=np.float64),
        noise=None,
        noise_low=None,
        noise_high=None,
        accuracy_as_labelled=accuracy,
        accuracy_corrected=accuracy,
        reason=reason,
    )


def _by_candidates(proba: NDArray[Any], codes: IntArray, likelihood: FloatArray | None) -> LabelPosterior:
    n = len(proba)
    candidates = fit_candidates(proba, codes)
    one, one_given_label = np.empty(n), np.empty(n)
    for rows in blocks(n, len(candidates.weights)):
        clean = candidates.clean(proba[rows])
        one[rows] = candidates.weights @ clean
        one_given_label[rows] = candidates.given_label(
            clean, codes[rows], None if likelihood is None else likelihood[rows]
        )
    low, high = candidates.interval()
    return LabelPosterior(
        p_error=np.clip(np.where(codes == 1, 1.0 - one_given_label, one_given_label), 0.0, 1.0),
        likeliest=(one_given_label > 0.5).astype(np.int64),
        p_likeliest=np.maximum(one_given_label, 1.0 - one_given_label),
        clean_prior=np.array([1.0 - one.mean(), one.mean()]),
        noise=candidates.noise,
        noise_low=low,
        noise_high=high,
        accuracy_as_labelled=float(np.where(np.asarray(proba[:, 1]) > 0.5, one, 1.0 - one).mean()),
        accuracy_corrected=float(np.maximum(one, 1.0 - one).mean()),
        reason="",
        near_boundary=candidates.near_boundary,
    )


def _by_confident_joint(
    proba: NDArray[Any], codes: IntArray, likelihood: FloatArray | None
) -> LabelPosterior:
    n, k = proba.shape
    counted = count_noise(proba, codes)
    says = np.ascontiguousarray(counted.transition.T)
    some = sample_rows(n, k)
    curve = fit_curve(proba[some], codes[some], counted.transition)
    sampled = curve.apply(proba[some])
    p_given, p_best = np.empty(n), np.empty(n)
    likeliest = np.empty(n, dtype=np.int64)
    prior = np.zeros(k)
    for rows in blocks(n, k):
        clean = curve.apply(proba[rows])
        clean *= says[codes[rows]] if likelihood is None else likelihood[rows]
        normalise_rows(clean)
        p_given[rows] = take(clean, codes[rows])
        likeliest[rows] = clean.argmax(axis=1)
        p_best[rows] = take(clean, likeliest[rows])
        prior += np.ones(len(clean)) @ clean
    low, high = counted.interval()
    return LabelPosterior(
        p_error=np.clip(1.0 - p_given, 0.0, 1.0),
        likeliest=likeliest,
        p_likeliest=p_best,
        clean_prior=prior / prior.sum(),
        noise=NoiseModel(counted.transition),
        noise_low=low,
        noise_high=high,
        accuracy_as_labelled=float(take(sampled, proba[some].argmax(axis=1)).mean()),
        accuracy_corrected=float(sampled.max(axis=1).mean()),
        reason="",
    )


def suspicious_first(p_error: FloatArray) -> IntArray:
    """Return the positions of the rows, likeliest errors first; among equals the earlier row."""
    return np.argsort(-p_error, kind="stable")


def flag_suspects(p_error: FloatArray, order: IntArray) -> NDArray[np.bool_]:
    """Flag as many rows, in their order, as make the expected F1 of the flags greatest.

    Flagging the m likeliest errors has expected F1 close to 2·Σ_{i ≤ m} p_i / (m + Σ p). At ½ one would flag
    too few where errors are many and hard to tell.
    """
    found = np.cumsum(p_error[order])
    flagged = np.zeros(len(p_error), dtype=bool)
    if found[-1] > 0:
        f1 = 2.0 * found / (np.arange(1, len(p_error) + 1) + found[-1])
        flagged[order[: int(f1.argmax()) + 1]] = True
    return flagged
