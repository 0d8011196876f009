"""A table compared with the paper's, and its methods with each other by paired tests."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import wilcoxon

from peerloss._holm import holm
from peerloss.report._paper import PAPER_SEEDS, Row, near_best

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from peerloss.report._accuracy_table import AccuracyTable, Cell, TableRow

#: A difference of more standard errors than this is not explained by chance.
MAX_CHANCE_ERRORS = 2.0
#: The paper's order of methods, by mean accuracy.
ORDER = ("peer", "surrogate", "nn")
#: A difference between every result here and the printed one.
CHOSEN_ON_TEST = (
    "the authors' code chose width, learning rate and batch size of all networks on the clean test accuracy "
    "of peer loss, here nothing is chosen on test labels"
)
#: Method → how its training here differs from the authors' code or from what the paper states.
DIFFERENCES = {
    "peer": (
        "peers are drawn from the batch, or averaged over all labels (expected peers); the authors' code "
        "draws features and labels of peers separately, from all training rows"
    ),
    "symmetric": (
        "Symm is the sigmoid loss of the logit z; the authors' code has |y − tanh z| for labels ±1, which is "
        "twice the sigmoid loss of 2z"
    ),
    "dmi": (
        "DMI starts with 500 steps of cross entropy (in the fair protocol 500 or 200 are chosen), without "
        "which it cannot separate the classes; the paper does not mention such a start"
    ),
}
#: A difference between the methods in the fair protocol.
ONLY_PEER_SEARCHES_ITS_BASE = (
    "only peer loss searches its base loss (logistic or sigmoid); all networks search width, rate and weight "
    "decay"
)
#: Methods that the others are tested against.
REFERENCES = ("peer", "peer-classifier")
#: Test sets up to this size are given as a reason.
SMALL_TEST = 100


@dataclass(frozen=True)
class MethodSummary:
    """One method over the complete rows of one prior."""

    method: str
    mean: float
    near_best: int
    """Rows within 2 points of the best of all methods here."""
    beside_paper: PaperComparison | None
    """``None`` for methods without printed numbers."""


@dataclass(frozen=True)
class PaperComparison:
    """The same for the rows and methods that the paper prints, so that both sides are comparable."""

    mean: float
    printed_mean: float
    near_best: int
    printed_near_best: int

    @property
    def difference(self) -> float:
        """Mean here minus printed mean."""
        return self.mean - self.printed_mean


@dataclass(frozen=True)
class PriorSummary:
    """All methods over the complete rows of one prior."""

    prior: str
    rows: int
    """Complete rows; all other fields refer to them."""
    incomplete: int
    printed_rows: int
    """Complete rows that the paper has too."""
    methods: tuple[MethodSummary, ...]
    ordering_here: tuple[str, ...] | None
    """The methods in ``ORDER`` sorted by mean here, the best first; ``None`` if one is missing."""
    ordering_printed: tuple[str, ...] | None
    within_spread: int
    """Cells whose printed number is within one standard deviation over seeds."""
    compared: int
    """Cells for which this is known."""

    @property
    def all_printed(self) -> bool:
        """Whether the paper has all of these rows and methods."""
        return self.printed_rows == self.rows and all(entry.beside_paper for entry in self.methods)

    @property
    def ordering_holds(self) -> bool | None:
        """Whether peer loss is better than the surrogate, and the surrogate than plain training."""
        return None if self.ordering_here is None else self.ordering_here == ORDER


@dataclass(frozen=True)
class Deviation:
    """A cell that is far from the printed number."""

    row: Row
    method: str
    mean: float
    printed: float
    difference: float
    n_test: int
    error: float
    """Standard error of the difference, if the printed mean has the same spread as ours."""
    reason: str


def summarise(table: AccuracyTable) -> list[PriorSummary]:
    """Return the summary of each prior."""
    return [_summary(table, prior) for prior in table.priors]


def _summary(table: AccuracyTable, prior: str) -> PriorSummary:
    rows = table.complete(prior)
    shared = [entry for entry in rows if any(cell.printed is not None for cell in entry.cells.values())]
    common = [m for m in table.methods if shared and all(e.cells[m].printed is not None for e in shared)]
    here = [near_best({m: entry.means[m] for m in common}) for entry in shared]
    there = [near_best({m: _printed(entry, m) for m in common}) for entry in shared]
    comparison = {
        m: PaperComparison(
            mean=_mean(entry.means[m] for entry in shared),
            printed_mean=_mean(_printed(entry, m) for entry in shared),
            near_best=sum(m in bold for bold in here),
            printed_near_best=sum(m in bold for bold in there),
        )
        for m in common
    }
    methods = [
        MethodSummary(
            method=m,
            mean=_mean(entry.means[m] for entry in rows),
            near_best=sum(m in entry.bold for entry in rows),
            beside_paper=comparison.get(m),
        )
        for m in table.methods
        if rows
    ]
    compared = [cell.within_spread for entry in table.of_prior(prior) for cell in entry.cells.values()]

    def ordered(field: str) -> tuple[str, ...] | None:
        means = {m: getattr(comparison[m], field) for m in ORDER if m in common}
        return tuple(sorted(means, key=means.__getitem__, reverse=True)) if len(means) == len(ORDER) else None

    return PriorSummary(
        prior=prior,
        rows=len(rows),
        incomplete=len(table.of_prior(prior)) - len(rows),
        printed_rows=len(shared),
        methods=tuple(methods),
        ordering_here=ordered("mean"),
        ordering_printed=ordered("printed_mean"),
        within_spread=sum(inside is True for inside in compared),
        compared=sum(inside is not None for inside in compared),
    )


def _printed(entry: TableRow, method: str) -> float:
    printed = entry.cells[method].printed
    return math.nan if printed is None else printed


def _mean(values: Iterable[float]) -> float:
    return float(np.mean(list(values)))


def deviations(table: AccuracyTable) -> list[Deviation]:
    """Return the cells more than 3 points from the printed numbers, in the order of the table."""
    found = []
    for entry in table.rows:
        for method, cell in entry.cells.items():
            mean, in_paper = cell.mean, cell.printed
            if mean is None or in_paper is None or not cell.far:
                continue
            error = error_of_difference(cell, mean)
            reason = _reason(entry.row, method, cell.n_test, mean - in_paper, error)
            found.append(
                Deviation(entry.row, method, mean, in_paper, mean - in_paper, cell.n_test, error, reason)
            )
    return found


def error_of_difference(cell: Cell, mean: float) -> float:
    """Return the standard error of our mean minus the printed mean, if both have the same spread over seeds.

    With one seed the spread is the binomial standard deviation over the test rows.
    """
    spread = math.sqrt(mean * (1.0 - mean) / cell.n_test) if cell.spread is None else cell.spread
    return spread * math.sqrt(1.0 / len(cell.accuracies) + 1.0 / PAPER_SEEDS)


def _reason(row: Row, method: str, n_test: int, difference: float, error: float) -> str:
    parts = []
    if n_test <= SMALL_TEST:
        parts.append(f"the test set has {n_test} rows, so one row is {100 / n_test:.1f} points")
    errors = abs(difference) / error if error > 0 else math.inf
    if errors <= MAX_CHANCE_ERRORS:
        parts.append(f"{errors:.1f} standard errors: can be chance")
    else:
        size = f"{errors:.1f} standard errors" if math.isfinite(errors) else "no spread over seeds"
        parts.append(f"{size}: more than chance; {_difference_of_protocols(row, method)}")
    return "; ".join(parts)


def _difference_of_protocols(row: Row, method: str) -> str:
    if method == "c-svm":
        return "the authors' code never tunes the class weight, here noisy validation does"
    if row.data_set == "german" and row.e_neg != row.e_pos:
        return "the authors' code has the positive class of german reversed, which swaps the rates"
    return "the authors chose settings on test labels, which is not done here"


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
