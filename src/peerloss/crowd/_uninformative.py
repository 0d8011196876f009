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
from peerloss.peer_prediction.shared_reports import CHUNK, split_by_cost

if TYPE_CHECKING:
    from collections.abc import Iterator

    from peerloss._validation import BoolArray, FloatArray, IntArray
    from peerloss.crowd._dawid_skene import DawidSkene
    from peerloss.peer_prediction.shared_reports import SharedReports

#: A worker who answers at least this share of the tasks as the average worker does is not uninformative.
EFFORT = 0.5
#: Level of the one-sided test for G > 0. Workers who pass it are never flagged.
POSITIVE_LEVEL = 0.025
#: Tolerance for sums of probabilities over a worker's tasks.
ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class Consensus:
    """How much each worker agrees with the others, compared with a half-informed worker on the same tasks.

    A half-informed worker answers half of the tasks as the crowd's average worker does, and guesses the
    other half by the crowd's label frequencies.
    """

    observed: FloatArray
    """G of the worker."""
    squares: FloatArray
    """Sum over tasks of the squared influence on G, which gives its standard error."""
    expected: FloatArray
    variance: FloatArray
    third: FloatArray
    """Mean, variance and third central moment of G of a half-informed worker."""
    log_likelihood: FloatArray
    """Logarithm of the probability that a half-informed worker gives exactly these labels."""

    def p_values(self, *, constant: BoolArray) -> FloatArray:
        """Return P(G at most the observed one) for a half-informed worker; 1 without evidence.

        This is the tail of a Pearson type III distribution with the exact three moments. For constant reports
        it is at least the probability of exactly these labels.
        """
        p = np.ones(len(self.observed))
        usable = self.variance > 0
        spread = np.sqrt(self.variance[usable])
        z = (self.observed[usable] - self.expected[usable]) / spread
        p[usable] = stats.pearson3.cdf(z, self.third[usable] / spread**3)
        atom = np.exp(self.log_likelihood)
        bounded: FloatArray = np.where(constant, np.maximum(p, atom), p)
        return bounded


def uninformative_workers(
    found: Consensus, shared: SharedReports, *, false_positive_rate: float
) -> BoolArray:
    """Flag workers whose G is compatible with guessing and too low for half-informed work.

    On average, at most the share ``false_positive_rate`` of the flagged workers is half-informed or better
    (the procedure of Benjamini and Hochberg over all workers with two or more shared tasks).
    """
    tested = shared.n_tasks > 1
    flagged = np.zeros(len(tested), dtype=np.bool_)
    p = found.p_values(constant=shared.is_constant())[tested]
    if len(p):
        flagged[tested] = stats.false_discovery_control(p) <= false_positive_rate
    freedom = np.maximum(shared.n_tasks - 1, 1)
    threshold = stats.t.ppf(1 - POSITIVE_LEVEL, freedom) * np.sqrt(found.squares)
    # Constant reports have G = 0 up to rounding.
    return np.asarray(flagged & (found.observed <= threshold + ROUNDING))


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
    blocks = list(split_by_cost(shared.ends, len(view.guess)))
    parts = Parallel(n_jobs=n_jobs, prefer="threads")(delayed(view.block)(*block) for block in blocks)
    return Consensus(*np.concatenate(parts, axis=1)) if parts else Consensus(*np.zeros((6, 0)))


@dataclass(frozen=True, eq=False)
class _View:
    """The shared reports, and the model of the crowd."""

    shared: SharedReports
    model: DawidSkene
    cells: IntArray
    """For each shared report, its row in ``model.confusion``."""
    guess: FloatArray
    """Frequencies of the labels in the crowd."""

    def block(self, first: int, last: int) -> FloatArray:
        """Return the six rows of :class:`Consensus` for consecutive workers."""
        rows = self.shared.of_workers(first, last)
        n = np.maximum(self.shared.n_tasks[first:last], 1).astype(np.float64)[:, None]
        own_share, mean = np.zeros((2, last - first, len(self.guess)))
        for part in self._chunks(rows):
            who, report = self.shared.worker[part] - first, np.arange(len(part))
            np.add.at(own_share, (who, self.shared.own[part]), 1.0)
            of_worker = sparse.csr_array((np.ones(len(part)), (who, report)), shape=(last - first, len(part)))
            mean += np.asarray(of_worker @ self._others(part)) / n
        own_share /= n
        out = np.zeros((6, last - first))
        for part in self._chunks(rows):
            who = self.shared.worker[part] - first
            moments = self._moments(part, who, own_share, mean)
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
        self, rows: IntArray, who: IntArray, own_share: FloatArray, mean: FloatArray
    ) -> tuple[FloatArray, ...]:
        others = self._others(rows)
        chance = others @ (EFFORT * self.model.pooled_confusion)
        chance += (1 - EFFORT) * self.guess
        chance /= chance.sum(axis=1, keepdims=True)
        payoff = others
        payoff -= mean[who]
        here, own = np.arange(len(rows)), self.shared.own[rows]
        observed, log_likelihood = payoff[here, own], np.log(chance[here, own])
        influence = observed - np.einsum("ij,ij->i", own_share[who], payoff)
        expected = np.einsum("ij,ij->i", chance, payoff)
        payoff -= expected[:, None]
        chance *= payoff
        variance = np.einsum("ij,ij->i", chance, payoff)
        payoff *= payoff
        third = np.einsum("ij,ij->i", chance, payoff)
        return observed, influence**2, expected, variance, third, log_likelihood
