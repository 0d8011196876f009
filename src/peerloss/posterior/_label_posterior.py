"""How probable it is that each label is wrong: P(clean ≠ given | x, given label).

With p the clean posterior at x and T the noise, P(clean = k | x, ỹ) = p_k·T[k, ỹ] / Σ_j p_j·T[j, ỹ].
Ranking by it compares rows of different labels correctly, which neither self-confidence (right for
symmetric noise) nor one threshold per class (right for one kind of asymmetric noise) do everywhere.

p and T come from :mod:`peerloss.posterior._ranking`, and with more classes from
:mod:`peerloss.posterior._confident`, in memory that does not grow with the number of rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from peerloss._probabilities import blocks, normalise_rows, row_sums, take
from peerloss.noise import NoiseModel
from peerloss.posterior._confident import count_noise, fit_curve, sample_rows
from peerloss.posterior._ranking import fit_candidates

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
    model_ignored: str = ""
    """Why the model's probabilities were not used, and annotators' reports alone were; empty if they were."""
    log_evidence: float = 0.0
    """Mean of log Σ_k P(clean = k | x)·likelihood_k, if a likelihood was given."""


def label_posterior(
    proba: NDArray[Any],
    codes: IntArray,
    *,
    likelihood: FloatArray | None = None,
    reported: FloatArray | None = None,
) -> LabelPosterior:
    """Return the posterior of every row's label.

    A model that predicts the given labels no better than chance says nothing about them. Then ``reported``
    takes its place; without that, the model's confidence in each label is all there is. ``reported`` also
    takes the place of a model which explains the reports of several annotators worse than the shares of the
    classes alone do.

    Parameters
    ----------
    proba
        Out-of-fold probabilities of the noisy labels, (n, K).
    codes
        The given labels, 0..K-1.
    likelihood
        P(what was said of the row | clean = k), (n, K), where more is known than one label: it takes the
        place of T[k, ỹ]. T is then that of the given labels.
    reported
        P(clean = k | what was said of the row), (n, K), from the annotators' reports alone.
    """
    reason = _no_better_than_chance(proba, codes)
    if reason and reported is not None:
        return replace(posterior_of_reports(reported, codes), model_ignored=reason)
    if reason:
        return _by_self_confidence(proba, codes, reason)
    found = (_by_candidates if proba.shape[1] == 2 else _by_confident_joint)(proba, codes, likelihood)
    if likelihood is None or reported is None:
        return found
    without = float(np.log(np.maximum(likelihood @ reported.mean(axis=0), 1e-300)).mean())
    if found.log_evidence > without:
        return found
    reason = (
        "the model explains the annotators' reports worse than the shares of the classes do (mean "
        f"log-likelihood {found.log_evidence:.3f} and {without:.3f})"
    )
    return replace(posterior_of_reports(reported, codes), model_ignored=reason)


def posterior_of_reports(reported: FloatArray, codes: IntArray) -> LabelPosterior:
    """Return the posterior of every row's label from the annotators' reports and nothing else."""
    return label_posterior(reported, codes, likelihood=np.ones_like(reported))


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
    accuracy = float(take(proba, best).mean())
    return LabelPosterior(
        p_error=np.clip(1.0 - take(proba, codes), 0.0, 1.0),
        likeliest=best,
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
    evidence = np.ones(n) if likelihood is None else likelihood[:, 0] * (1.0 - one) + likelihood[:, 1] * one
    return LabelPosterior(
        p_error=np.clip(np.where(codes == 1, 1.0 - one_given_label, one_given_label), 0.0, 1.0),
        likeliest=(one_given_label > 0.5).astype(np.int64),
        clean_prior=np.array([1.0 - one.mean(), one.mean()]),
        noise=candidates.noise,
        noise_low=low,
        noise_high=high,
        accuracy_as_labelled=float(np.where(np.asarray(proba[:, 1]) > 0.5, one, 1.0 - one).mean()),
        accuracy_corrected=float(np.maximum(one, 1.0 - one).mean()),
        reason="",
        near_boundary=candidates.near_boundary,
        log_evidence=float(np.log(np.maximum(evidence, 1e-300)).mean()),
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
    p_given = np.empty(n)
    likeliest = np.empty(n, dtype=np.int64)
    prior, evidence = np.zeros(k), 0.0
    for rows in blocks(n, k):
        clean = curve.apply(proba[rows])
        clean *= says[codes[rows]] if likelihood is None else likelihood[rows]
        evidence += float(np.log(np.maximum(row_sums(clean), 1e-300)).sum())
        normalise_rows(clean)
        p_given[rows] = take(clean, codes[rows])
        likeliest[rows] = clean.argmax(axis=1)
        prior += np.ones(len(clean)) @ clean
    low, high = counted.interval()
    return LabelPosterior(
        p_error=np.clip(1.0 - p_given, 0.0, 1.0),
        likeliest=likeliest,
        clean_prior=prior / prior.sum(),
        noise=NoiseModel(counted.transition),
        noise_low=low,
        noise_high=high,
        accuracy_as_labelled=float(take(sampled, proba[some].argmax(axis=1)).mean()),
        accuracy_corrected=float(sampled.max(axis=1).mean()),
        reason="",
        log_evidence=evidence / n,
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
