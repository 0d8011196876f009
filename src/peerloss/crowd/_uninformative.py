"""Flag workers who seem to guess, at a stated false discovery rate.

The statistic is correlated agreement with one peer who knows the reports of all others:
``G = Σ_t (P_t(own label) − mean over the worker's tasks)``, where P_t is the Dawid–Skene posterior of task t
without the worker's report. Constant reports have G = 0 exactly, uninformed reports have G = 0 on average.
Given the others' reports G is a sum over tasks, so its moments are known exactly under any hypothesis about
the worker.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from joblib import Parallel, delayed
from scipy import sparse, stats

from peerloss._probabilities import label_frequencies
from peerloss.crowd._effort_mixture import effort_weights, q_values
from peerloss.peer_prediction.shared_reports import CHUNK, split_by_cost

if TYPE_CHECKING:
    from collections.abc import Iterator

    from peerloss._validation import BoolArray, FloatArray, IntArray
    from peerloss.crowd._dawid_skene import DawidSkene
    from peerloss.peer_prediction.shared_reports import SharedReports

#: Hypotheses about a worker: the share of the tasks that it answers as the average worker does. It guesses
#: the others by the crowd's label frequencies.
EFFORTS = (0.0, 0.5, 1.0)
#: The position of the half-informed worker, the weakest who must not be flagged.
HALF = 1
#: Level of the one-sided test for G > 0. Workers who pass it are never flagged.
POSITIVE_LEVEL = 0.025
#: Tolerance for sums of probabilities over a worker's tasks.
ROUNDING = 1e-9
#: Largest skewness in densities, and how far their logarithm may fall below that of a normal distribution.
#: The tails of a Pearson type III distribution can end, and three moments do not determine them.
MAX_SKEW = 3.0
TAIL_FALL = 5.0


@dataclass(frozen=True, eq=False)
class Consensus:
    """How much each worker agrees with the others, compared with the workers of :data:`EFFORTS`."""

    observed: FloatArray
    """G of the worker."""
    squares: FloatArray
    """Sum over tasks of the squared influence on G, which gives its standard error."""
    expected: FloatArray
    variance: FloatArray
    third: FloatArray
    """Mean, variance and third central moment of G under each hypothesis, shape (efforts, workers)."""
    log_likelihood: FloatArray
    """Logarithm of the probability of exactly these labels, shape (efforts, workers)."""

    def p_values(self, *, constant: BoolArray) -> FloatArray:
        """Return P(G at most the observed one) for a half-informed worker; 1 without evidence.

        This is the tail of a Pearson type III distribution with the exact three moments. For constant reports
        it is at least the probability of exactly these labels.
        """
        p = np.ones(len(self.observed))
        usable = self.variance[HALF] > 0
        z, skew, _ = self._standardised(HALF, usable)
        p[usable] = stats.pearson3.cdf(z, skew)
        atom = np.exp(self.log_likelihood[HALF])
        bounded: FloatArray = np.where(constant, np.maximum(p, atom), p)
        return bounded

    def log_densities(self, *, constant: BoolArray) -> FloatArray:
        """Return the logarithm of the density of G under each hypothesis, shape (workers, efforts).

        It is 0 under all hypotheses if G cannot vary. A worker who does not look at the tasks may give a
        constant label, and G is then 0 with certainty. So relative to guessing, constant reports are at least
        as probable under another hypothesis as exactly these labels.
        """
        table = np.zeros((len(self.observed), len(EFFORTS)))
        usable: BoolArray = np.all(self.variance > ROUNDING, axis=0)
        for effort in range(len(EFFORTS)):
            z, skew, spread = self._standardised(effort, usable)
            density = stats.pearson3.logpdf(z, np.clip(skew, -MAX_SKEW, MAX_SKEW))
            table[usable, effort] = np.maximum(density, stats.norm.logpdf(z) - TAIL_FALL) - np.log(spread)
        atoms = table[:, :1] + self.log_likelihood.T
        atoms[:, 0] = -np.inf
        result: FloatArray = np.where(constant[:, None], np.maximum(table, atoms), table)
        return result

    def _standardised(self, effort: int, workers: BoolArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return G in standard deviations from its mean, its skewness and its standard deviation."""
        spread = np.sqrt(self.variance[effort, workers])
        z = (self.observed[workers] - self.expected[effort, workers]) / spread
        return z, self.third[effort, workers] / spread**3, spread


@dataclass(frozen=True, eq=False)
class GuessTest:
    """Who seems to guess, and the evidence: one entry per worker."""

    p_value: FloatArray
    """P(G at most the observed one) of a half-informed worker; nan with fewer than two shared tasks."""
    q_value: FloatArray
    """Expected share of other workers among those who are at least as suspicious; nan as above."""
    flagged: BoolArray


def find_guessers(found: Consensus, shared: SharedReports, *, false_positive_rate: float) -> GuessTest:
    """Flag workers whose G is compatible with guessing and too low for half-informed work.

    On average, the share ``false_positive_rate`` of the flagged workers, or less, is half-informed or better.
    The efforts of the workers are a mixture of :data:`EFFORTS`, whose weights are estimated from all workers
    (empirical Bayes). The q-value is the mean probability of not guessing among the workers who are at least
    as suspicious. The procedure of Benjamini and Hochberg on the p-values would count as if all workers were
    half-informed, so that its share of false discoveries stays far below the stated one.
    """
    tested = shared.n_tasks > 1
    p, q = np.full((2, len(tested)), np.nan)
    constant = shared.is_constant()
    p[tested] = found.p_values(constant=constant)[tested]
    if tested.any():
        log_density = found.log_densities(constant=constant)[tested]
        likelihood = np.exp(log_density - log_density.max(axis=1, keepdims=True))
        joint = likelihood * effort_weights(likelihood)
        q[tested] = q_values(joint[:, 1:].sum(axis=1) / joint.sum(axis=1))
    freedom = np.maximum(shared.n_tasks - 1, 1)
    threshold = stats.t.ppf(1 - POSITIVE_LEVEL, freedom) * np.sqrt(found.squares)
    # Constant reports have G = 0 up to rounding. Comparisons with nan are false.
    return GuessTest(p, q, np.asarray((q <= false_positive_rate) & (found.observed <= threshold + ROUNDING)))


def consensus(shared: SharedReports, model: DawidSkene, *, n_jobs: int | None = None) -> Consensus:
    """Compute the statistics in blocks of workers; the result does not depend on ``n_jobs``."""
    reports = model.reports
    answers = np.asarray(reports.counts.sum(axis=1))[reports.task_codes]
    view = _View(
        shared,
        model,
        cells=model.cells[answers > 1],
        guess=label_frequencies(reports.label_codes, len(reports.labels)),
    )
    average = view.average_confusion()
    blocks = list(split_by_cost(shared.ends, len(view.guess)))
    parts = Parallel(n_jobs=n_jobs, prefer="threads")(
        delayed(view.block)(average, *block) for block in blocks
    )
    n = len(EFFORTS)
    rows = np.concatenate(parts, axis=1) if parts else np.zeros((2 + 4 * n, 0))
    return Consensus(rows[0], rows[1], *(rows[2 + i * n : 2 + (i + 1) * n] for i in range(4)))


@dataclass(frozen=True, eq=False)
class _View:
    """The shared reports, and the model of the crowd."""

    shared: SharedReports
    model: DawidSkene
    cells: IntArray
    """For each shared report, its row in ``model.confusion``."""
    guess: FloatArray
    """Frequencies of the labels in the crowd."""

    def average_confusion(self) -> FloatArray:
        """Return P(label | true label) of the average worker, shape (K, K).

        The model's pooled matrix overstates how well the others' reports predict a report, since its
        probabilities contain the report itself. Shares counted with the posterior of the *others* understate
        it, since they contain the errors of this posterior. The mean of both is used.
        """
        counted = np.zeros_like(self.model.pooled_confusion)
        for part in self._chunks(np.arange(len(self.shared.worker))):
            np.add.at(counted.T, self.shared.own[part], self._others(part))
        counted = (counted + self.guess) / (counted.sum(axis=1, keepdims=True) + 1.0)
        average: FloatArray = (counted + self.model.pooled_confusion) / 2
        return average

    def block(self, average: FloatArray, first: int, last: int) -> FloatArray:
        """Return the values of :class:`Consensus` for consecutive workers, one row per value and effort."""
        rows = self.shared.of_workers(first, last)
        n = np.maximum(self.shared.n_tasks[first:last], 1).astype(np.float64)[:, None]
        own_share, mean = np.zeros((2, last - first, len(self.guess)))
        for part in self._chunks(rows):
            who, report = self.shared.worker[part] - first, np.arange(len(part))
            np.add.at(own_share, (who, self.shared.own[part]), 1.0)
            of_worker = sparse.csr_array((np.ones(len(part)), (who, report)), shape=(last - first, len(part)))
            mean += np.asarray(of_worker @ self._others(part)) / n
        own_share /= n
        out = np.zeros((2 + 4 * len(EFFORTS), last - first))
        for part in self._chunks(rows):
            who = self.shared.worker[part] - first
            moments = self._moments(part, average, own_share[who], mean[who])
            out += [np.bincount(who, weights=values, minlength=last - first) for values in moments]
        return out

    def _chunks(self, rows: IntArray) -> Iterator[IntArray]:
        step = max(1, CHUNK // len(self.guess))
        return (rows[begin : begin + step] for begin in range(0, len(rows), step))

    def _others(self, rows: IntArray) -> FloatArray:
        """Return P(true label | the others' reports), shape (rows, K): the posterior without the report."""
        tiny = np.finfo(float).tiny
        own = self.model.confusion[self.cells[rows]]
        others: FloatArray = self.model.probabilities[self.shared.task[rows]] / np.maximum(own, tiny)
        others /= np.maximum(others.sum(axis=1, keepdims=True), tiny)
        return others

    def _moments(
        self, rows: IntArray, average: FloatArray, own_share: FloatArray, mean: FloatArray
    ) -> list[FloatArray]:
        others = self._others(rows)
        informed = others @ average
        informed /= informed.sum(axis=1, keepdims=True)
        payoff = others
        payoff -= mean
        here, own = np.arange(len(rows)), self.shared.own[rows]
        observed = payoff[here, own]
        influence = observed - np.einsum("ij,ij->i", own_share, payoff)
        moments: list[list[FloatArray]] = [[], [], [], []]
        for effort in EFFORTS:
            chance = effort * informed + (1 - effort) * self.guess
            expected = np.einsum("ij,ij->i", chance, payoff)
            deviation = payoff - expected[:, None]
            log_likelihood = np.log(chance[here, own])
            chance *= deviation
            variance = np.einsum("ij,ij->i", chance, deviation)
            deviation *= deviation
            third = np.einsum("ij,ij->i", chance, deviation)
            for values, value in zip(moments, (expected, variance, third, log_likelihood), strict=True):
                values.append(value)
        return [observed, influence**2, *(value for values in moments for value in values)]
