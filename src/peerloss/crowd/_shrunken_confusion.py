"""Confusion matrices shrunk to one-coin matrices, and probabilities that are mixed with the votes.

Dawid and Skene's model needs many reports per worker: each confusion matrix has K·(K − 1) parameters. If EM
runs to convergence on few reports, it drifts away from the votes, and its probabilities are overconfident,
since real workers do not err independently of each other. This model differs in three ways:

* Each worker's confusion matrix is shrunk to the worker's own one-coin matrix, which has one accuracy and
  equally probable errors. The crowd's reports choose how much.
* EM stops after a few rounds.
* The probabilities are mixed with the shares of the votes, as if in a part of the tasks the reports were not
  independent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy import special

if TYPE_CHECKING:
    from peerloss._validation import FloatArray
    from peerloss.crowd._report_matrix import ReportMatrix

#: Number of EM rounds. On development crowds the accuracy hardly changes between 4 and 10 rounds, then falls.
ROUNDS = 6
#: Number of reports of the crowd's average accuracy that are added to each worker's.
ACCURACY_REPORTS = 15.0
#: Candidates for the number of reports per true label by which confusion matrices are shrunk.
STRENGTHS = 2.0 ** np.arange(-1, 9)
#: The strength is chosen with at most this many workers.
MAX_WORKERS = 2000
#: Weight of the votes in the probabilities, and the number of votes by which they are smoothed.
VOTE_WEIGHT = 0.4
VOTE_SMOOTHING = 0.3
#: The one-coin model has converged when the probabilities of a task change by less than this on average.
TOLERANCE = 1e-4
MAX_ROUNDS = 100


@dataclass(frozen=True, eq=False)
class ShrunkenFit:
    """Probabilities of the tasks, and the model of the workers behind them.

    ``accuracy`` is the one-coin accuracy of each worker with a report, and ``confusion`` holds P(label | true
    label) of each cell of the matrix.
    """

    probabilities: FloatArray
    class_prior: FloatArray
    accuracy: FloatArray
    confusion: FloatArray
    n_rounds: int
    converged: bool


def fit_shrunken(matrix: ReportMatrix) -> ShrunkenFit:
    """Fit the model for a few rounds, and mix its probabilities with the votes."""
    probabilities = matrix.vote_shares()
    for _ in range(ROUNDS):
        class_prior = matrix.class_prior(probabilities)
        accuracy, confusion = _estimate(matrix, probabilities, strength=None)
        matrix.update_probabilities(probabilities, confusion, class_prior)
    probabilities *= 1 - VOTE_WEIGHT
    probabilities += VOTE_WEIGHT * matrix.vote_shares(smoothing=VOTE_SMOOTHING)
    return ShrunkenFit(probabilities, class_prior, accuracy, confusion, ROUNDS, converged=True)


def fit_one_coin(matrix: ReportMatrix) -> ShrunkenFit:
    """Fit the one-coin model by EM until it converges: one accuracy per worker, equally probable errors."""
    probabilities = matrix.vote_shares()
    n_rounds, change = 0, np.inf
    while n_rounds < MAX_ROUNDS and change >= TOLERANCE:
        class_prior = matrix.class_prior(probabilities)
        accuracy, confusion = _estimate(matrix, probabilities, strength=np.inf, accuracy_reports=1.0)
        change = matrix.update_probabilities(probabilities, confusion, class_prior)
        n_rounds += 1
    return ShrunkenFit(
        probabilities, class_prior, accuracy, confusion, n_rounds, converged=bool(change < TOLERANCE)
    )


def one_coin_matrix(accuracy: float, n_labels: int) -> FloatArray:
    """Return the confusion matrix with ``accuracy`` on the diagonal and equal probabilities elsewhere."""
    table: FloatArray = np.full((n_labels, n_labels), (1.0 - accuracy) / (n_labels - 1))
    np.fill_diagonal(table, accuracy)
    return table


def _estimate(
    matrix: ReportMatrix,
    probabilities: FloatArray,
    *,
    strength: float | None,
    accuracy_reports: float = ACCURACY_REPORTS,
) -> tuple[FloatArray, FloatArray]:
    """Return each worker's accuracy, and P(label | true label) of each cell.

    ``strength=None`` chooses how much confusion matrices are shrunk; infinity gives one-coin matrices.
    """
    mass, of_worker = matrix.label_mass(probabilities)
    cells = np.arange(len(matrix.label))
    right = np.add.reduceat(mass[cells, matrix.label], matrix.starts)
    total = of_worker.sum(axis=1)
    crowd = right.sum() / total.sum()
    accuracy = (right + accuracy_reports * crowd) / (total + accuracy_reports)
    # An accuracy of exactly 0 or 1 would exclude labels for ever.
    accuracy = np.clip(accuracy, 1e-6, 1 - 1e-6)
    of_cells = matrix.of_cells(accuracy)
    base = np.repeat(((1 - of_cells) / (matrix.n_labels - 1))[:, None], matrix.n_labels, axis=1)
    base[cells, matrix.label] = of_cells
    if strength is None:
        strength = _choose_strength(matrix, mass, of_worker, base)
    if np.isinf(strength):
        return accuracy, base
    base *= strength
    base += mass
    base /= matrix.of_cells(of_worker + strength)
    return accuracy, base


def _choose_strength(
    matrix: ReportMatrix, mass: FloatArray, of_worker: FloatArray, base: FloatArray
) -> float:
    """Maximise the marginal likelihood of the counts over the strength (empirical Bayes).

    Each row of a confusion matrix has a Dirichlet distribution with the mean ``base`` and the sum
    ``strength``.
    """
    chosen = np.zeros(len(of_worker), dtype=np.bool_)
    chosen[:: -(-len(of_worker) // MAX_WORKERS)] = True
    cells = matrix.of_cells(chosen)
    mass, base, total = mass[cells], base[cells], of_worker[chosen]
    evidence = [
        np.sum(special.gammaln(mass + s * base) - special.gammaln(s * base))
        - np.sum(special.gammaln(total + s) - special.gammaln(s))
        for s in STRENGTHS
    ]
    return float(STRENGTHS[int(np.argmax(evidence))])
