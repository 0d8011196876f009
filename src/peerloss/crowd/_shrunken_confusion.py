"""Labels as a weighted mean of two shrunken models of the workers and of the votes.

Dawid and Skene's model needs many reports per worker: each confusion matrix has K·(K − 1) parameters. If EM
runs to convergence on few reports, it drifts away from the votes, and its probabilities are overconfident,
since real workers do not err independently of each other. This model differs in three ways:

* EM stops after a few rounds.
* There are two models. In one, each worker's confusion matrix is shrunk to the worker's own one-coin matrix,
  which has one accuracy and equally probable errors; the crowd's reports choose how much. In the other it is
  shrunk to the average worker of the crowd. The first is better for few reports and unbalanced classes, the
  second if the whole crowd confuses the same classes, and the likelihood does not choose well between them.
* The probabilities are a weighted mean of both models and of the shares of the votes, as if in a part of the
  tasks the reports were not independent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy import special

from peerloss.crowd._dawid_skene import shrink_to_crowd

if TYPE_CHECKING:
    from peerloss._validation import FloatArray
    from peerloss.crowd._report_matrix import ReportMatrix

#: Number of EM rounds. The accuracy hardly changes between 3 and 6 rounds; later rounds drift.
ROUNDS = 4
#: Number of reports of the crowd's average accuracy that are added to each worker's.
ACCURACY_REPORTS = 15.0
#: Candidates for the number of reports per true label by which confusion matrices are shrunk.
STRENGTHS = 2.0 ** np.arange(-1, 9)
#: The strength is chosen with at most this many workers.
MAX_WORKERS = 2000
#: Weight of the votes in the probabilities, and the number of votes, distributed like those of all tasks, by
#: which they are smoothed. The two models share the rest.
VOTE_WEIGHT = 0.4
VOTE_SMOOTHING = 0.3
#: The one-coin model has converged when the probabilities of a task change by less than this on average.
TOLERANCE = 1e-4
MAX_ROUNDS = 100


@dataclass(frozen=True, eq=False)
class ShrunkenFit:
    """Probabilities of the tasks, and the models of the workers behind them.

    ``models`` holds, for each model, P(label | true label) of each cell of the matrix, and to what it is
    shrunk: the accuracy of each worker with a report, or the confusion matrix of the crowd.
    """

    probabilities: FloatArray
    class_prior: FloatArray
    models: tuple[tuple[FloatArray, FloatArray], ...]
    n_rounds: int


def fit_shrunken(matrix: ReportMatrix) -> ShrunkenFit:
    """Fit both models for a few rounds, and return a weighted mean of their probabilities and the votes."""
    total = VOTE_WEIGHT * matrix.vote_shares(smoothing=VOTE_SMOOTHING)
    priors, models = [], []
    for shrink in (shrink_to_one_coin, shrink_to_crowd):
        probabilities = matrix.vote_shares()
        for _ in range(ROUNDS):
            class_prior = matrix.class_prior(probabilities)
            base, confusion = shrink(matrix, probabilities)
            matrix.update_probabilities(probabilities, confusion, class_prior)
        total += (1 - VOTE_WEIGHT) / 2 * probabilities
        priors.append(class_prior)
        models.append((confusion, base))
    return ShrunkenFit(total, np.mean(priors, axis=0), tuple(models), ROUNDS)


def fit_one_coin(matrix: ReportMatrix) -> ShrunkenFit:
    """Fit the one-coin model by EM until it converges: one accuracy per worker, equally probable errors."""
    probabilities = matrix.vote_shares()
    n_rounds, change = 0, np.inf
    while n_rounds < MAX_ROUNDS and change >= TOLERANCE:
        class_prior = matrix.class_prior(probabilities)
        accuracy, confusion = shrink_to_one_coin(matrix, probabilities, strength=np.inf, accuracy_reports=1.0)
        change = matrix.update_probabilities(probabilities, confusion, class_prior)
        n_rounds += 1
    return ShrunkenFit(probabilities, class_prior, ((confusion, accuracy),), n_rounds)


def one_coin_matrix(accuracy: float, n_labels: int) -> FloatArray:
    """Return the confusion matrix with ``accuracy`` on the diagonal and equal probabilities elsewhere."""
    table: FloatArray = np.full((n_labels, n_labels), (1.0 - accuracy) / (n_labels - 1))
    np.fill_diagonal(table, accuracy)
    return table


def shrink_to_one_coin(
    matrix: ReportMatrix,
    probabilities: FloatArray,
    *,
    strength: float | None = None,
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
