"""Run the cells of an experiment that a store does not have yet."""

from __future__ import annotations

import random
import time
import traceback
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from peerloss.experiments._methods import METHODS, NetMethod
from peerloss.experiments._plans import write_plan
from peerloss.experiments._work import run_cells
from peerloss.experiments._workers import spread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from peerloss.experiments._cells import Cell
    from peerloss.experiments._spec import Experiment
    from peerloss.experiments._store import Record, Store

#: Most networks in one piece of work: some seconds' worth, which is what a kill can lose.
NETS_A_JOB = 400


@dataclass
class RunSummary:
    """What a run did."""

    cells: int
    """Of the experiment."""
    skipped: int = 0
    """Found in the store when the run began."""
    done: int = 0
    """Run now, or meanwhile by another runner."""
    failed: dict[str, str] = field(default_factory=dict)
    """Key of a cell → the error; it is not in the store and will be tried again next time."""
    seconds: float = 0.0
    """That the run took."""


@dataclass(frozen=True)
class _Outcome:
    cells: Sequence[Cell]
    records: list[Record]
    error: str | None = None


def run_experiment(
    experiment: Experiment,
    store: Store,
    *,
    backend: str = "joblib",
    jobs: int = -1,
    address: str | None = None,
    on_progress: Callable[[RunSummary], None] | None = None,
) -> RunSummary:
    """Run what is missing; may be stopped at any moment and called again.

    A cell's figures depend on its recipe and seed alone: not on the order, the grouping, the number of
    processes, nor on what other runners do.

    Parameters
    ----------
    experiment
        From :func:`load_experiment`.
    store
        Where records go, and where finished cells are looked up.
    backend, jobs, address
        ``"joblib"`` with so many processes (−1: every core), or ``"ray"``, on the cluster at ``address``.
    on_progress
        Called with the summary so far whenever cells are done.
    """
    started = time.monotonic()
    write_plan(store.folder, experiment)
    store.repair()
    cells = experiment.cells()
    done = store.done()
    missing = [cell for cell in cells if cell.key not in done]
    summary = RunSummary(len(cells), skipped=len(cells) - len(missing))
    work = _grouped(missing)
    # In random order two runners seldom take the same piece, and the time left is foretold better.
    random.shuffle(work)

    def tell() -> None:
        summary.seconds = time.monotonic() - started
        if on_progress is not None:
            on_progress(summary)

    tell()
    for outcome in spread(
        _attempt, _still_missing(work, store, summary), backend=backend, jobs=jobs, address=address
    ):
        if outcome.error is None:
            store.append(outcome.records)
            summary.done += len(outcome.records)
        else:
            summary.failed.update({cell.key: outcome.error for cell in outcome.cells})
        tell()
    tell()
    return summary


def _still_missing(work: list[list[Cell]], store: Store, summary: RunSummary) -> Iterator[list[Cell]]:
    """Yield pieces of work, less what another runner has done by the time they are taken."""
    for piece in work:
        done = store.done()
        left = [cell for cell in piece if cell.key not in done]
        summary.done += len(piece) - len(left)
        if left:
            yield left


def _grouped(cells: Sequence[Cell]) -> list[list[Cell]]:
    """Put networks of one row into one piece, for the engine trains them together; the rest one by one."""
    pieces: list[list[Cell]] = []
    rows: dict[tuple[Any, ...], list[Cell]] = defaultdict(list)
    for cell in cells:
        if isinstance(METHODS[cell.method], NetMethod):
            rows[cell.data_set, cell.e_neg, cell.e_pos, cell.prior].append(cell)
        else:
            pieces.append([cell])
    for row in rows.values():
        piece: list[Cell] = []
        nets = 0
        for cell in row:
            if piece and nets + len(cell.recipe.trials) > NETS_A_JOB:
                pieces.append(piece)
                piece, nets = [], 0
            piece.append(cell)
            nets += len(cell.recipe.trials)
        pieces.append(piece)
    return pieces


def _attempt(cells: list[Cell]) -> _Outcome:
    """Run cells in a worker; an error must not end the other workers' hours."""
    try:
        return _Outcome(cells, run_cells(cells))
    except Exception:  # noqa: BLE001 (whatever a method raises is told at the end)
        return _Outcome(cells, [], traceback.format_exc(limit=-3))
