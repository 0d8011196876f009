"""Find the figures of cells: train every trial, choose on noisy validation, open the test."""

from __future__ import annotations

import time
import warnings
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

from sklearn.metrics import balanced_accuracy_score

from peerloss._threads import one_thread
from peerloss.experiments._cells import FORMAT
from peerloss.experiments._methods import METHODS, EstimatorMethod, NetMethod
from peerloss.experiments._networks import train_networks
from peerloss.experiments._provenance import machine, versions
from peerloss.experiments._tasks import Task, make_task
from peerloss.experiments._trials import Trial, accuracy, validation_score
from peerloss.noise import NoiseModel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from peerloss.experiments._cells import Cell

Record = dict[str, Any]


def run_cells(cells: Sequence[Cell]) -> list[Record]:
    """Return one record a cell, in order. A cell's figures do not depend on the cells beside it."""
    with one_thread(blas=True), warnings.catch_warnings():
        # What a thousand small fits warn of (convergence, few rows) helps nobody; what counts is recorded.
        warnings.simplefilter("ignore")
        made: dict[tuple[Any, ...], Task] = {}
        work = [(cell, _task(cell, made)) for cell in cells]
        networks = [i for i, cell in enumerate(cells) if isinstance(METHODS[cell.method], NetMethod)]
        trained = dict(zip(networks, train_networks([work[i] for i in networks]), strict=True))
        return [_record(*pair, trained[i] if i in trained else _fit(*pair)) for i, pair in enumerate(work)]


def _task(cell: Cell, made: dict[tuple[Any, ...], Task]) -> Task:
    """Make the cell's task, or take the one made for another method."""
    sizes = {"test_size": cell.recipe.test_size, "validation_size": cell.recipe.validation_size}
    keep_clean = "invariance" in cell.recipe.record
    key = (cell.data_set, cell.e_neg, cell.e_pos, cell.prior, cell.seed, keep_clean, *sizes.values())
    if key not in made:
        noise = NoiseModel.binary(cell.e_neg, cell.e_pos)
        made[key] = make_task(
            cell.data_set, noise, prior=cell.prior, seed=cell.seed, keep_clean=keep_clean, **sizes
        )
    return made[key]


def _fit(cell: Cell, task: Task) -> list[Trial]:
    trials = []
    for own in cell.recipe.trials:
        started = time.perf_counter()
        estimator = cast("EstimatorMethod", METHODS[cell.method]).make(task, **(cell.recipe.settings | own))
        estimator.fit(task.X_train, task.y_train)
        trials.append(Trial(estimator.predict, time.perf_counter() - started))
    return trials


def _choose(cell: Cell, task: Task, trials: list[Trial]) -> tuple[list[float | None], int]:
    """Score every trial on noisy validation (``None``: it diverged) and return the best; sees no test."""
    scores = [
        None
        if t.predict is None
        else validation_score(task, t.predict(task.X_validation), cell.recipe.scoring_alpha)
        for t in trials
    ]
    finite = [i for i, score in enumerate(scores) if score is not None]
    return scores, max(finite, key=lambda i: cast("float", scores[i])) if finite else 0


def _record(cell: Cell, task: Task, trials: list[Trial]) -> Record:
    """Choose a trial and write down the cell; the fields are described in ``Store``."""
    recipe = cell.recipe
    scores, best = _choose(cell, task, trials)
    # Where a whole row chooses together, its choice is made on reading and any trial may be the one.
    opened = range(len(trials)) if recipe.choose == "row" else [best]
    predicted = {i: predict(task.X_test) for i in opened if (predict := trials[i].predict) is not None}
    return {
        "format": FORMAT,
        "key": cell.key,
        **cell.identity(),
        "spec": recipe.digest,
        "split": task.digest(),
        "n_train": len(task.y_train),
        "n_validation": len(task.y_validation),
        "n_test": len(task.y_test),
        "choose": recipe.choose,
        "scoring_alpha": recipe.scoring_alpha,
        "settings": recipe.settings,
        "trials": {
            "settings": {name: [own[name] for own in recipe.trials] for name in recipe.trials[0]},
            "noisy_validation": scores,
            "test_accuracy": [
                accuracy(task, predicted[i]) if i in predicted else None for i in range(len(trials))
            ],
        },
        "chosen": best,
        "noisy_validation": scores[best],
        "test_accuracy": accuracy(task, predicted[best]) if best in predicted else None,
        "test_balanced_accuracy": (
            float(balanced_accuracy_score(task.y_test, predicted[best])) if best in predicted else None
        ),
        "diverged": scores.count(None),
        "curve": trials[best].curve,
        "plane": trials[best].plane,
        "seconds": round(sum(trial.seconds for trial in trials), 4),
        "finished": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "versions": versions(),
        "machine": machine(),
    }
