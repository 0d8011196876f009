"""Execute runs on tables: train every trial, choose on noisy validation labels, then test."""

from __future__ import annotations

import time
import traceback
import warnings
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

from sklearn.metrics import balanced_accuracy_score

from peerloss._device import one_thread
from peerloss.experiments._experiment import Outcome
from peerloss.experiments._provenance import machine, versions
from peerloss.experiments._record import FORMAT, Record
from peerloss.experiments.tables._methods import METHODS, EstimatorMethod, NetMethod
from peerloss.experiments.tables._run_data import RunData, make_data
from peerloss.experiments.tables._train_networks import train_networks
from peerloss.experiments.tables._trials import Trial, accuracy, validation_score
from peerloss.noise import NoiseModel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from peerloss.experiments.tables._table_experiment import TableRun


def try_runs(runs: Sequence[TableRun]) -> Outcome:
    """Execute runs in a worker process; an error must not stop the other processes."""
    try:
        return Outcome(runs, execute_runs(runs))
    except Exception:  # noqa: BLE001 (any error of a method is reported at the end)
        return Outcome(runs, [], traceback.format_exc(limit=-3))


def execute_runs(runs: Sequence[TableRun]) -> list[Record]:
    """Return one record per run, in order. The result of a run does not depend on the other runs."""
    with one_thread(blas=True), warnings.catch_warnings():
        # Thousands of small fits warn about convergence or few rows; what matters is in the record.
        warnings.simplefilter("ignore")
        cache: dict[tuple[Any, ...], RunData] = {}
        pairs = [(run, _data(run, cache)) for run in runs]
        networks = [i for i, run in enumerate(runs) if isinstance(METHODS[run.method], NetMethod)]
        trained = dict(zip(networks, train_networks([pairs[i] for i in networks]), strict=True))
        return [_record(*pair, trained[i] if i in trained else _fit(*pair)) for i, pair in enumerate(pairs)]


def _data(run: TableRun, cache: dict[tuple[Any, ...], RunData]) -> RunData:
    """Make the data of a run, or use those made for another method."""
    sizes = {"test_size": run.recipe.test_size, "validation_size": run.recipe.validation_size}
    keep_clean = "invariance" in run.recipe.record
    key = (run.data_set, run.e_neg, run.e_pos, run.prior, run.seed, keep_clean, *sizes.values())
    if key not in cache:
        noise = NoiseModel.binary(run.e_neg, run.e_pos)
        cache[key] = make_data(
            run.data_set, noise, prior=run.prior, seed=run.seed, keep_clean=keep_clean, **sizes
        )
    return cache[key]


def _fit(run: TableRun, data: RunData) -> list[Trial]:
    trials = []
    for own in run.recipe.trials:
        started = time.perf_counter()
        estimator = cast("EstimatorMethod", METHODS[run.method]).make(data, **(run.recipe.settings | own))
        estimator.fit(data.X_train, data.y_train)
        trials.append(Trial(estimator.predict, time.perf_counter() - started))
    return trials


def _choose(run: TableRun, data: RunData, trials: list[Trial]) -> tuple[list[float | None], int]:
    """Return the score of every trial on noisy validation labels (``None``: diverged) and the best trial."""
    scores = [
        None
        if t.predict is None
        else validation_score(data, t.predict(data.X_validation), run.recipe.scoring_alpha)
        for t in trials
    ]
    finite = [i for i, score in enumerate(scores) if score is not None]
    return scores, max(finite, key=lambda i: cast("float", scores[i])) if finite else 0


def _record(run: TableRun, data: RunData, trials: list[Trial]) -> Record:
    """Choose a trial and return the record of the run."""
    recipe = run.recipe
    scores, best = _choose(run, data, trials)
    # If a row chooses together, the choice is made when results are read and any trial may be chosen.
    tested = range(len(trials)) if recipe.choose == "row" else [best]
    predicted = {i: predict(data.X_test) for i in tested if (predict := trials[i].predict) is not None}
    return Record(
        {
            "format": FORMAT,
            "key": run.key,
            **run.identity(),
            "spec": recipe.digest,
            "split": data.digest(),
            "n_train": len(data.y_train),
            "n_validation": len(data.y_validation),
            "n_test": len(data.y_test),
            "choose": recipe.choose,
            "scoring_alpha": recipe.scoring_alpha,
            "settings": recipe.settings,
            "trials": {
                "settings": {name: [own[name] for own in recipe.trials] for name in recipe.trials[0]},
                "noisy_validation": scores,
                "test_accuracy": [
                    accuracy(data, predicted[i]) if i in predicted else None for i in range(len(trials))
                ],
            },
            "chosen": best,
            "noisy_validation": scores[best],
            "test_accuracy": accuracy(data, predicted[best]) if best in predicted else None,
            "test_balanced_accuracy": (
                float(balanced_accuracy_score(data.y_test, predicted[best])) if best in predicted else None
            ),
            "diverged": scores.count(None),
            "curve": trials[best].curve,
            "plane": trials[best].plane,
            "seconds": round(sum(trial.seconds for trial in trials), 4),
            "finished": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "versions": versions(),
            "machine": machine(),
        }
    )
