"""Execute the runs of an experiment that a store does not contain yet."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from peerloss._deprecation import renamed_fields, renamed_parameters
from peerloss._progress import announce, shows_progress
from peerloss.exceptions import InvalidInputError
from peerloss.experiments._store import write_plan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from peerloss.experiments._experiment import Experiment, Outcome, Run
    from peerloss.experiments._record import Record
    from peerloss.experiments._store import Store
    from peerloss.experiments.cifar import SharedResources


@renamed_fields(cells="runs")
@dataclass
class RunSummary:
    """What :func:`run_experiment` has done."""

    runs: int
    """Runs of the experiment."""
    skipped: int = 0
    """Runs that were done before."""
    done: int = 0
    """Runs done now, or meanwhile by another process."""
    failed: dict[str, str] = field(default_factory=dict)
    """Key of a run → the error. Failed runs are not stored, so the next call tries them again."""
    seconds: float = 0.0
    """Seconds since the start."""
    current: Run | None = None
    """The run that starts now, if runs are executed one after another."""
    finished_cost: int = 0
    """Sum of :attr:`Run.cost` over the runs that were done or failed in this call."""
    remaining_cost: int = 0
    """Sum of :attr:`Run.cost` over the runs that are still missing."""
    records: list[Record] = field(default_factory=list)
    """At the end: the records of all runs of the experiment that are done, old and new."""


@renamed_parameters(jobs="n_jobs")
@shows_progress("experiment")
def run_experiment(
    experiment: Experiment,
    store: Store,
    *,
    backend: str | None = None,
    n_jobs: int | None = None,
    address: str | None = None,
    resources: SharedResources | None = None,
    on_progress: Callable[[RunSummary], None] | None = None,
    on_record: Callable[[Record], None] | None = None,
    verbose: bool = False,  # noqa: ARG001 - read by the decorator
) -> RunSummary:
    """Execute the missing runs. It can be stopped at any time and called again to resume.

    The result of a run depends on its recipe and seed alone: not on the order, the grouping, the number of
    processes, or on other processes that use the store.

    Parameters
    ----------
    experiment
        From :func:`load_experiment`.
    store
        Receives the records and contains those of finished runs.
    backend, n_jobs, address
        Only for tables: ``"joblib"`` (the default) with this number of processes (−1, the default: every
        core), or ``"ray"``, on the cluster at ``address``.
    resources
        Only for images: where they are and on which device to train. ``None`` uses the folder named by
        ``PEERLOSS_DATA`` and a GPU if there is one.
    on_progress
        Called with the current summary when runs start or end.
    on_record
        Called with each new record after it is stored.
    verbose
        Whether to show the progress on stderr: percentage, elapsed time, time left.

    Raises
    ------
    InvalidInputError
        If an option does not apply to the experiment or cannot be used here.
    """
    given = {"backend": backend, "n_jobs": n_jobs, "address": address, "resources": resources}
    options = {name: value for name, value in given.items() if value is not None}
    for name in options:
        if name not in experiment.OPTIONS:
            raise InvalidInputError(f"`{name}` does not apply to {experiment.name}; leave it out.")
    started = time.monotonic()
    runs, done = experiment.runs(), store.done()
    missing = [run for run in runs if run.key not in done]
    options = experiment.prepare(options, missing)
    write_plan(store.folder, experiment)
    store.repair()
    summary = RunSummary(len(runs), skipped=len(runs) - len(missing))
    summary.remaining_cost = _total_cost(missing)

    def report(ended: Sequence[Run] = ()) -> None:
        cost = _total_cost(ended)
        summary.finished_cost += cost
        summary.remaining_cost -= cost
        summary.seconds = time.monotonic() - started
        total = summary.finished_cost + summary.remaining_cost
        announce("runs", summary.finished_cost / total if total else 1.0)
        if on_progress is not None:
            on_progress(summary)

    report()
    batches = _still_missing(experiment, missing, store, summary, report)
    for outcome in experiment.execute(batches, store.folder, **options):
        _add(outcome, store, summary, on_record)
        report(outcome.runs)
    keys = {run.key for run in runs}
    summary.records = [record for record in store.records() if record["key"] in keys]
    report()
    return summary


def _total_cost(runs: Sequence[Run]) -> int:
    return sum(run.cost for run in runs)


def _still_missing(
    experiment: Experiment,
    runs: Sequence[Run],
    store: Store,
    summary: RunSummary,
    report: Callable[[], None],
) -> Iterator[list[Run]]:
    """Yield the batches without the runs that another process has done in the meantime."""
    for batch in experiment.batches(runs):
        done = store.done()
        left = [run for run in batch if run.key not in done]
        summary.done += len(batch) - len(left)
        summary.remaining_cost -= _total_cost(batch) - _total_cost(left)
        if left and experiment.IS_SEQUENTIAL:
            summary.current = left[0]
            report()
            summary.current = None
        if left:
            yield left


def _add(
    outcome: Outcome, store: Store, summary: RunSummary, on_record: Callable[[Record], None] | None
) -> None:
    if outcome.error is not None:
        summary.failed.update({run.key: outcome.error for run in outcome.runs})
        return
    store.append(outcome.records)
    summary.done += len(outcome.records)
    if on_record is not None:
        for record in outcome.records:
            on_record(record)
