"""Results on disk: a folder of JSON lines that only grows, and the plans from which progress is computed.

Any number of processes can share a folder, on one machine or over a network: each appends to a file of its
own, and nothing is appended after an incomplete line. If two processes complete the same run, the
results are equal and the earlier record counts. (A process locks its file only to show that it is alive; the
operating system releases the lock when it ends.)

The folder holds
    ``records-ID.jsonl``  one line per run, one file per process;
    ``plan-HASH.json``    the runs that were requested, from which ``peerloss status`` computes progress;
    ``NAME/``             tables and checkpoints of an image experiment. Earlier versions wrote its records
                          there too; they are read as well.
"""

from __future__ import annotations

import hashlib
import json
import uuid
import warnings
from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self

from peerloss._deprecation import renamed_fields
from peerloss._files import append_through, atomic_files, lock_file, output_errors
from peerloss.exceptions import InvalidInputError
from peerloss.experiments._experiment import IMAGE_EXPERIMENTS, load_experiment
from peerloss.experiments._record import FORMAT, IDENTITY, Record, parse_line, run_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from peerloss.experiments._experiment import Experiment

Plan = dict[str, Any]


class StoreWarning(UserWarning):
    """Lines of a store could not be read. Their runs count as not done."""


class Store:
    """A folder of records; :class:`Record` lists their fields.

    Parameters
    ----------
    folder
        Created when the first record or plan is written.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        if self.folder.exists() and not self.folder.is_dir():
            raise InvalidInputError(f"`folder` must be a folder of results; {self.folder} is a file.")
        self._records: dict[str, Record] = {}
        self._read_up_to: dict[Path, int] = {}
        self._out: IO[bytes] | None = None

    def refresh(self) -> None:
        """Read what any process has written since the last call."""
        for path in self._files():
            start = self._read_up_to.get(path, 0)
            with path.open("rb") as stream:
                stream.seek(start)
                complete, newline, _ = stream.read().rpartition(b"\n")
            self._read_up_to[path] = start + len(complete) + len(newline)
            lines = [line for line in complete.split(b"\n") if line.strip()]
            skipped = sum(not self._add(line) for line in lines)
            if skipped:
                _warn(path, f"{skipped} of its {len(lines)} lines cannot be read as records and are skipped")

    def records(self) -> list[Record]:
        """Return one record per run, in the order of their keys.

        Lines that are not complete records are skipped with a :class:`StoreWarning`. So is an incomplete last
        line, which a killed process leaves behind.
        """
        self.refresh()
        for path, end in self._read_up_to.items():
            if path.stat().st_size > end:
                what = "the last line is incomplete (its process was stopped or is writing it) and is skipped"
                _warn(path, what)
        return [self._records[key] for key in sorted(self._records)]

    def records_of(self, experiment: Experiment) -> list[Record]:
        """Return all records of an experiment under its protocol, with any method, seed and settings."""
        wanted = (experiment.name, experiment.protocol)
        return [record for record in self.records() if (record["experiment"], record.protocol) == wanted]

    def done(self) -> set[str]:
        """Return the keys of the runs that are done."""
        self.refresh()
        return set(self._records)

    def repair(self) -> None:
        """Remove, with a warning, the incomplete last lines that killed processes left behind.

        Such lines are skipped in any case. Files of running processes are not changed.
        """
        for path in self._files():
            with path.open("rb+") as stream:
                content = stream.read()
                complete = content.rfind(b"\n") + 1
                if complete < len(content) and lock_file(stream):
                    stream.truncate(complete)
                    _warn(
                        path,
                        "repaired; the last line was incomplete (its process was stopped) and was removed",
                    )

    def append(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Append records to the file of this store and flush them to disk: all of them or none."""
        lines = [json.dumps(dict(record), allow_nan=False) + "\n" for record in records]
        if self._out is None:
            path = self.folder / f"records-{uuid.uuid4().hex}.jsonl"
            with output_errors([path]):
                self.folder.mkdir(parents=True, exist_ok=True)
                self._out = path.open("xb", buffering=0)
            lock_file(self._out)
        append_through(
            self._out,
            "".join(lines).encode(),
            advice="All earlier records are kept. Free some space, then run the same command again.",
        )

    def _files(self) -> list[Path]:
        folders = (self.folder, *(self.folder / name for name in IMAGE_EXPERIMENTS))
        return [path for folder in folders for path in sorted(folder.glob("records-*.jsonl"))]

    def _add(self, line: bytes) -> bool:
        """Add the record of a line; return whether it is a record, possibly of another version."""
        try:
            record = Record(parse_line(line))
        except ValueError:
            return False
        if record.get("format") != FORMAT:
            return isinstance(record.get("format"), int)
        key, finished = record.get("key"), record.get("finished")
        if not (isinstance(key, str) and isinstance(finished, str) and record.is_usable):
            return False
        other = self._records.get(key)
        if other is None or finished < other["finished"]:
            self._records[key] = record
        return True

    def close(self) -> None:
        """Close the file that this store appends to."""
        if self._out is not None:
            self._out.close()
            self._out = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _warn(path: Path, what: str) -> None:
    warnings.warn(f"{path.name}: {what}. The runs concerned count as not done.", StoreWarning, stacklevel=4)


@renamed_fields(cells="runs")
@dataclass(frozen=True)
class Progress:
    """How many runs of one plan are done."""

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


def write_plan(folder: Path, experiment: Experiment) -> None:
    """Record the plan of an experiment in a folder of results; the same plan is written once."""
    names = {"experiment": experiment.name, "protocol": experiment.protocol, "title": experiment.title}
    text = json.dumps({"format": FORMAT, **names, **experiment.plan()}, indent=1)
    path = folder / f"plan-{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"
    if not path.exists():
        with atomic_files(path) as (unfinished,):
            unfinished.write_text(text, encoding="utf-8")


def _read_plans(folder: Path) -> list[Plan]:
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
    """Raise ``ValueError``, ``KeyError`` or ``TypeError`` if :func:`write_plan` did not write the plan."""
    if not plan["seeds"] or not all(type(seed) is int for seed in plan["seeds"]):
        raise ValueError("`seeds` must be a list of integers")
    has_images = "keys" in plan
    rows, specs = ([], []) if has_images else (plan["rows"], plan["specs"])
    texts = [plan[name] for name in ("experiment", "protocol", "title")]
    texts += [text for pair in dict(plan["keys"]).items() for text in pair] if has_images else []
    texts += [data_set for data_set, *_ in rows] + [text for spec in specs for text in spec]
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("a name in it is not text")
    if not all(len(rates) == 2 and all(type(rate) is float for rate in rates) for _, *rates in rows):
        raise ValueError("`rows` must be lists of a data set and two rates")
    if any(len(spec) != 3 for spec in specs):
        raise ValueError("`specs` must be lists of a method, a prior and a hash")


def _planned_keys(plan: Plan) -> dict[str, str]:
    """Return the keys of a plan's runs, each with its method."""
    if "keys" in plan:  # a plan of images lists them
        return dict(plan["keys"])
    names = (plan["experiment"], plan["protocol"])
    return {
        run_key(dict(zip(IDENTITY, (*names, *row, prior, method, seed), strict=True)), digest): method
        for row, (method, prior, digest), seed in product(plan["rows"], plan["specs"], plan["seeds"])
    }


def progress(store: Store) -> list[Progress]:
    """Return the progress of each plan of a store.

    Runs on images that are in no plan, because an earlier version made them, count as a plan of their own.
    """
    records = {record["key"]: record for record in store.records()}
    plans = _read_plans(store.folder)
    planned = {key for plan in plans for key in _planned_keys(plan)}
    unplanned = [record for key, record in records.items() if key not in planned]
    return [_progress(plan, records) for plan in plans + _plans_of_images(unplanned)]


def _plans_of_images(records: Iterable[Record]) -> list[Plan]:
    """Return plans for records of images that are in no plan: earlier versions wrote none."""
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
    keys = _planned_keys(plan)
    found = [records[key] for key in keys if key in records]
    planned = Counter(keys.values())
    done = Counter(method for key, method in keys.items() if key in records)
    return Progress(
        experiment=plan["experiment"],
        protocol=plan["protocol"],
        title=plan["title"],
        seeds=tuple(plan["seeds"]),
        runs=len(keys),
        done=len(found),
        by_method={method: (done[method], count) for method, count in planned.items()},
        training_seconds=round(sum(record["seconds"] for record in found), 1),
        last_finished=max((record["finished"] for record in found), default=None),
    )
