"""Labels from the reports of several workers and from a model of the features.

A model predicts the workers' labels without knowing the task's own reports (out of fold), so given the true
label it is independent of them. Bayes' rule combines both: P(z | task) ∝ P(z | x) · Π P(its reports | z).

The reports are modelled as in :mod:`peerloss.crowd._shrunken_confusion`: a weighted mean of two models, whose
confusion matrices are shrunk to each worker's one-coin matrix and to the crowd's average worker, and of the
votes. In each round of EM the model's probabilities are calibrated to the reports
(:class:`peerloss.posterior.many_classes.CleanCurve`): slope and biases maximise the likelihood of the
reports, so that a model that predicts *noisy* labels becomes one of the true label. A calibrated model also
makes the confusion matrices better known, which matters most with few labels per task and many classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from peerloss._probabilities import normalise_rows
from peerloss.crowd._copies import copy_weights
from peerloss.crowd._dawid_skene import shrink_to_crowd
from peerloss.crowd._report_matrix import ReportMatrix
from peerloss.crowd._shrunken_confusion import (
    ROUNDS,
    VOTE_SMOOTHING,
    VOTE_WEIGHT,
    fit_shrunken,
    one_coin_matrix,
    shrink_to_one_coin,
)
from peerloss.noise import NoiseModel
from peerloss.posterior.many_classes import CleanCurve, sample_rows
from peerloss.posterior.noise_posterior import stable_noise

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from peerloss._validation import FloatArray, IntArray
    from peerloss.peer_prediction import Reports

#: Number of reports per true label by which the average worker's matrix is shrunk to a one-coin matrix.
SHRINK_REPORTS = 5.0


@dataclass(frozen=True, eq=False)
class CombinedLabels:
    """Probabilities of the true labels; created by :func:`combine_reports`."""

    probabilities: FloatArray
    """P(true label | reports, features) of each task, shape (tasks, K)."""
    average_worker: FloatArray
    """P(label | true label) of a report of a random worker, shape (K, K)."""
    from_features: FloatArray | None = None
    """P(true label | features) of each task, without its reports, shape (tasks, K); ``None`` without a
    model."""
    curves: tuple[CleanCurve, ...] = ()
    """The calibrated curves of the models of the workers; empty without a model."""
    log_evidence: float = 0.0
    """Mean log-likelihood of the reports on a task with the model's probabilities."""
    log_evidence_without: float = 0.0
    """The same with the class frequencies instead of the model."""

    def transform(self, proba: NDArray[Any]) -> FloatArray:
        """Return P(true label | features), shape (n, K), from the model's probabilities of labels, (n, K)."""
        return _transform(self.curves, np.asarray(proba, dtype=np.float64))


def combine_reports(
    reports: Reports, *, proba: NDArray[Any] | None = None, gold: IntArray | None = None
) -> CombinedLabels:
    """Return the probabilities of the true labels from reports and, if given, a model's probabilities.

    Parameters
    ----------
    reports
        The coded reports.
    proba
        Out-of-fold probabilities of the tasks' labels, shape (tasks, K), in the order of ``reports.labels``.
    gold
        The position of each task's known label among the labels, −1 if unknown, shape (tasks,).
    """
    matrix = ReportMatrix(reports, gold=gold, weights=copy_weights(reports))
    if proba is None:
        probabilities = fit_shrunken(matrix).probabilities
        return CombinedLabels(probabilities, _average_worker(matrix, probabilities))
    majority = majority_labels(reports)
    proba = np.asarray(proba, dtype=np.float64)
    fits = [_fit(matrix, proba, majority, shrink) for shrink in (shrink_to_one_coin, shrink_to_crowd)]
    votes = matrix.vote_shares(smoothing=VOTE_SMOOTHING)
    share = np.maximum(matrix.class_prior(matrix.vote_shares()), np.finfo(float).tiny)
    curves = tuple(fit[1] for fit in fits)
    clean = _transform(curves, proba)
    total = VOTE_WEIGHT * normalise_rows(clean * votes / share)
    total += (1.0 - VOTE_WEIGHT) * np.mean([fit[0] for fit in fits], axis=0)
    with_model, without = np.mean([fit[2] for fit in fits], axis=0)
    total = matrix.fix_gold(total)
    return CombinedLabels(
        total, _average_worker(matrix, total), clean, curves, float(with_model), float(without)
    )


def _transform(curves: tuple[CleanCurve, ...], proba: FloatArray) -> FloatArray:
    return np.asarray(np.mean([curve.transform(proba) for curve in curves], axis=0))


def majority_labels(reports: Reports, preferred: FloatArray | None = None) -> IntArray:
    """Return the label of each task with the most votes.

    Of tied labels, the one with the largest value of ``preferred``, shape (tasks, K); by default the first.
    """
    if preferred is None:
        return np.asarray(reports.counts.argmax(axis=1)).ravel()
    votes = reports.counts.toarray()
    most = votes == votes.max(axis=1, keepdims=True)
    return np.asarray(np.where(most, preferred, -1.0).argmax(axis=1))


def _fit(
    matrix: ReportMatrix, proba: FloatArray, majority: IntArray, shrink: Any
) -> tuple[FloatArray, CleanCurve, tuple[float, float]]:
    """Return the probabilities of the tasks, the calibrated model, and the evidence with and without it."""
    k = matrix.n_labels
    clean = proba + 1.0 / matrix.n_tasks  # no class is impossible at the start
    probabilities = matrix.fix_gold(normalise_rows(matrix.vote_shares() * clean))
    for _ in range(ROUNDS):
        _, confusion = shrink(matrix, probabilities)
        likelihood = matrix.likelihood(confusion)
        known = matrix.fix_gold(likelihood.copy())
        curve = _calibrate(proba, known, _majority_noise(probabilities, majority, k), majority)
        clean = curve.transform(proba)
        probabilities = matrix.fix_gold(normalise_rows(clean * likelihood))
    prior = matrix.class_prior(probabilities)
    evidence = tuple(
        float(np.log(np.maximum((p * likelihood)[matrix.answered].sum(axis=1), 1e-300)).mean())
        for p in (clean, prior[None])
    )
    return probabilities, curve, (evidence[0], evidence[1])


def _majority_noise(probabilities: FloatArray, majority: IntArray, k: int) -> NoiseModel:
    """Return P(majority label | true label), with one task of equal labels added to each class."""
    joint = np.full((k, k), 1.0 / k)
    np.add.at(joint.T, majority, probabilities)
    return NoiseModel(normalise_rows(joint))


def _calibrate(
    proba: FloatArray, likelihood: FloatArray, noise: NoiseModel, majority: IntArray
) -> CleanCurve:
    """Return the map to P(true label | features) with the slope and biases that explain the reports best."""
    some = sample_rows(*proba.shape)
    labels = majority[some]
    noise = stable_noise(noise, np.bincount(labels, minlength=proba.shape[1]) / len(labels))
    curve, _ = CleanCurve.fit(proba[some], labels, np.ones(len(labels)), noise, likelihood=likelihood[some])
    return curve


def _average_worker(matrix: ReportMatrix, probabilities: FloatArray) -> FloatArray:
    """Return P(label | true label) of a random report, shrunk to a one-coin matrix."""
    mass, _ = matrix.label_mass(probabilities)
    counts = np.zeros((matrix.n_labels, matrix.n_labels))
    np.add.at(counts.T, matrix.label, mass)
    accuracy = float(np.trace(counts) / counts.sum())
    return normalise_rows(counts + SHRINK_REPORTS * one_coin_matrix(accuracy, matrix.n_labels))
