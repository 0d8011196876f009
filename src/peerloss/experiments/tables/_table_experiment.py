"""Experiments on tables: which runs there are and how they are executed."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any, ClassVar

from peerloss.experiments._experiment import Experiment
from peerloss.experiments._parallel import check_backend, spread
from peerloss.experiments.tables._execute_runs import try_runs
from peerloss.experiments.tables._methods import METHODS, NetMethod
from peerloss.experiments.tables._table_run import Recipe, TableRun

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from peerloss.experiments._experiment import Outcome

#: Largest number of networks in one batch. They take some seconds, which is what is lost if it is killed.
NETS_PER_BATCH = 400


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
