"""Scores of workers without gold labels: correlated agreement, quadratic, logarithmic, plain agreement."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from peerloss._validation import FloatArray, IntArray, as_float_array, as_joint
from peerloss.exceptions import InvalidInputError
from peerloss.peer_prediction._score_matrices import logarithmic_matrix, quadratic_matrix
from peerloss.peer_prediction.reports import Reports, ReportsLike, as_reports
from peerloss.peer_prediction.shared_reports import (
    SharedReports,
    ca_influence,
    common_matrix,
    pair_counts,
    signs_from_others,
)
from peerloss.theory import sign_matrix

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


def estimate_joint(reports: Reports | ReportsLike) -> FloatArray:
    """Estimate the joint distribution of the reports of two workers on one task.

    All ordered pairs of different workers on one task are pooled. Every *pair* has the same weight, so a task
    with m answers counts m(m − 1) times. The result is symmetric.

    If workers have different label frequencies, this joint minus the product of its marginals is not the mean
    Δ of the pairs, and can have another sign. :func:`correlated_agreement` therefore does not use it.

    Parameters
    ----------
    reports
        :class:`Reports`, or what :meth:`Reports.from_table` takes.

    Returns
    -------
    P(own label, peer's label), shape (K, K), in the order of ``Reports.labels``.

    Raises
    ------
    InvalidInputError
        If no task was answered by two workers.

    Examples
    --------
    >>> table = [(0, "ann", "no"), (0, "bob", "no"), (1, "ann", "yes"), (1, "bob", "no")]
    >>> estimate_joint(table).tolist()
    [[0.5, 0.25], [0.25, 0.0]]
    """
    pairs = pair_counts(as_reports(reports))
    return np.asarray(pairs / pairs.sum())


def correlated_agreement(reports: Reports | ReportsLike, *, delta: ArrayLike | None = None) -> pd.DataFrame:
    """Score workers by correlated agreement (CA): agreement beyond that on unrelated tasks.

    ``M(y^A_n, y^B_n) − M(y^A_{n₁}, y^B_{n₂})``, n₁ ≠ n₂, with M = Sgn(Δ) (paper, section "Correlated
    Agreement"), averaged over a worker's n shared tasks, over the other workers on them, and over all
    n₁ ≠ n₂ instead of one draw. If J_w is the joint table of own and peers' labels and o_w and ref_w are its
    marginals, this average is ``n/(n − 1) · Σ_kl M[k, l] (J_w[k, l] − o_w[k] ref_w[l])``.

    Without ``delta``, each worker's Sgn(Δ) is estimated from the reports of the *other* workers. A worker's
    own reports must not choose the matrix that scores them: if Sgn(Δ) is pooled over all workers, it pays for
    chance agreement, and in a small crowd random guesses score nearly as much as honest work.

    For any number of tasks, constant reports score exactly 0, and reports that do not depend on the tasks
    score 0 in expectation, whatever the others do. Among honest workers:

    * If ``delta`` is given and true, no report has a larger expectation than the truth. A permuted report is
      strictly worse if labels are categorical (Sgn(Δ) = I).
    * If ``delta`` is estimated, the same holds if the estimated Sgn(Δ) is right. With many tasks it is right
      if Sgn(Δ) is the same for all pairs of honest workers, whatever their accuracies and label frequencies
      are; with two labels this only requires that each is better than chance. Workers who do not look at the
      tasks do not change Δ̂ in expectation. A worker who permutes the labels reduces it: with one such worker
      of equal accuracy and two labels, at least five workers must be honest. With two labels, the truth is
      the best report as long as its own expectation is positive.

    These statements assume that the tasks of each worker are a random sample. If workers get different kinds
    of tasks, for example batches with different label frequencies, score each kind separately.

    A permutation common to *all* workers never beats the truth but can equal it: always if Δ is estimated,
    since Sgn(Δ) is permuted too, and with a given ``delta`` if the permutation does not change Sgn(Δ). The
    score lies in [−1, 1]. It is a basis for payment, not an estimate of accuracy. A worker who copies another
    is informed and is paid accordingly.

    Parameters
    ----------
    reports
        :class:`Reports`, or what :meth:`Reports.from_table` takes.
    delta
        Δ[k, l] = P(k, l) − P(k) P(l), K×K in the order of ``Reports.labels``, known in advance. By default
        it is estimated for each worker from all pairs of *other* workers on one task, each pair with its own
        marginals and weighted by its number of common tasks. If no two others who both gave several labels
        share a task, Sgn(Δ) is the identity.

    Returns
    -------
    A frame with one row per worker in order of first appearance: ``score`` (nan with fewer than two shared
    tasks) and ``n_tasks``, the tasks shared with at least one other worker.

    Raises
    ------
    InvalidInputError
        If no task was answered by two workers, or ``delta`` is not a finite K×K matrix.

    References
    ----------
    Shnayder, Agarwal, Frongillo and Parkes, "Informed truthfulness in multi-task peer prediction", 2016.

    Examples
    --------
    >>> truth = [0, 0, 1, 1]
    >>> answers = {"ann": truth, "bob": truth, "cy": [0, 0, 0, 0]}
    >>> table = [(task, name, label) for name, labels in answers.items() for task, label in enumerate(labels)]
    >>> correlated_agreement(table, delta=[[0.25, -0.25], [-0.25, 0.25]])["score"].round(3).to_dict()
    {'ann': 0.333, 'bob': 0.333, 'cy': 0.0}
    """
    coded = as_reports(reports)
    pair_counts(coded)  # fails fast if no task has two workers
    shared = SharedReports(coded)
    if delta is None:
        rows = signs_from_others(shared)
    else:
        given = _check_shape(as_float_array(delta, "delta", ndim=2), "delta", coded)
        rows = common_matrix(np.asarray(sign_matrix(given), dtype=np.float64))
    return _frame(coded, shared, ca_influence(shared, rows))


def quadratic_score(reports: Reports | ReportsLike, *, joint: ArrayLike | None = None) -> pd.DataFrame:
    """Score workers by how well their reports predict their peers', with the quadratic rule.

    ``S[k, l] = 2 P(l | k) − Σ_s P(s | k)²`` (paper, appendix Example 1), averaged over the other workers on
    each task and over the worker's tasks. The score is strictly truthful if signals are stochastically
    relevant (:func:`peerloss.theory.is_stochastically_relevant`) *and P is the true distribution*. If P is
    estimated from the reports, the score rewards whatever makes reports easy to predict, above all a constant
    that all workers report.

    Parameters
    ----------
    reports
        :class:`Reports`, or what :meth:`Reports.from_table` takes.
    joint
        P(own signal, peer's label), K×K in the order of ``Reports.labels``; by default
        :func:`estimate_joint`.

    Returns
    -------
    A frame with one row per worker in order of first appearance: ``score`` (nan without shared tasks) and
    ``n_tasks``.

    Raises
    ------
    InvalidInputError
        If no task was answered by two workers, or if ``joint`` is not K×K probabilities with positive
        probability for every label that occurs.

    Examples
    --------
    >>> table = [(0, "ann", "no"), (0, "bob", "no"), (1, "ann", "yes"), (1, "bob", "no"), (2, "cy", "no")]
    >>> quadratic_score(table, joint=[[0.4, 0.1], [0.1, 0.4]]).round(2).to_dict("list")
    {'score': [0.32, 0.32, nan], 'n_tasks': [2, 2, 0]}
    """
    coded = as_reports(reports)
    pairs = pair_counts(coded)
    table = _check_joint(joint, pairs, coded)
    unseen = np.flatnonzero((table.sum(axis=1) == 0) & (pairs.sum(axis=1) > 0))
    if unseen.size:
        raise InvalidInputError(
            f"`joint` must give positive probability to every own label that occurs; label "
            f"{coded.labels[unseen[0]]} has none. Add a small count to every pair and divide by the total."
        )
    return _mean_score(coded, quadratic_matrix(table))


def logarithmic_score(reports: Reports | ReportsLike, *, joint: ArrayLike | None = None) -> pd.DataFrame:
    """Score workers by how well their reports predict their peers', with the logarithmic rule.

    ``S[k, l] = log P(l | k)`` (paper, appendix Example 2), averaged over the other workers on each task and
    over the worker's tasks. The score is strictly truthful if signals are stochastically relevant *and P is
    the true distribution*; see :func:`quadratic_score`.

    Parameters
    ----------
    reports
        :class:`Reports`, or what :meth:`Reports.from_table` takes.
    joint
        P(own signal, peer's label), K×K in the order of ``Reports.labels``; by default
        :func:`estimate_joint`.

    Returns
    -------
    A frame with one row per worker in order of first appearance: ``score`` (nan without shared tasks) and
    ``n_tasks``.

    Raises
    ------
    InvalidInputError
        If no task was answered by two workers, or if ``joint`` is not K×K probabilities with positive
        probability for every pair of labels that occurs.

    Examples
    --------
    >>> table = [(0, "ann", "no"), (0, "bob", "no"), (1, "ann", "yes"), (1, "bob", "no")]
    >>> logarithmic_score(table, joint=[[0.4, 0.1], [0.1, 0.4]])["score"].round(3).to_dict()
    {'ann': -0.916, 'bob': -0.916}
    """
    coded = as_reports(reports)
    pairs = pair_counts(coded)
    score = logarithmic_matrix(_check_joint(joint, pairs, coded))
    impossible = np.argwhere(np.isneginf(score) & (pairs > 0))
    if impossible.size:
        own, peer = coded.labels[impossible[0]]
        raise InvalidInputError(
            f"`joint` must give positive probability to every pair of labels that occurs; own {own} with "
            f"peer {peer} has none, so its logarithm is −∞. Add a small count to every pair and divide by "
            "the total."
        )
    return _mean_score(coded, np.where(np.isneginf(score), 0.0, score))


def plain_agreement(reports: Reports | ReportsLike) -> pd.DataFrame:
    """Score workers by how often others give the same label (S = I), for comparison only.

    This score is not truthful: if one label is common, always reporting it scores more than honest work.

    Parameters
    ----------
    reports
        :class:`Reports`, or what :meth:`Reports.from_table` takes.

    Returns
    -------
    A frame with one row per worker in order of first appearance: ``score`` (nan without shared tasks) and
    ``n_tasks``.

    Examples
    --------
    >>> table = [(0, "ann", "no"), (0, "bob", "no"), (1, "ann", "yes"), (1, "bob", "no")]
    >>> plain_agreement(table)["score"].to_dict()
    {'ann': 0.5, 'bob': 0.5}
    """
    coded = as_reports(reports)
    return _mean_score(coded, np.eye(len(pair_counts(coded))))


def _mean_score(reports: Reports, score: FloatArray) -> pd.DataFrame:
    shared = SharedReports(reports)
    return _frame(reports, shared, shared.agreement(score))


def _frame(reports: Reports, shared: SharedReports, values: FloatArray) -> pd.DataFrame:
    """Average one value per report over each worker's reports."""
    columns = {"score": shared.mean_by_worker(values), "n_tasks": shared.n_tasks}
    return pd.DataFrame(columns, index=pd.Index(reports.workers, name="worker"))


def _check_joint(joint: ArrayLike | None, pairs: IntArray, reports: Reports) -> FloatArray:
    if joint is None:
        return np.asarray(pairs / pairs.sum())
    return _check_shape(as_joint(joint, "joint"), "joint", reports)


def _check_shape(matrix: FloatArray, name: str, reports: Reports) -> FloatArray:
    k = len(reports.labels)
    if matrix.shape != (k, k):
        listed = ", ".join(str(label) for label in reports.labels[:10]) + (", …" if k > 10 else "")
        raise InvalidInputError(
            f"`{name}` must be {k}×{k}, in the order of the labels {listed}; got shape {matrix.shape}. "
            "If a label does not occur in the table, pass `Reports.from_table(table, labels=[...])`."
        )
    return matrix
