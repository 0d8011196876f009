"""Score and pay workers: truthful scores with intervals, payments, accuracies, and who seems to guess."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from scipy import sparse, stats

from peerloss._random import RandomState, as_generator
from peerloss._validation import (
    FloatArray,
    IntArray,
    check_choice,
    check_count,
    check_finite,
    check_flag,
    check_in_range,
)
from peerloss.crowd._dawid_skene import DawidSkene, dawid_skene, expected_correct
from peerloss.crowd._payments import (
    affine_payments,
    check_budget,
    payment_terms,
    round_down,
    untruthful_split,
)
from peerloss.crowd._report_matrix import ReportMatrix
from peerloss.crowd._score_view import AnnotatorScores
from peerloss.crowd._shrunken_confusion import fit_shrunken
from peerloss.crowd._uninformative import consensus, find_guessers
from peerloss.crowd._unpaid_copies import paid_shares
from peerloss.crowd.choices import MECHANISMS, PAYMENTS
from peerloss.exceptions import InvalidInputError
from peerloss.peer_prediction import logarithmic_matrix, quadratic_matrix
from peerloss.peer_prediction.reports import as_reports
from peerloss.peer_prediction.shared_reports import (
    SharedReports,
    ca_influence,
    common_matrix,
    pair_counts,
    signs_from_others,
)

if TYPE_CHECKING:
    from decimal import Decimal

    from peerloss.crowd.gold_labels import GoldLike
    from peerloss.peer_prediction import Reports
    from peerloss.peer_prediction.reports import ReportsLike

#: Largest number of random weights, and of resampled scores, in memory at once (8 bytes each).
MAX_WEIGHTS = 1 << 24
MAX_SCORES = 1 << 24


def score_annotators(
    reports: Reports | ReportsLike | DawidSkene,
    *,
    gold: GoldLike | None = None,
    duplicates: str = "error",
    mechanism: str = "ca",
    budget: float | str | Decimal | None = None,
    payment: str = "affine",
    floor: float = 0.0,
    pay_copies: bool = False,
    confidence: float = 0.95,
    false_positive_rate: float = 0.05,
    n_bootstrap: int = 400,
    n_jobs: int | None = None,
    random_state: RandomState = None,
) -> pd.DataFrame:
    """Score workers without gold labels: what to pay them, how accurate they are, who seems to guess.

    ``score`` is a basis for payment, not an accuracy. The correlated agreement of a worker who does not look
    at the tasks is zero in expectation, and truthful reports have the largest expectation. But it does not
    reward distinguishing labels that the crowd confuses (Δ > 0 between them), and it grows with the variety
    of a worker's tasks. To rank workers by accuracy use ``accuracy`` or ``agreement``. On the crowds dog,
    weather, web and product the rank correlation with the true accuracy of workers with at least 20 tasks was
    .16, .93, .86, .22 for CA, .83, .94, .86, .69 for agreement and .84, .93, .93, .85 for Dawid–Skene (in
    dog, many workers confuse two pairs of breeds; in product, one class has 88 % of the tasks).

    Parameters
    ----------
    reports
        A frame with columns ``task`` (or ``item``), ``worker``, ``label``; (task, worker, label) triples;
        :class:`~peerloss.peer_prediction.Reports`; or the result of :func:`dawid_skene` on them.
    gold
        Known labels of some tasks, a Series whose index holds the tasks or a dictionary. They make
        ``accuracy`` and ``uninformative`` more precise. ``score`` and ``payment`` do not depend on them.
    duplicates
        If a worker labelled a task more than once, raise an ``"error"``, or keep the ``"first"`` or the
        ``"last"`` of its labels in the order of the table. ``Reports`` never hold duplicates.
    mechanism
        ``"ca"`` (:func:`~peerloss.peer_prediction.correlated_agreement`), ``"quadratic"`` or ``"log"``.
    budget
        An amount in whole cents. If given, the table has the column ``payment``.
    payment
        ``"affine"``: ``budget`` is the largest total. :func:`payment_terms` computes the pay per task from
        the number of reports, and :func:`affine_payments` keeps the incentive of the score; the result is
        rounded down to the cent. It needs ``mechanism="ca"``. ``"untruthful_split"``: ``budget`` is paid in
        full, in proportion to (number of shared tasks) × (score − score of the same labels on unrelated
        tasks) if that is positive; a CA score has this subtracted already. Guessing can then pay more than
        honest work: see :func:`untruthful_split`.
    floor
        The least pay per task, for ``"affine"``.
    pay_copies
        Whether to pay for answers that were copied. By default, if workers who agree on 80 % of their tasks
        are listed by :func:`find_copiers` (level .05), an answer that several of them gave is paid once. If
        the answers that only one of them gave show who copied, the copier is not paid for the copies and the
        source is paid in full; if not, each gets an equal part. All other workers are paid as without this
        rule.
    confidence
        The level of the interval from ``low`` to ``high``, a Bayesian bootstrap over tasks, and of the
        interval of ``accuracy``.
    false_positive_rate
        The false discovery rate of ``uninformative``: workers with a larger ``q_value`` are not flagged.
    n_bootstrap
        The number of bootstrap samples.
    n_jobs
        The number of threads; −1 uses all cores. The result does not depend on it.
    random_state
        Seed, generator or ``None``.

    Returns
    -------
    A frame with one row per worker in order of first appearance:

    ``score``, ``low``, ``high``
        The mean score per task (nan with fewer than two shared tasks) and its interval (nan with fewer than
        three). A worker who always gave the same label has a CA score and an interval of exactly 0.
    ``n_tasks``
        The number of tasks answered.
    ``agreement``
        How often the majority of the *others* on the task gave the same label.
    ``accuracy``, ``accuracy_low``, ``accuracy_high``
        The share of correct answers according to Dawid and Skene's model, and its interval. The interval
        covers the binomial (Clopper–Pearson) intervals of two estimates: this one, and that from the
        calibrated probabilities of :class:`~peerloss.crowd.LabelAggregator`.
    ``uninformative``
        The worker's correlated agreement is compatible with guessing, and too low for a worker who answers
        half of the tasks as the crowd's average worker and guesses the others by the crowd's label
        frequencies. On average, about the share ``false_positive_rate`` of the flagged workers, or less, does
        that or better, whatever ``mechanism`` is. Workers with few tasks are not flagged, for lack of
        evidence. A copier is informed; see :func:`~peerloss.crowd.find_copiers`.
    ``p_value``
        The probability that a worker who answers half of the tasks agrees as little with the others (nan with
        fewer than two shared tasks).
    ``q_value``
        The expected share of workers who do not guess among those who are at least as suspicious as this one.
    ``payment``
        Only with ``budget``. ``"affine"``: at least ``floor`` per task, and ``base`` per task in expectation
        for a worker who does not look at the tasks (and for tasks without a score), at most ``budget`` in
        total. Each payment is rounded down, by less than a cent. ``"untruthful_split"``: sums to the budget
        exactly.
    ``paid_tasks``
        Only with ``budget``: the number of tasks that are paid, ``n_tasks`` without the copies.

    Raises
    ------
    InvalidInputError
        If the table does not hold reports, no task has two workers, a gold label does not match the reports,
        or an argument is out of range.

    Examples
    --------
    >>> from peerloss.peer_prediction import constant, simulate_reports, truthful
    >>> good = truthful([[0.8, 0.2], [0.1, 0.9]])
    >>> crowd = {"ann": good, "bob": good, "cy": good, "dee": constant(1)}
    >>> table = simulate_reports(200, crowd, clean_prior=0.6, random_state=0)
    >>> scores = score_annotators(table, budget=100, random_state=0)
    >>> scores["uninformative"].tolist(), scores["payment"].round(1).tolist()
    ([False, False, False, True], [14.5, 14.7, 14.6, 12.5])
    """
    check_choice(mechanism, "mechanism", MECHANISMS)
    level = check_in_range(confidence, "confidence", 0.0, 1.0, low_open=True, high_open=True)
    rate = check_in_range(false_positive_rate, "false_positive_rate", 0.0, 1.0)
    draws = check_count(n_bootstrap, "n_bootstrap", minimum=20)
    _check_payment(budget, payment, floor, mechanism)
    check_flag(pay_copies, "pay_copies")
    generator = as_generator(random_state)
    given = reports.reports if isinstance(reports, DawidSkene) else reports
    coded = as_reports(given, duplicates=duplicates)
    pairs = pair_counts(coded)  # fails fast if no task has two workers
    model = _fitted_model(reports, coded, gold)
    shared = SharedReports(coded)
    if mechanism == "ca":
        values = ca_influence(shared, signs_from_others(shared))
    else:
        matrix = _score_matrix(mechanism, pairs)
        values = shared.agreement(matrix)
    score = shared.mean_by_worker(values)
    low, high = bootstrap_intervals(
        shared, values, confidence=level, n_bootstrap=draws, generator=generator, n_jobs=n_jobs
    )
    found = consensus(shared, model, n_jobs=n_jobs)
    guessers = find_guessers(found, shared, false_positive_rate=rate)
    accuracy_low, accuracy_high = _accuracy_interval(model, level)
    n_tasks: IntArray = np.bincount(coded.worker_codes, minlength=len(coded.workers))
    table = AnnotatorScores(
        {
            "score": score,
            "low": low,
            "high": high,
            "n_tasks": n_tasks,
            "agreement": shared.mean_by_worker(shared.majority_agreement()),
            "accuracy": model.accuracy,
            "accuracy_low": accuracy_low,
            "accuracy_high": accuracy_high,
            "uninformative": guessers.flagged,
            "p_value": guessers.p_value,
            "q_value": guessers.q_value,
        },
        index=pd.Index(coded.workers, name="worker"),
    )
    if budget is not None:
        if mechanism != "ca":
            score = shared.mean_by_worker(ca_influence(shared, common_matrix(matrix)))
        share = np.ones(len(coded)) if pay_copies else paid_shares(coded)
        table["payment"] = _pay(score, shared, coded, share, budget=budget, payment=payment, floor=floor)
        table["paid_tasks"] = np.bincount(coded.worker_codes, weights=share, minlength=len(coded.workers))
    return table


def _fitted_model(
    reports: Reports | ReportsLike | DawidSkene, coded: Reports, gold: GoldLike | None
) -> DawidSkene:
    if not isinstance(reports, DawidSkene):
        return dawid_skene(coded, gold=gold)
    if gold is not None:
        raise InvalidInputError(
            "`gold` must be passed to `dawid_skene` if `reports` is its result. Pass the table of reports, "
            "or `dawid_skene(reports, gold=gold)`."
        )
    return reports


def _accuracy_interval(model: DawidSkene, confidence: float) -> tuple[FloatArray, FloatArray]:
    """Return an interval of each worker's accuracy; nan for workers without a report.

    Dawid and Skene's probabilities are overconfident, so the binomial interval of their sum alone contains
    the accuracy too rarely. The interval reaches to that of calibrated probabilities.
    """
    calibrated = fit_shrunken(ReportMatrix(model.reports, gold=model.gold)).probabilities
    tail = (1 - confidence) / 2
    low: FloatArray = np.full(len(model.reports.workers), np.inf)
    high: FloatArray = -low
    for probabilities in (model.probabilities, calibrated):
        right, n = expected_correct(model.reports, probabilities)
        wrong = np.maximum(n - right, 0.0)
        low = np.minimum(low, np.where(right > 0, stats.beta.ppf(tail, right, wrong + 1), 0.0))
        high = np.maximum(high, np.where(wrong > 0, stats.beta.isf(tail, right + 1, wrong), 1.0))
    return np.where(n > 0, low, np.nan), np.where(n > 0, high, np.nan)


def _check_payment(budget: float | str | Decimal | None, payment: str, floor: float, mechanism: str) -> None:
    check_choice(payment, "payment", PAYMENTS)
    if check_finite(floor, "floor") != 0.0 and (budget is None or payment != "affine"):
        raise InvalidInputError(
            f"`floor` needs a `budget` and `payment` 'affine'; got floor={floor!r}, budget={budget!r} and "
            f"payment={payment!r}. Omit the floor, or pass a budget."
        )
    if budget is None:
        return
    check_budget(budget)
    if payment == "affine" and mechanism != "ca":
        raise InvalidInputError(
            f"`payment` 'affine' needs `mechanism` 'ca'; got {mechanism!r}, which is truthful only if the "
            "joint distribution of reports is known. Use 'ca', or `payment` 'untruthful_split'."
        )


def _pay(
    score: FloatArray,
    shared: SharedReports,
    reports: Reports,
    share: FloatArray,
    *,
    budget: float | str | Decimal,
    payment: str,
    floor: float,
) -> FloatArray:
    """Pay the ``share`` of each report. Copied answers are on shared tasks; other tasks are paid in full."""
    n_workers = len(reports.workers)
    n_tasks = np.bincount(reports.worker_codes, minlength=n_workers)
    copied = np.bincount(reports.worker_codes, weights=1.0 - share, minlength=n_workers)
    if payment == "untruthful_split":
        return untruthful_split(np.nan_to_num(score) * (shared.n_tasks - copied), budget)
    base, rate = payment_terms(budget, len(reports), floor=floor)
    # With a negative floor, a worker can owe money for a task; copies do not reduce what it owes.
    copied[base + rate * np.nan_to_num(score) < 0] = 0.0
    # Tasks that no other worker answered have no score: they are paid like a score of 0.
    unshared = base * (n_tasks - shared.n_tasks)
    return round_down(unshared + affine_payments(score, shared.n_tasks - copied, base=base, rate=rate))


def _score_matrix(mechanism: str, pairs: IntArray) -> FloatArray:
    joint = pairs / pairs.sum()
    score = quadratic_matrix(joint) if mechanism == "quadratic" else logarithmic_matrix(joint)
    return np.where(np.isneginf(score), 0.0, score)  # −∞ only for pairs that do not occur


def bootstrap_intervals(
    shared: SharedReports,
    values: FloatArray,
    *,
    confidence: float,
    n_bootstrap: int,
    generator: np.random.Generator,
    n_jobs: int | None = None,
) -> tuple[FloatArray, FloatArray]:
    """Resample tasks and return the lower and upper ends of the interval of each worker's mean of ``values``.

    In each of ``n_bootstrap`` rounds every task gets a random weight, exponential with mean 1 (the Bayesian
    bootstrap, in which no task disappears), the same for all workers on it, and weighted means are taken.
    Deviations from the mean are widened by ``t/z · √((n + 1)/(n − 1))``, a correction for small numbers of
    tasks. The score matrix is treated as known. Workers with fewer than three values have no interval (nan):
    two influences on a covariance are always equal.
    """
    n = shared.n_tasks
    centre = shared.mean_by_worker(values)
    low, high = np.full((2, len(n)), np.nan)
    tails = (1 - confidence) / 2, (1 + confidence) / 2
    per_draw = max(1, MAX_WEIGHTS // shared.counts.shape[0])
    seeds = generator.integers(2**63, size=-(-n_bootstrap // per_draw))
    block_size = max(1, MAX_SCORES // n_bootstrap)
    for first in range(0, len(n), block_size):
        last = min(first + block_size, len(n))
        rows = shared.of_workers(first, last)
        cells = shared.worker[rows] - first, shared.task[rows]
        shape = last - first, shared.counts.shape[0]
        deviation = np.nan_to_num(values[rows] - centre[shared.worker[rows]])
        deviations = sparse.csr_array((deviation, cells), shape=shape)
        answered = sparse.csr_array((np.ones(len(rows)), cells), shape=shape)
        parts = Parallel(n_jobs=n_jobs, prefer="threads")(
            delayed(_resample)(deviations, answered, seed, min(per_draw, n_bootstrap - part * per_draw))
            for part, seed in enumerate(seeds)
        )
        quantiles = np.quantile(np.concatenate(parts, axis=1), tails, axis=1)
        low[first:last], high[first:last] = quantiles
    usable = n > 2
    factor = np.full(len(n), np.nan)
    few = n[usable].astype(np.float64)
    factor[usable] = stats.t.ppf(tails[1], few - 1) / stats.norm.ppf(tails[1])
    factor[usable] *= np.sqrt((few + 1) / (few - 1))
    return centre + factor * low, centre + factor * high


def _resample(deviations: Any, answered: Any, seed: int, draws: int) -> FloatArray:
    """Return the deviation of each worker's mean in each draw, (workers, draws), from workers × tasks."""
    weights = np.random.default_rng(seed).standard_exponential((answered.shape[1], draws))
    total = answered @ weights
    result: FloatArray = (deviations @ weights) / np.where(total > 0, total, 1.0)
    return result
