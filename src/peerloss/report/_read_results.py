"""Read a folder of results: checked records, in order, with one set of settings per method."""

from __future__ import annotations

import warnings
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from peerloss.exceptions import InvalidInputError
from peerloss.experiments import IMAGE_EXPERIMENTS, METHODS, Store, list_experiments, progress
from peerloss.report._paper import Row, printed_table

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from peerloss.experiments import Progress, Record

#: The order of the sections; other experiments follow by name.
_TABLES = ("table-a1", "heart-as-released", "table-a1-grid", "curves", "boundary", "invariance")
_EXPERIMENTS = (*_TABLES, *IMAGE_EXPERIMENTS)
_PROTOCOLS = ("paper", "fair", "open", "closed")
_PRIORS = ("equalized", "original")


@dataclass(frozen=True)
class Group:
    """The records of one experiment under one protocol."""

    experiment: str
    protocol: str
    title: str
    records: tuple[Record, ...]

    @property
    def has_images(self) -> bool:
        """Whether it is an experiment on images."""
        return self.records[0].has_images


class Results(NamedTuple):
    """The content of a folder, and notes on what is missing or was left out."""

    groups: tuple[Group, ...]
    notes: tuple[str, ...]


def read_results(folder: Path) -> Results:
    """Read a folder that ``peerloss reproduce -o`` wrote; missing or damaged records become notes."""
    if not folder.is_dir():
        raise InvalidInputError(
            f"`results` must be a folder that peerloss reproduce -o wrote; {folder} is not a folder."
        )
    store = Store(folder)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        stored, plans = store.records(), progress(store)
    notes = list(dict.fromkeys(str(warning.message) for warning in caught))
    if not stored:
        raise InvalidInputError(
            f"`results` {folder} has no finished run. Run for example: "
            f"peerloss reproduce table-a1 --data-sets heart -o {folder}"
        )
    kept, replaced = _newest_settings([record for record in stored if not record.has_images])
    # The table of images shows all settings, each in its own row.
    kept += [record for record in stored if record.has_images and record["experiment"] in IMAGE_EXPERIMENTS]
    notes += replaced
    notes += [_unfinished(plan) for plan in plans if plan.done < plan.runs]
    groups = _grouped(kept, {(plan.experiment, plan.protocol): plan.title for plan in plans})
    found = {group.experiment for group in groups}
    notes += [
        f"{name} has not been run; peerloss reproduce {name}, with the same -o, adds it."
        for name in list_experiments()
        if name not in found and name not in IMAGE_EXPERIMENTS  # they need a GPU
    ]
    return Results(groups, tuple(notes))


def _newest_settings(records: list[Record]) -> tuple[list[Record], list[str]]:
    """Keep, of runs with different settings, those with the settings used last."""
    in_order = sorted(records, key=lambda record: (record["finished"], record["spec"]))
    last = {_place(record): record["spec"] for record in in_order}
    kept = [record for record in records if record["spec"] == last[_place(record)]]
    old = sorted({_place(record) for record in records if record["spec"] != last[_place(record)]})
    return kept, [
        f"{experiment} ({protocol}): {method}, {prior} prior, was run with several settings; "
        "only the settings used last are shown."
        for experiment, protocol, method, prior in old
    ]


def _place(record: Record) -> tuple[str, ...]:
    return tuple(record[name] for name in ("experiment", "protocol", "method", "prior"))


def _unfinished(plan: Progress) -> str:
    missing = ", ".join(
        f"{method} {planned - done}" for method, (done, planned) in plan.by_method.items() if done < planned
    )
    return (
        f"{plan.experiment} ({plan.protocol}) is not finished: {plan.done} of {plan.runs} runs are done "
        f"(missing: {missing}). The results below are those of the finished runs."
    )


def _grouped(records: Iterable[Record], titles: dict[tuple[str, str], str]) -> tuple[Group, ...]:
    groups: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for record in records:
        groups[record["experiment"], record.protocol].append(record)
    names = sorted(groups, key=lambda name: (place_in(_EXPERIMENTS, name[0]), place_in(_PROTOCOLS, name[1])))
    return tuple(Group(*name, titles.get(name, name[0]), tuple(groups[name])) for name in names)


def place_in(known: Iterable[str], name: str) -> tuple[int, str]:
    """Return a key that sorts known names as listed, then the others by name."""
    order = list(known)
    return (order.index(name) if name in order else len(order), name)


def row_order(row: Row) -> tuple[Any, ...]:
    """Return a key that sorts rows: priors, then data sets as in the paper, then noise rates."""
    paper = dict.fromkeys(known.data_set for known in printed_table())
    return (place_in(_PRIORS, row.prior), place_in(paper, row.data_set), row.e_neg, row.e_pos)


def method_order(methods: Iterable[str]) -> list[str]:
    """Return distinct method names: as in the paper's tables, then ours, then unknown ones."""
    return sorted(set(methods), key=lambda name: place_in(METHODS, name))


def method_title(method: str) -> str:
    """Return the heading of a method, as in the paper's tables."""
    return METHODS[method].title if method in METHODS else method
