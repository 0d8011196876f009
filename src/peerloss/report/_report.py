"""Compute all results of a folder."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from peerloss.experiments import load_experiment
from peerloss.report._accuracy_table import accuracy_table
from peerloss.report._compare import deviations, paired_tests, summarise
from peerloss.report._read_results import read_results
from peerloss.report._series import boundaries, curve_panels, invariance_panels

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from peerloss.experiments import Record
    from peerloss.experiments.cifar import CifarExperiment, CifarTable
    from peerloss.report._accuracy_table import AccuracyTable
    from peerloss.report._compare import Deviation, PairedTest, PriorSummary
    from peerloss.report._read_results import Group
    from peerloss.report._series import Boundary, CurvePanel, InvariancePanel


@dataclass(frozen=True)
class Section:
    """The results of one experiment under one protocol.

    Each of ``table``, ``summaries``, ``tests``, ``deviations``, ``curves``, ``invariance`` and ``boundaries``
    is empty if there is nothing of its kind.
    """

    experiment: str
    protocol: str
    title: str
    provenance: tuple[str, ...]
    """Number of runs, versions and machines, one line each."""
    table: AccuracyTable | None = None
    summaries: tuple[PriorSummary, ...] = ()
    tests: tuple[PairedTest, ...] = ()
    deviations: tuple[Deviation, ...] = ()
    curves: tuple[CurvePanel, ...] = ()
    invariance: tuple[InvariancePanel, ...] = ()
    boundaries: tuple[Boundary, ...] = ()
    images: CifarTable | None = None
    """The table of an experiment on images."""

    @property
    def name(self) -> str:
        """Experiment and protocol."""
        return f"{self.experiment} ({self.protocol})"


@dataclass(frozen=True)
class Report:
    """All results of a folder."""

    sections: tuple[Section, ...]
    notes: tuple[str, ...]
    """What is missing or was left out."""


def build_report(results: str | Path) -> Report:
    """Read a folder of results and compute all tables, tests and series.

    Parameters
    ----------
    results
        Folder that ``peerloss reproduce -o`` wrote. It is only read; runs may still be adding to it.

    Raises
    ------
    InvalidInputError
        If it is not such a folder or has no finished run. Missing runs are listed in ``notes``.
    """
    found = read_results(Path(results))
    return Report(tuple(_section(group) for group in found.groups), found.notes)


def _section(group: Group) -> Section:
    if group.has_images:
        return _image_section(group)
    table = accuracy_table(group)
    return Section(
        group.experiment,
        group.protocol,
        group.title,
        _provenance(group.records),
        table=table,
        summaries=tuple(summarise(table)) if table else (),
        tests=tuple(paired_tests(table)) if table else (),
        deviations=tuple(deviations(table)) if table else (),
        curves=tuple(curve_panels(group)),
        invariance=tuple(invariance_panels(group)),
        boundaries=tuple(boundaries(group)),
    )


def _image_section(group: Group) -> Section:
    # The package of deep networks is imported only for stores that have some.
    from peerloss.experiments.cifar import summarise_cifar  # noqa: PLC0415

    name, protocol = group.experiment, group.protocol
    experiment = load_experiment(name, smoke="smoke" in protocol, closed="closed" in protocol)
    images = summarise_cifar(cast("CifarExperiment", experiment), group.records)
    return Section(name, protocol, images.title, (images.provenance,), images=images)


def _provenance(records: Sequence[Record]) -> tuple[str, ...]:
    seeds = sorted({record["seed"] for record in records})
    which = f"seeds {seeds[0]} to {seeds[-1]}" if len(seeds) > 1 else f"seed {seeds[0]}"
    return (
        f"{len(records)} runs, {which}, finished by {max(r['finished'] for r in records)[:10]}",
        _listed("versions", records),
        _listed("machine", records),
    )


def _listed(field: str, records: Iterable[Record]) -> str:
    """Return all values of a field of the records, by name."""
    values: dict[str, set[str]] = defaultdict(set)
    for record in records:
        entries: Any = record.get(field)
        for name, value in (entries if isinstance(entries, dict) else {}).items():
            values[str(name)].add(str(value))
    return ", ".join(f"{name} {' / '.join(sorted(those))}" for name, those in values.items())
