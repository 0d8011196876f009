"""A table of workers for people who pay them: truthful score and payment, accuracy, who seems to guess."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from peerloss._random import RandomState, as_generator
from peerloss._validation import (
    FloatArray,
    IntArray,
    check_choice,
    check_count,
    check_finite,
    check_in_range,
)
from peerloss.crowd._aggregate import majority_agreement
from peerloss.crowd._dawid_skene import DawidSkene, dawid_skene
from peerloss.crowd._intervals import bootstrap_intervals
from peerloss.crowd._payments import (
    affine_payments,
    check_budget,
    payment_terms,
    round_down,
    untruthful_split,
)
from peerloss.crowd._uninformative import consensus, uninformative_workers
from peerloss.exceptions import InvalidInputError
from peerloss.peer_prediction import logarithmic_score, quadratic_score
from peerloss.peer_prediction._influence import ca_influence, signs_from_others
from peerloss.peer_prediction._kernel import SharedReports, pair_counts
from peerloss.peer_prediction._matrices import logarithmic_matrix, quadratic_matrix
from peerloss.peer_prediction._reports import as_reports

if TYPE_CHECKING:
    from decimal import Decimal

    from peerloss.peer_prediction import Reports
    from peerloss.peer_prediction._reports import ReportsLike

MECHANISMS = ("ca", "quadratic", "log")
PAYMENTS = ("affine", "untruthful_split")


def score_annotators(
    reports: Reports | ReportsLike | DawidSkene,
    *,
    duplicates: str = "error",
    mechanism: str = "ca",
    budget: float | str | Decimal | None = None,
    payment: str = "affine",
    floor: float = 0.0,
    confidence: float = 0.95,
    false_positive_rate: float = 0.05,
    n_bootstrap: int = 400,
    n_jobs: int | None = None,
    random_state: RandomState = None,
) -> pd.DataFrame:
    """Score workers without gold labels: what to pay them, how accurate they seem, who seems to guess.

    ``score`` is a basis for payment and not an accuracy. Correlated agreement gives zero in expectation to
    whoever does not look at the tasks, and truth has the largest expectation. But it does not pay for telling
    apart labels that the crowd confuses (Δ > 0 between them), and it grows with the variety of a worker's
    tasks. To rank workers by accuracy use ``accuracy`` or ``agreement``. On the crowds dog, weather, web and
    product the rank correlation with the true accuracy of workers with 20 tasks or more was .16, .93, .86,
    .22 for CA, .83, .94, .86, .69 for agreement and .84, .93, .93, .85 for Dawid–Skene (dog has two pairs of
    breeds that many confuse, product one class of 88 %).

    Parameters
    ----------
    reports
        A frame with columns ``task`` (or ``item``), ``worker``, ``label``; (task, worker, label) triples;
        :class:`~peerloss.peer_prediction.Reports`; or the result of :func:`dawid_skene` on them.
    duplicates
        What to do if a worker labelled a task more than once: ``"error"``, or keep the ``"first"`` or the
        ``"last"`` of its labels in the order of the table. ``Reports`` never hold duplicates.
    mechanism
        ``"ca"`` (:func:`~peerloss.peer_prediction.correlated_agreement`), ``"quadratic"`` or ``"log"``.
    budget
        A sum in whole cents: adds the column ``payment``.
    payment
        ``"affine"``: ``budget`` is the most that is paid. :func:`payment_terms` fixes pay per task from
        the number of reports, and :func:`affine_payments` keeps the incentive of the score; the result is
        rounded down to the cent. It needs ``mechanism="ca"``. ``"untruthful_split"``: ``budget`` is paid in
        full, in proportion to a worker's number of shared tasks times its score beyond what the same labels
        would earn on unrelated tasks (for CA, the score) if that is positive. Guessing can then pay more
        than honest work: see :func:`untruthful_split`.
    floor
        The least pay per task, for ``"affine"``.
    confidence
        Of the interval from ``low`` to ``high``, a Bayesian bootstrap over tasks.
    false_positive_rate
        Of ``uninformative``, see below.
    n_bootstrap
        How many times the tasks are resampled.
    n_jobs
        Threads; −1 takes every core. The result does not depend on it.
    random_state
        Seed, generator or ``None``.

    Returns
    -------
    A frame with one row per worker in order of first appearance:

    ``score``, ``low``, ``high``
        Mean score per task, nan without two tasks that others answered too; its interval, nan without three.
        Whoever gave one label only has a CA score of exactly 0, and so are the ends of its interval.
    ``n_tasks``
        Tasks answered.
    ``agreement``
        How often the majority of the *others* on the task says the same.
    ``accuracy``
        Share of right answers by Dawid and Skene's model.
    ``uninformative``
        The worker's correlated agreement is compatible with guessing or worse, and too low for somebody who
        answers half of the tasks as the crowd's average worker and guesses the others by the crowd's
        frequencies. Of those flagged, on average no more than ``false_positive_rate`` do that or better
        (Benjamini–Hochberg over all workers), whatever ``mechanism`` is. Workers with few tasks are not
        flagged: there is no evidence either way. A copier is informed; see :func:`find_copiers`.
    ``payment``
        With ``budget`` only. ``"affine"``: at least ``floor`` per task, ``base`` per task in expectation for
        whoever does not look (and for tasks without a score), then rounded down to the cent, which can take
        less than a cent from each worker; at most ``budget`` in total.
        ``"untruthful_split"``: sums to the budget exactly.

    Raises
    ------
    InvalidInputError
        For a table that does not hold reports, no task with two workers, or an argument out of range.

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
    generator = as_generator(random_state)
    given = reports.reports if isinstance(reports, DawidSkene) else reports
    coded = as_reports(given, duplicates=duplicates)
    pairs = pair_counts(coded)  # refuses a crowd without two workers on one task, before the long work
    model = reports if isinstance(reports, DawidSkene) else dawid_skene(coded)
    shared = SharedReports(coded)
    if mechanism == "ca":
        values = ca_influence(shared, signs_from_others(pairs))
        score = shared.mean_by_worker(values)
    else:
        score, values = _other_score(mechanism, coded), shared.agreement(_matrix(mechanism, pairs))
    low, high = bootstrap_intervals(
        shared, values, confidence=level, n_bootstrap=draws, generator=generator, n_jobs=n_jobs
    )
    found = consensus(shared, model, n_jobs=n_jobs)
    table = pd.DataFrame(
        {
            "score": score,
            "low": low,
            "high": high,
            "n_tasks": np.bincount(coded.worker_codes, minlength=len(coded.workers)),
            "agreement": shared.mean_by_worker(majority_agreement(shared)),
            "accuracy": model.accuracy,
            "uninformative": uninformative_workers(found, shared, false_positive_rate=rate),
        },
        index=pd.Index(coded.workers, name="worker"),
    )
    if budget is not None and payment == "affine":
        base, slope = payment_terms(budget, len(coded), floor=floor)
        # Tasks that nobody else answered have no score: they are paid as a score of 0 is.
        alone = base * (table["n_tasks"].to_numpy() - shared.n_tasks)
        table["payment"] = round_down(alone + affine_payments(score, shared.n_tasks, base=base, rate=slope))
    elif budget is not None:
        earned = score if mechanism == "ca" else _beyond_unrelated(shared, _matrix(mechanism, pairs))
        table["payment"] = untruthful_split(np.nan_to_num(earned) * shared.n_tasks, budget)
    return table


def _check_payment(budget: float | str | Decimal | None, payment: str, floor: float, mechanism: str) -> None:
    check_choice(payment, "payment", PAYMENTS)
    if check_finite(floor, "floor") != 0.0 and (budget is None or payment != "affine"):
        raise InvalidInputError(
            f"`floor` needs a `budget` and `payment` 'affine'; got floor={floor!r}, budget={budget!r} and "
            f"payment={payment!r}. Leave the floor out, or give a budget."
        )
    if budget is None:
        return
    check_budget(budget)
    if payment == "affine" and mechanism != "ca":
        raise InvalidInputError(
            f"`payment` 'affine' needs `mechanism` 'ca'; got {mechanism!r}, which is truthful only if the "
            "joint distribution of reports is known. Use 'ca', or accept 'untruthful_split'."
        )


def _other_score(mechanism: str, reports: Reports) -> FloatArray:
    rule = quadratic_score if mechanism == "quadratic" else logarithmic_score
    return rule(reports)["score"].to_numpy()


def _matrix(mechanism: str, pairs: IntArray) -> FloatArray:
    joint = pairs / pairs.sum()
    if mechanism == "quadratic":
        return quadratic_matrix(joint)
    score = logarithmic_matrix(joint)
    return np.where(np.isneginf(score), 0.0, score)  # pairs that do not occur


def _beyond_unrelated(shared: SharedReports, score: FloatArray) -> FloatArray:
    """Take from the mean score what the same labels would earn on unrelated tasks."""
    n = shared.n_tasks
    factor = np.divide(n, n - 1.0, out=np.zeros(len(n)), where=n > 1)
    beyond: FloatArray = factor * (shared.mean_by_worker(shared.agreement(score)) - shared.penalty(score))
    beyond[shared.is_constant()] = 0.0  # exactly, as in correlated agreement
    return beyond
