"""Execute runs on tables: make the data, train every trial, choose on noisy validation labels, then test."""

from __future__ import annotations

import hashlib
import time
import traceback
import warnings
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from sklearn.metrics import balanced_accuracy_score
from sklearn.model_selection import train_test_split

from peerloss._device import one_thread
from peerloss.datasets import load_dataset, split_and_flip
from peerloss.experiments._experiment import Outcome
from peerloss.experiments._record import FORMAT, Record, machine, versions
from peerloss.experiments.tables._methods import METHODS, EstimatorMethod, NetMethod
from peerloss.experiments.tables._train_networks import Trial, accuracy, train_networks
from peerloss.metrics import peer_score
from peerloss.noise import NoiseModel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from peerloss._validation import FloatArray, IntArray
    from peerloss.experiments.tables._table_experiment import TableRun

#: The two priors of the paper, and whether the clean classes are made equally large.
PRIORS = {"equalized": True, "original": False}


@dataclass(frozen=True, eq=False)
class RunData:
    """One data set with one draw of the split and of the noise."""

    X_train: FloatArray
    y_train: IntArray
    """Noisy."""
    X_validation: FloatArray
    y_validation: IntArray
    """Noisy."""
    X_test: FloatArray
    y_test: IntArray
    """Clean."""
    noise: NoiseModel
    """The true rates, for methods that know them, as in the paper."""
    prior: str
    seed: int
    clean: tuple[IntArray, IntArray] | None = None
    """Clean labels of training and validation rows: for the plot of the invariance, never for a method."""

    def digest(self) -> str:
        """Return a hash of rows and labels (features to six decimals, to be the same on all machines)."""
        sha = hashlib.sha256()
        for X in (self.X_train, self.X_validation, self.X_test):
            sha.update(np.ascontiguousarray(X.round(6) + 0.0).tobytes())
        for y in (self.y_train, self.y_validation, self.y_test):
            sha.update(y.astype(np.int64).tobytes())
        return sha.hexdigest()[:16]


def make_data(
    data_set: str,
    noise: NoiseModel,
    *,
    prior: str,
    seed: int,
    test_size: float,
    validation_size: float,
    keep_clean: bool = False,
) -> RunData:
    """Split, flip exact numbers of labels, and take the validation part from the noisy rows.

    The sizes are shares of *all* rows, as in the authors' code.
    """
    options: dict[str, Any] = {"equalize": PRIORS[prior], "test_size": test_size, "random_state": seed}
    split = split_and_flip(_dataset(data_set), noise, **options)
    train, validation = train_test_split(
        np.arange(len(split.y_train)), test_size=validation_size / (1.0 - test_size), random_state=seed
    )
    clean = None
    if keep_clean:  # the split depends on the seed, not on the noise
        labels = split_and_flip(_dataset(data_set), NoiseModel.binary(0.0, 0.0), **options).y_train
        clean = labels[train], labels[validation]
    return RunData(
        X_train=split.X_train[train],
        y_train=split.y_train[train],
        X_validation=split.X_train[validation],
        y_validation=split.y_train[validation],
        X_test=split.X_test,
        y_test=split.y_test,
        noise=noise,
        prior=prior,
        seed=seed,
        clean=clean,
    )


#: Loads a data set once per process; many runs use it.
_dataset = lru_cache(maxsize=4)(load_dataset)


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
    options: dict[str, Any] = {
        "prior": run.prior,
        "seed": run.seed,
        "test_size": run.recipe.test_size,
        "validation_size": run.recipe.validation_size,
        "keep_clean": "invariance" in run.recipe.record,
    }
    key = (run.data_set, run.e_neg, run.e_pos, *options.values())
    if key not in cache:
        cache[key] = make_data(run.data_set, NoiseModel.binary(run.e_neg, run.e_pos), **options)
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
    alpha = run.recipe.scoring_alpha
    scores = [
        t.predict and peer_score(data.y_validation, t.predict(data.X_validation), alpha=alpha) for t in trials
    ]
    finite = {i: score for i, score in enumerate(scores) if score is not None}
    return scores, max(finite, key=finite.__getitem__, default=0)


def _record(run: TableRun, data: RunData, trials: list[Trial]) -> Record:
    """Choose a trial and return the record of the run."""
    recipe = run.recipe
    scores, best = _choose(run, data, trials)
    # If a row chooses together, the choice is made when results are read and any trial may be chosen.
    tested = range(len(trials)) if recipe.choose == "row" else [best]
    predicted = {i: predict(data.X_test) for i in tested if (predict := trials[i].predict) is not None}
    accuracies = [accuracy(data, predicted[i]) if i in predicted else None for i in range(len(trials))]
    balanced = float(balanced_accuracy_score(data.y_test, predicted[best])) if best in predicted else None
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
                "test_accuracy": accuracies,
            },
            "chosen": best,
            "noisy_validation": scores[best],
            "test_accuracy": accuracies[best],
            "test_balanced_accuracy": balanced,
            "diverged": scores.count(None),
            "curve": trials[best].curve,
            "plane": trials[best].plane,
            "seconds": round(sum(trial.seconds for trial in trials), 4),
            "finished": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "versions": versions(),
            "machine": machine(),
        }
    )
