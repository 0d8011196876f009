"""Accuracy tables: every row and method with its mean over seeds, its spread and the printed number."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from peerloss.experiments import final_results
from peerloss.report._paper import MAX_DIFFERENCE, Row, near_best, printed
from peerloss.report._read_results import method_order, row_order

if TYPE_CHECKING:
    from peerloss.report._read_results import Group


@dataclass(frozen=True)
class Cell:
    """One method on one row."""

    accuracies: dict[int, float]
    """Seed → clean test accuracy, of the trainings that did not diverge."""
    diverged: int
    n_test: int
    """Rows in the smallest test set."""
    printed: float | None

    @property
    def mean(self) -> float | None:
        """Mean over seeds; ``None`` if every training diverged."""
        return float(np.mean(list(self.accuracies.values()))) if self.accuracies else None

    @property
    def spread(self) -> float | None:
        """Standard deviation over seeds; ``None`` for fewer than two."""
        return float(np.std(list(self.accuracies.values()), ddof=1)) if len(self.accuracies) > 1 else None

    @property
    def error(self) -> float | None:
        """Standard error of the mean."""
        return None if self.spread is None else self.spread / math.sqrt(len(self.accuracies))

    @property
    def difference(self) -> float | None:
        """Here minus printed."""
        return None if self.mean is None or self.printed is None else self.mean - self.printed

    @property
    def far(self) -> bool:
        """Whether it differs by more than 3 points from the printed number."""
        return self.difference is not None and round(abs(self.difference), 9) > MAX_DIFFERENCE

    @property
    def within_spread(self) -> bool | None:
        """Whether the printed number is within one standard deviation over seeds."""
        return None if self.difference is None or self.spread is None else abs(self.difference) <= self.spread


@dataclass(frozen=True)
class TableRow:
    """One row with its methods."""

    row: Row
    cells: dict[str, Cell]

    @cached_property
    def means(self) -> dict[str, float]:
        """Mean accuracy of each method that has one."""
        return {method: cell.mean for method, cell in self.cells.items() if cell.mean is not None}

    @cached_property
    def bold(self) -> frozenset[str]:
        """Methods within 2 points of the best."""
        return near_best(self.means)


@dataclass(frozen=True)
class AccuracyTable:
    """One experiment under one protocol."""

    experiment: str
    protocol: str
    title: str
    methods: tuple[str, ...]
    rows: tuple[TableRow, ...]

    @property
    def priors(self) -> tuple[str, ...]:
        """The class priors, in order."""
        return tuple(dict.fromkeys(entry.row.prior for entry in self.rows))

    def of_prior(self, prior: str) -> tuple[TableRow, ...]:
        """Return the rows of one prior."""
        return tuple(entry for entry in self.rows if entry.row.prior == prior)

    def complete(self, prior: str) -> tuple[TableRow, ...]:
        """Return the rows on which every method has results for the same seeds: only these are comparable."""
        return tuple(entry for entry in self.of_prior(prior) if self._is_complete(entry))

    def _is_complete(self, entry: TableRow) -> bool:
        seeds = {frozenset(cell.accuracies) for cell in entry.cells.values()}
        return len(entry.cells) == len(self.methods) and len(seeds) == 1 and frozenset() not in seeds


def accuracy_table(group: Group) -> AccuracyTable | None:
    """Return the table of an experiment; ``None`` if it is a picture or has only one method."""
    methods = method_order(record["method"] for record in group.records)
    if len(methods) < 2 or any(record["plane"] is not None for record in group.records):
        return None
    test_sizes: dict[tuple[Row, str], list[int]] = defaultdict(list)
    for record in group.records:
        test_sizes[Row.of(record), record["method"]].append(record["n_test"])
    accuracies: dict[tuple[Row, str], dict[int, float | None]] = defaultdict(dict)
    for result in final_results(group.records):
        accuracies[Row.of(result), result.method][result.seed] = result.test_accuracy
    rows = []
    for row in sorted({row for row, _ in accuracies}, key=row_order):
        present = [method for method in methods if (row, method) in accuracies]
        cells = {m: _cell(accuracies[row, m], min(test_sizes[row, m]), printed(row, m)) for m in present}
        rows.append(TableRow(row, cells))
    return AccuracyTable(group.experiment, group.protocol, group.title, tuple(methods), tuple(rows))


def _cell(by_seed: dict[int, float | None], n_test: int, in_paper: float | None) -> Cell:
    finite = {seed: value for seed, value in sorted(by_seed.items()) if value is not None}
    return Cell(finite, len(by_seed) - len(finite), n_test, in_paper)
