"""What runners were asked for, kept beside the records, and how far they have come."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

from peerloss._files import atomic_files
from peerloss.exceptions import InvalidInputError
from peerloss.experiments._cells import FORMAT, IDENTITY, cell_key
from peerloss.experiments._records import parse_line

if TYPE_CHECKING:
    from pathlib import Path

    from peerloss.experiments._spec import Experiment
    from peerloss.experiments._store import Record, Store

Plan = dict[str, Any]


@dataclass(frozen=True)
class Progress:
    """How far one plan has come."""

    experiment: str
    protocol: str
    title: str
    seeds: tuple[int, ...]
    cells: int
    done: int
    by_method: dict[str, tuple[int, int]]
    """Method → (cells done, cells planned)."""
    training_seconds: float
    """Spent on the cells that are done, over all processes."""
    last_finished: str | None
    """When the latest of them was (UTC)."""


def write_plan(folder: Path, experiment: Experiment) -> None:
    """Leave word of an experiment in a folder of results; the same plan is written once."""
    plan = {
        "format": FORMAT,
        "experiment": experiment.name,
        "protocol": experiment.protocol,
        "title": experiment.title,
        "rows": [list(row) for row in experiment.rows],
        "seeds": list(experiment.seeds),
        "specs": [[*pair, recipe.digest] for pair, recipe in experiment.recipes.items()],
    }
    text = json.dumps(plan, indent=1)
    path = folder / f"plan-{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"
    if path.exists():
        return
    with atomic_files(path) as (unfinished,):
        unfinished.write_text(text, encoding="utf-8")


def read_plans(folder: Path) -> list[Plan]:
    """Return the plans in a folder, in a fixed order."""
    plans = []
    for path in sorted(folder.glob("plan-*.json")):
        try:
            plan = parse_line(path.read_bytes())
            _check_plan(plan)
        except (ValueError, KeyError, TypeError) as error:
            raise InvalidInputError(
                f"{path} is not a plan of this version ({str(error) or type(error).__name__}). Move it away: "
                "peerloss reproduce writes its plan again, and records are not touched."
            ) from error
        plans.append(plan)
    return sorted(
        plans, key=lambda plan: (plan["experiment"], plan["protocol"], plan["seeds"], str(plan["rows"]))
    )


def _check_plan(plan: Plan) -> None:
    """Raise ``ValueError``, ``KeyError`` or ``TypeError`` for what :func:`write_plan` did not write."""
    texts = [plan[name] for name in ("experiment", "protocol", "title")]
    numbers = [rate for _, *rates in plan["rows"] for rate in rates]
    texts += [data_set for data_set, *_ in plan["rows"]] + [text for spec in plan["specs"] for text in spec]
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("a name in it is not text")
    if not all(type(rate) is float for rate in numbers) or any(len(row) != 3 for row in plan["rows"]):
        raise ValueError("`rows` must be lists of a data set and two rates")
    if any(len(spec) != 3 for spec in plan["specs"]):
        raise ValueError("`specs` must be lists of a method, a prior and a hash")
    if not plan["seeds"] or not all(type(seed) is int for seed in plan["seeds"]):
        raise ValueError("`seeds` must be a list of integers")


def planned_keys(plan: Plan) -> dict[str, str]:
    """Return the keys of a plan's cells, each with its method."""
    keys = {}
    for (data_set, e_neg, e_pos), (method, prior, digest), seed in product(
        plan["rows"], plan["specs"], plan["seeds"]
    ):
        values = (plan["experiment"], plan["protocol"], data_set, e_neg, e_pos, prior, method, seed)
        identity = dict(zip(IDENTITY, values, strict=True))
        keys[cell_key(identity, digest)] = method
    return keys


def progress(store: Store) -> list[Progress]:
    """Return how far each plan of a store has come."""
    records = {record["key"]: record for record in store.records()}
    return [_progress(plan, records) for plan in read_plans(store.folder)]


def _progress(plan: Plan, records: dict[str, Record]) -> Progress:
    keys = planned_keys(plan)
    counts: dict[str, tuple[int, int]] = {}
    for key, method in keys.items():
        done, planned = counts.get(method, (0, 0))
        counts[method] = (done + (key in records), planned + 1)
    found = [records[key] for key in keys if key in records]
    return Progress(
        experiment=plan["experiment"],
        protocol=plan["protocol"],
        title=plan["title"],
        seeds=tuple(plan["seeds"]),
        cells=len(keys),
        done=len(found),
        by_method=counts,
        training_seconds=round(sum(record["seconds"] for record in found), 1),
        last_finished=max((record["finished"] for record in found), default=None),
    )
