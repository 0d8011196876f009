"""All figures of a folder of results, worked out."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from peerloss.report._compare import deviations, summarise
from peerloss.report._records import read_results
from peerloss.report._series import boundaries, curve_panels, invariance_panels
from peerloss.report._table import accuracy_table
from peerloss.report._tests import paired_tests

if TYPE_CHECKING:
    from collections.abc import Iterable

    from peerloss.report._compare import Deviation, PriorSummary
    from peerloss.report._records import Group, Record
    from peerloss.report._series import Boundary, CurvePanel, InvariancePanel
    from peerloss.report._table import AccuracyTable
    from peerloss.report._tests import PairedTest


@dataclass(frozen=True)
class Section:
    """What one experiment under one protocol shows; empty where it has nothing of a kind."""

    experiment: str
    protocol: str
    title: str
    provenance: tuple[str, ...]
    """Number of cells, versions and machines behind the figures, one line each."""
    table: AccuracyTable | None
    summaries: tuple[PriorSummary, ...]
    tests: tuple[PairedTest, ...]
    deviations: tuple[Deviation, ...]
    curves: tuple[CurvePanel, ...]
    invariance: tuple[InvariancePanel, ...]
    boundaries: tuple[Boundary, ...]

    @property
    def name(self) -> str:
        """Experiment and protocol."""
        return f"{self.experiment} ({self.protocol})"


@dataclass(frozen=True)
class Report:
    """Everything that a folder of results says."""

    sections: tuple[Section, ...]
    notes: tuple[str, ...]
    """What is missing or was left out."""


def build_report(results: str | Path) -> Report:
    """Read a folder of results and work out all tables, tests and series.

    Parameters
    ----------
    results
        Folder that ``peerloss reproduce -o`` wrote. It is only read, and may still be growing.

    Raises
    ------
    InvalidInputError
        If it is no such folder or holds no finished cell. Cells that are missing are told in ``notes``.
    """
    found = read_results(Path(results))
    return Report(tuple(_section(group) for group in found.groups), found.notes)


def _section(group: Group) -> Section:
    table = accuracy_table(group)
    return Section(
        experiment=group.experiment,
        protocol=group.protocol,
        title=group.title,
        provenance=_provenance(group.records),
        table=table,
        summaries=tuple(summarise(table)) if table else (),
        tests=tuple(paired_tests(table)) if table else (),
        deviations=tuple(deviations(table)) if table else (),
        curves=tuple(curve_panels(group)),
        invariance=tuple(invariance_panels(group)),
        boundaries=tuple(boundaries(group)),
    )


def _provenance(records: Iterable[Record]) -> tuple[str, ...]:
    records = list(records)
    seeds = sorted({record["seed"] for record in records})
    told = f"seeds {seeds[0]} to {seeds[-1]}" if len(seeds) > 1 else f"seed {seeds[0]}"
    return (
        f"{len(records)} cells, {told}, finished by {max(r['finished'] for r in records)[:10]}",
        _listed("versions", records),
        _listed("machine", records),
    )


def _listed(field: str, records: Iterable[Record]) -> str:
    """Return all values that a field of the records has had, by name."""
    values: dict[str, set[str]] = defaultdict(set)
    for record in records:
        entries: Any = record.get(field)
        for name, value in (entries if isinstance(entries, dict) else {}).items():
            values[str(name)].add(str(value))
    return ", ".join(f"{name} {' / '.join(sorted(those))}" for name, those in values.items())
