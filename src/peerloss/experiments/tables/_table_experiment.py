"""Experiments on tables: their runs, recipes and execution."""

from __future__ import annotations

import hashlib
import json
import random
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING, Any, ClassVar

from peerloss.experiments._experiment import Experiment, Run
from peerloss.experiments._parallel import check_backend, spread
from peerloss.experiments._record import FORMAT, IDENTITY, run_key
from peerloss.experiments.tables._execute_runs import try_runs
from peerloss.experiments.tables._methods import METHODS, NetMethod

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from peerloss.experiments._experiment import Outcome

#: Largest number of networks in one batch. They take some seconds, which is what is lost if it is killed.
NETS_PER_BATCH = 400
Settings = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Recipe:
    """How the result of a run is obtained; the runs of one method and prior share it."""

    test_size: float
    validation_size: float
    scoring_alpha: float
    """α of the peer score that chooses on noisy validation labels; 0 is noisy accuracy."""
    choose: str
    """``"seed"``: each seed chooses for itself. ``"row"``: the mean over the seeds of a row chooses, when
    results are read."""
    record: tuple[str, ...]
    """What is recorded of networks in addition to their accuracy."""
    record_every: int | None
    """Steps between the points of curves."""
    settings: Settings
    """The settings that all trials have in common."""
    trials: tuple[Settings, ...]
    """The settings that differ, one entry per trial; a single empty entry if nothing is searched."""

    @cached_property
    def digest(self) -> str:
        """Hash of all fields."""
        text = json.dumps([FORMAT, asdict(self)], sort_keys=True, allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class TableRun(Run):
    """One method on one table with noisy labels, with one seed."""

    experiment: str
    protocol: str
    data_set: str
    e_neg: float
    e_pos: float
    prior: str
    method: str
    seed: int
    recipe: Recipe = field(compare=False, repr=False)

    @cached_property
    def key(self) -> str:
        """Unique name: the same run with the same recipe has the same key everywhere."""
        return run_key(self.identity(), self.recipe.digest)

    @property
    def size(self) -> int:
        """Number of trials."""
        return len(self.recipe.trials)

    def identity(self) -> dict[str, Any]:
        """Return the fields that identify the run; its record begins with them."""
        return {name: getattr(self, name) for name in IDENTITY}


@dataclass(frozen=True, eq=False)
class TableExperiment(Experiment):
    """An experiment on tables with noisy labels."""

    rows: tuple[tuple[str, float, float], ...]
    """Data set, e_neg, e_pos."""
    priors: tuple[str, ...]
    recipes: Mapping[tuple[str, str], Recipe]
    """One per method and prior."""

    OPTIONS: ClassVar[tuple[str, ...]] = ("backend", "n_jobs", "address")

    def runs(self) -> list[TableRun]:
        """Return all runs, row by row."""
        return [
            TableRun(self.name, self.protocol, *row, prior, method, seed, self.recipes[method, prior])
            for row, prior, method, seed in product(self.rows, self.priors, self.methods, self.seeds)
        ]

    def plan(self) -> dict[str, Any]:
        """Return rows and hashes of the recipes; with the seeds they determine the keys."""
        return {
            "rows": [list(row) for row in self.rows],
            "seeds": list(self.seeds),
            "specs": [[*pair, recipe.digest] for pair, recipe in self.recipes.items()],
        }

    def batches(self, runs: Sequence[TableRun]) -> list[list[TableRun]]:
        """Return ``runs`` in random order, with the networks of one row in one batch.

        The engine trains these together.
        """
        batches: list[list[TableRun]] = []
        rows: dict[tuple[Any, ...], list[TableRun]] = defaultdict(list)
        for run in runs:
            if isinstance(METHODS[run.method], NetMethod):
                rows[run.data_set, run.e_neg, run.e_pos, run.prior].append(run)
            else:
                batches.append([run])
        for row in rows.values():
            batch: list[TableRun] = []
            for run in row:
                if batch and sum(other.size for other in batch) + run.size > NETS_PER_BATCH:
                    batches.append(batch)
                    batch = []
                batch.append(run)
            batches.append(batch)
        # In random order two processes seldom take the same batch, and the ETA is more reliable.
        random.shuffle(batches)
        return batches

    def prepare(
        self,
        options: dict[str, Any],
        runs: Sequence[TableRun],  # noqa: ARG002 - not needed here
    ) -> dict[str, Any]:
        """Check the ``options``; the data of the ``runs`` are loaded by each process."""
        check_backend(**options)
        return options

    def execute(
        self,
        batches: Iterable[list[TableRun]],
        folder: object,  # noqa: ARG002 - not needed here
        **options: Any,
    ) -> Iterator[Outcome]:
        """Spread ``batches`` over processes, as ``options`` demand; nothing else is written to ``folder``."""
        return spread(try_runs, batches, **options)
