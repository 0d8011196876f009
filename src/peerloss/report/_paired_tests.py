"""Paired tests of one method against the others, on the same splits."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import wilcoxon

from peerloss._holm import holm

if TYPE_CHECKING:
    from collections.abc import Sequence

    from peerloss.report._accuracy_table import AccuracyTable, TableRow

#: Methods that the others are tested against.
REFERENCES = ("peer", "peer-classifier")


@dataclass(frozen=True)
class PairedTest:
    """Wilcoxon's signed-rank test of a reference against a baseline, twice.

    Over all pairs (rows × seeds), as is usual for tables; and over data sets, each counted once by its mean
    difference. Pairs of one data set share its examples, so the first p-value is too small.
    """

    prior: str
    reference: str
    baseline: str
    rows: int
    better: int
    """Rows on which the reference has the higher mean."""
    worse: int
    pairs: int
    difference: float
    """Mean accuracy of the reference minus that of the baseline."""
    p_pairs: float
    """Corrected (Holm) for all tests of the table."""
    data_sets: int
    p_data_sets: float
    """Corrected in the same way."""


def paired_tests(table: AccuracyTable) -> list[PairedTest]:
    """Test each reference of a table against every other method, prior by prior, on its complete rows."""
    found = []
    for prior in table.priors:
        rows = table.complete(prior)
        references = [method for method in REFERENCES if method in table.methods and rows]
        for reference in references:
            others = [method for method in table.methods if method != reference]
            # With two references, the test between them is symmetric: it is done once.
            done = references[: references.index(reference)]
            found += [_test(prior, rows, reference, baseline) for baseline in others if baseline not in done]
    by_pairs = holm([test.p_pairs for test in found]).tolist()
    by_sets = holm([test.p_data_sets for test in found]).tolist()
    return [
        PairedTest(**(vars(test) | {"p_pairs": p, "p_data_sets": q}))
        for test, p, q in zip(found, by_pairs, by_sets, strict=True)
    ]


def _test(prior: str, rows: Sequence[TableRow], reference: str, baseline: str) -> PairedTest:
    pairs: list[float] = []
    per_set: dict[str, list[float]] = defaultdict(list)
    for entry in rows:
        ours, theirs = entry.cells[reference].accuracies, entry.cells[baseline].accuracies
        differences = [ours[seed] - theirs[seed] for seed in ours]
        pairs += differences
        per_set[entry.row.data_set] += differences
    gains = [round(entry.means[reference] - entry.means[baseline], 12) for entry in rows]
    return PairedTest(
        prior=prior,
        reference=reference,
        baseline=baseline,
        rows=len(rows),
        better=sum(gain > 0 for gain in gains),
        worse=sum(gain < 0 for gain in gains),
        pairs=len(pairs),
        difference=float(np.mean(pairs)),
        p_pairs=signed_rank(pairs),
        data_sets=len(per_set),
        p_data_sets=signed_rank([float(np.mean(values)) for values in per_set.values()]),
    )


def signed_rank(differences: Sequence[float]) -> float:
    """Return the two-sided p-value of Wilcoxon's signed-rank test; pairs without a difference are ignored."""
    # Equal accuracies may differ by rounding, and so may equal differences, which would break ties.
    values = np.round(np.asarray(differences, dtype=float), 12)
    values = values[values != 0.0]
    return float(wilcoxon(values).pvalue) if len(values) else 1.0
