"""The numbers that the paper prints, and its rule for bold face."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

#: "Entries within 2% from the best in each row are in bold": accuracy points, inclusive.
WITHIN = 0.02
#: Cells that differ more than this from the printed number are listed, with the reason.
MAX_DIFFERENCE = 0.03
#: Seeds behind each printed mean.
PAPER_SEEDS = 8


class Row(NamedTuple):
    """One row of a table: a data set with noise, on which every method is trained."""

    data_set: str
    e_neg: float
    e_pos: float
    prior: str

    @classmethod
    def of(cls, run: Any) -> Row:
        """Return the row of a record's fields or of a result's attributes."""
        values = run if isinstance(run, Mapping) else vars(run)
        return cls(values["data_set"], float(values["e_neg"]), float(values["e_pos"]), values["prior"])

    @property
    def noise(self) -> str:
        """Both rates, in the order of the paper's tables."""
        return f"{self.e_neg:g}, {self.e_pos:g}"


@cache
def printed_table() -> dict[Row, dict[str, float]]:
    """Return Table A1 as printed: row → method → test accuracy."""
    text = (resources.files("peerloss.report") / "paper_table_a1.csv").read_text(encoding="utf-8")
    table = {}
    for line in csv.DictReader(text.splitlines()):
        table[Row.of(line)] = {name: float(text) for name, text in line.items() if name not in Row._fields}
    return table


def printed(row: Row, method: str) -> float | None:
    """Return the printed accuracy, or ``None`` if the paper has none.

    >>> printed(Row("heart-as-released", 0.1, 0.3, "original"), "peer")  # Heart, on the authors' splits
    0.856
    """
    row = row._replace(data_set=row.data_set.removesuffix("-as-released"))
    return printed_table().get(row, {}).get(method)


def near_best(accuracies: Mapping[str, float]) -> frozenset[str]:
    """Return the methods that the paper's rule prints in bold.

    >>> sorted(near_best({"peer": 0.9, "nn": 0.88, "dmi": 0.879}))
    ['nn', 'peer']
    """
    best = max(accuracies.values(), default=0.0)
    # The limit is inclusive: 0.9 − 0.88 must not be excluded by rounding.
    return frozenset(name for name, accuracy in accuracies.items() if best - accuracy <= WITHIN + 1e-9)
