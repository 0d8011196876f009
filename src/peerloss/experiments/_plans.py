"""Plans: files in a store that list the runs that were requested, and the progress of each."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

from peerloss._deprecation import warn_renamed
from peerloss._files import atomic_files
from peerloss.exceptions import InvalidInputError
from peerloss.experiments._load import IMAGE_EXPERIMENTS, load_experiment
from peerloss.experiments._record import FORMAT, IDENTITY, parse_line, run_key

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from peerloss.experiments._experiment import Experiment
    from peerloss.experiments._record import Record
    from peerloss.experiments._store import Store

Plan = dict[str, Any]


@dataclass(frozen=True)
class Progress:
    """The progress of one plan."""

    experiment: str
    protocol: str
    title: str
    seeds: tuple[int, ...]
    runs: int
    done: int
    by_method: dict[str, tuple[int, int]]
    """Method → (runs done, runs planned)."""
    training_seconds: float
    """Training time of the runs that are done, over all processes."""
    last_finished: str | None
    """When the last of them was finished (UTC)."""

    @property
    def cells(self) -> int:
        """Number of runs, under its deprecated name."""
        warn_renamed("Progress.cells", "Progress.runs")
        return self.runs


def write_plan(folder: Path, experiment: Experiment) -> None:
    """Record the plan of an experiment in a folder of results; the same plan is written once."""
    plan = {
        "format": FORMAT,
        "experiment": experiment.name,
        "protocol": experiment.protocol,
        "title": experiment.title,
        **experiment.plan(),
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
                "peerloss reproduce writes the plan again, and records are not affected."
            ) from error
        plans.append(plan)
    return sorted(
        plans, key=lambda plan: (plan["experiment"], plan["protocol"], plan["seeds"], str(plan.get("rows")))
    )


def _check_plan(plan: Plan) -> None:
    """Raise ``ValueError``, ``KeyError`` or ``TypeError`` for what :func:`write_plan` did not write."""
    texts = [plan[name] for name in ("experiment", "protocol", "title")]
    if not plan["seeds"] or not all(type(seed) is int for seed in plan["seeds"]):
        raise ValueError("`seeds` must be a list of integers")
    if "keys" in plan:
        texts += [text for pair in dict(plan["keys"]).items() for text in pair]
        if not all(isinstance(text, str) for text in texts):
            raise ValueError("a name in it is not text")
        return
    numbers = [rate for _, *rates in plan["rows"] for rate in rates]
    texts += [data_set for data_set, *_ in plan["rows"]] + [text for spec in plan["specs"] for text in spec]
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("a name in it is not text")
    if not all(type(rate) is float for rate in numbers) or any(len(row) != 3 for row in plan["rows"]):
        raise ValueError("`rows` must be lists of a data set and two rates")
    if any(len(spec) != 3 for spec in plan["specs"]):
        raise ValueError("`specs` must be lists of a method, a prior and a hash")


def planned_keys(plan: Plan) -> dict[str, str]:
    """Return the keys of a plan's runs, each with its method."""
    if "keys" in plan:  # a plan of images lists them
        return dict(plan["keys"])
    keys = {}
    for (data_set, e_neg, e_pos), (method, prior, digest), seed in product(
        plan["rows"], plan["specs"], plan["seeds"]
    ):
        values = (plan["experiment"], plan["protocol"], data_set, e_neg, e_pos, prior, method, seed)
        identity = dict(zip(IDENTITY, values, strict=True))
        keys[run_key(identity, digest)] = method
    return keys


def progress(store: Store) -> list[Progress]:
    """Return the progress of each plan of a store."""
    records = {record["key"]: record for record in store.records()}
    plans = read_plans(store.folder)
    planned = {(plan["experiment"], plan["protocol"]) for plan in plans}
    plans += [
        plan
        for plan in _plans_of_images(records.values())
        if (plan["experiment"], plan["protocol"]) not in planned
    ]
    return [_progress(plan, records) for plan in plans]


def _plans_of_images(records: Iterable[Record]) -> list[Plan]:
    """Return plans of the finished runs on images: earlier versions wrote no plan for them."""
    groups: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for record in records:
        if record.has_images and record["experiment"] in IMAGE_EXPERIMENTS:
            groups[record["experiment"], record.protocol].append(record)
    return [
        {
            "experiment": name,
            "protocol": protocol,
            "title": load_experiment(name, smoke="smoke" in protocol, closed="closed" in protocol).title,
            "seeds": sorted({record["seed"] for record in members}),
            "keys": {record["key"]: record["method"] for record in members},
        }
        for (name, protocol), members in sorted(groups.items())
    ]


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
        runs=len(keys),
        done=len(found),
        by_method=counts,
        training_seconds=round(sum(record["seconds"] for record in found), 1),
        last_finished=max((record["finished"] for record in found), default=None),
    )
