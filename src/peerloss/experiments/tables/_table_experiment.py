"""Experiments on tables: their files, runs, recipes and execution.

The file has at the top level: ``title``; ``data_sets`` and ``noise`` (pairs e_neg, e_pos; every data set with
every pair) or ``rows`` (data set, e_neg, e_pos); ``priors``, ``seeds`` (their number), ``test_size``,
``validation_size``. Then one table per protocol, ``[paper]`` or ``[fair]``: ``trials`` (``"all"`` or a
number), ``choose`` (``"seed"`` or ``"row"``), ``scoring_alpha`` (a number, or one per prior), ``record`` (a
list of ``"curve"``, ``"invariance"``, ``"plane"``) and ``record_every`` (steps). ``nets`` holds the settings
of all networks and ``methods.NAME`` those of one method; ``methods.NAME.PRIOR`` overrides them for one prior.
A setting that is a list is searched.
"""

from __future__ import annotations

import hashlib
import json
import math
import random
from dataclasses import asdict, dataclass, field
from functools import cached_property, partial
from itertools import product
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from peerloss._validation import check_choice, check_count, check_finite, check_in_range
from peerloss.datasets import OTHER_DATASETS, list_datasets
from peerloss.exceptions import InvalidInputError
from peerloss.experiments._experiment import Experiment, Run, check_keys, check_seeds
from peerloss.experiments._parallel import check_backend, spread
from peerloss.experiments._record import FORMAT, IDENTITY, TableIdentity, run_key
from peerloss.experiments.tables._execute_runs import PRIORS, try_runs
from peerloss.experiments.tables._methods import METHODS, NET_SETTINGS, NetMethod, check_setting
from peerloss.experiments.tables._train_networks import OBSERVATIONS
from peerloss.noise import NoiseModel

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from peerloss.experiments._experiment import Outcome

#: Largest number of runs of an experiment and of points in a method's grid.
MAX_RUNS, MAX_GRID = 1_000_000, 100_000
#: Largest number of networks in one batch. It takes some seconds, which are lost if the process is killed.
NETS_PER_BATCH = 400
Settings = dict[str, Any]
PROTOCOLS = ("paper", "fair")
_TOP = {"title", "data_sets", "noise", "rows", "priors", "seeds", "test_size", "validation_size", *PROTOCOLS}
_PROTOCOL = {"trials", "choose", "scoring_alpha", "record", "record_every", "nets", "methods"}


@dataclass(frozen=True, eq=False)
class Recipe:
    """How the result of a run is obtained; the runs of one method and prior share it."""

    test_size: float
    validation_size: float
    scoring_alpha: float
    """α of the peer score that chooses on noisy validation labels; 0 is noisy accuracy."""
    choose: str
    """``"seed"``: each seed chooses for itself. ``"row"``: the mean over the seeds of a row chooses, when
    results are read."""
    record: tuple[str, ...]
    """What is recorded of networks in addition to their accuracy."""
    record_every: int | None
    """Steps between the points of curves."""
    settings: Settings
    """The settings that all trials have in common."""
    trials: tuple[Settings, ...]
    """The settings that differ, one entry per trial; a single empty entry if nothing is searched."""

    @cached_property
    def digest(self) -> str:
        """Hash of all fields."""
        text = json.dumps([FORMAT, asdict(self)], sort_keys=True, allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class TableRun(TableIdentity, Run):
    """One method on one table with noisy labels, with one seed."""

    recipe: Recipe = field(compare=False, repr=False)

    @cached_property
    def key(self) -> str:
        """Unique name: the same run with the same recipe has the same key everywhere."""
        return run_key(self.identity(), self.recipe.digest)

    @property
    def cost(self) -> int:
        """Number of trials."""
        return len(self.recipe.trials)

    def identity(self) -> dict[str, Any]:
        """Return the fields that identify the run; its record begins with them."""
        return {name: getattr(self, name) for name in IDENTITY}


@dataclass(frozen=True, eq=False)
class TableExperiment(Experiment):
    """An experiment on tables with noisy labels."""

    rows: tuple[tuple[str, float, float], ...]
    """Data set, e_neg, e_pos."""
    priors: tuple[str, ...]
    recipes: Mapping[tuple[str, str], Recipe]
    """One per method and prior."""

    OPTIONS: ClassVar[tuple[str, ...]] = ("backend", "n_jobs", "address")

    def runs(self) -> list[TableRun]:
        """Return all runs, row by row."""
        return [
            TableRun(self.name, self.protocol, *row, prior, method, seed, self.recipes[method, prior])
            for row, prior, method, seed in product(self.rows, self.priors, self.methods, self.seeds)
        ]

    def plan(self) -> dict[str, Any]:
        """Return rows and hashes of the recipes; with the seeds they determine the keys."""
        return {
            "rows": [list(row) for row in self.rows],
            "seeds": list(self.seeds),
            "specs": [[*pair, recipe.digest] for pair, recipe in self.recipes.items()],
        }

    def batches(self, runs: Sequence[TableRun]) -> list[list[TableRun]]:
        """Return ``runs`` in random order; networks of one row are in one batch, to be trained together."""
        batches: list[list[TableRun]] = []
        open_batches: dict[tuple[Any, ...], list[TableRun]] = {}
        for run in runs:
            row = (run.data_set, run.e_neg, run.e_pos, run.prior)
            batch = open_batches.get(row)
            if not isinstance(METHODS[run.method], NetMethod):
                batches.append([run])
            elif batch is None or sum(other.cost for other in batch) + run.cost > NETS_PER_BATCH:
                open_batches[row] = [run]
                batches.append(open_batches[row])
            else:
                batch.append(run)
        # In random order two processes seldom take the same batch, and the ETA is more reliable.
        random.shuffle(batches)
        return batches

    def prepare(self, options: dict[str, Any], runs: object) -> dict[str, Any]:  # noqa: ARG002
        """Check the ``options``; the data of the ``runs`` are loaded by each process."""
        check_backend(**options)
        return options

    def execute(self, batches: Iterable[list[TableRun]], folder: object, **options: Any) -> Iterator[Outcome]:  # noqa: ARG002
        """Spread ``batches`` over processes, according to ``options``; ``folder`` is not used."""
        return spread(try_runs, batches, **options)


def parse_tables(
    name: str,
    table: Mapping[str, Any],
    *,
    protocol: str | None,
    data_sets: Collection[str] | None,
    methods: Collection[str] | None,
    seeds: int | None,
    first_seed: int,
) -> TableExperiment:
    """Check the content of an experiment file and select the requested part of it."""
    check_keys(table, _TOP, name)
    protocol = "paper" if protocol is None else check_choice(protocol, "protocol", PROTOCOLS)
    if protocol not in table:
        offered = ", ".join(p for p in PROTOCOLS if p in table)
        raise InvalidInputError(f"`protocol` of {name} must be one of {offered}; got {protocol!r}.")
    chosen = table[protocol]
    check_keys(chosen, _PROTOCOL, f"{name}: [{protocol}]")
    rows = _rows(table, name)
    known = list(dict.fromkeys(row[0] for row in rows))
    wanted = _selected(data_sets, known, "data_sets", name)
    method_names = _selected(methods, list(chosen.get("methods", {})), "methods", name)
    priors = tuple(_each(table.get("priors"), PRIORS, f"{name}: priors"))
    if seeds is None:
        all_seeds = check_seeds(table.get("seeds"), first_seed, name=f"{name}: seeds")
    else:
        all_seeds = check_seeds(seeds, first_seed)
    recipes = {
        (m, p): _recipe(table, chosen, m, p, f"{name}: [{protocol}]") for m in method_names for p in priors
    }
    rows = [row for row in rows if row[0] in wanted]
    runs = len(rows) * len(recipes) * len(all_seeds)
    if runs > MAX_RUNS:
        raise InvalidInputError(
            f"{name} has {runs:,} runs (rows × methods × priors × seeds), more than {MAX_RUNS:,}; use "
            "fewer rows, methods or seeds."
        )
    return TableExperiment(
        name=name,
        protocol=protocol,
        title=str(table.get("title", name)),
        rows=tuple(rows),
        priors=priors,
        methods=tuple(method_names),
        seeds=all_seeds,
        recipes=recipes,
    )


def _each(values: object, known: Collection[str], where: str) -> list[str]:
    """Return a list of distinct known names."""
    if not isinstance(values, list) or not values or len(set(map(str, values))) < len(values):
        raise InvalidInputError(f"{where} must be a list of distinct names; got {values!r}.")
    for value in values:
        if value not in known:
            raise InvalidInputError(f"{where} must be among {', '.join(known)}; got {value!r}.")
    return values


def _selected(requested: Collection[str] | None, known: Sequence[str], what: str, where: str) -> list[str]:
    """Return the requested names, in the order of the file."""
    if not known:
        raise InvalidInputError(f"{where} must have `{what}`; it has none.")
    if requested is None:
        return list(known)
    for name in requested:
        if name not in known:
            raise InvalidInputError(
                f"`{what}` must be among those of {where}: {', '.join(known)}; got {name!r}."
            )
    if not requested:
        raise InvalidInputError(f"`{what}` is empty; {where} has {', '.join(known)}.")
    return [name for name in known if name in requested]


def _rows(table: Mapping[str, Any], name: str) -> list[tuple[str, float, float]]:
    if ("rows" in table) == ("data_sets" in table or "noise" in table):
        raise InvalidInputError(f"{name} must have either `rows` or both `data_sets` and `noise`.")
    if "rows" in table:
        entries = table["rows"]
    else:
        pairs, sets = table.get("noise", []), table.get("data_sets", [])
        if not (isinstance(pairs, list) and all(isinstance(part, list) for part in (sets, *pairs))):
            raise InvalidInputError(f"{name}: `data_sets` and `noise` must be lists of names and of pairs.")
        entries = [[data_set, *pair] for data_set, pair in product(sets, pairs)]
    if not isinstance(entries, list) or not entries:
        raise InvalidInputError(f"{name} has no rows; name data sets and noise rates.")
    known: list[str] = [*list_datasets(), *OTHER_DATASETS]
    rows = []
    for entry in entries:
        if not isinstance(entry, list) or len(entry) != 3:
            raise InvalidInputError(f"{name}: a row must be [data set, e_neg, e_pos]; got {entry!r}.")
        if entry[0] not in known:
            raise InvalidInputError(f"{name}: data sets must be among {', '.join(known)}; got {entry[0]!r}.")
        NoiseModel.binary(entry[1], entry[2])  # rejects invalid rates
        rows.append((str(entry[0]), float(entry[1]), float(entry[2])))
    if len(set(rows)) < len(rows):
        raise InvalidInputError(f"{name}: rows must be distinct; some are repeated.")
    return rows


def _recipe(
    table: Mapping[str, Any], protocol: Mapping[str, Any], method: str, prior: str, where: str
) -> Recipe:
    scoring = protocol.get("scoring_alpha", 0.0)
    if isinstance(scoring, dict):
        check_keys(scoring, PRIORS, f"{where} scoring_alpha")
        scoring = scoring.get(prior, 0.0)
    check_size = partial(check_in_range, low=0.0, low_open=True, high_open=True)
    test_size = check_size(table.get("test_size"), "test_size", high=1.0)
    validation_size = check_size(table.get("validation_size"), "validation_size", high=1.0 - test_size)
    settings = _settings(protocol, method, prior, where)
    searched = {name: value for name, value in settings.items() if isinstance(value, list)}
    return Recipe(
        test_size=test_size,
        validation_size=validation_size,
        scoring_alpha=check_finite(scoring, f"{where} scoring_alpha"),
        choose=check_choice(protocol.get("choose", "seed"), f"{where} choose", ("seed", "row")),
        **_recorded(protocol, where),
        settings={name: value for name, value in settings.items() if name not in searched},
        trials=_trials(searched, protocol.get("trials", "all"), method, where),
    )


def _recorded(protocol: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return what is recorded while networks train, and how often."""
    record, every = protocol.get("record", []), protocol.get("record_every")
    if record:
        _each(record, OBSERVATIONS, f"{where} record")
    if {"curve", "invariance"}.intersection(record):
        check_count(every, f"{where} record_every")
    elif every is not None:
        raise InvalidInputError(f"{where} has `record_every`, but its `record` has no curve.")
    return {"record": tuple(record), "record_every": every}


def _settings(protocol: Mapping[str, Any], method: str, prior: str, where: str) -> Settings:
    """Return the settings; later ones win: of the method, all networks, the method here, its prior."""
    if method not in METHODS:
        raise InvalidInputError(f"{where} has the unknown method {method!r}; known are {', '.join(METHODS)}.")
    entry = METHODS[method]
    shared = protocol.get("nets", {})
    check_keys(shared, NET_SETTINGS, f"{where} nets")
    own = protocol["methods"][method]
    check_keys(own, [*entry.settings, *PRIORS], f"{where} methods.{method}")
    special = own.get(prior, {})
    check_keys(special, entry.settings, f"{where} methods.{method}.{prior}")
    plain = {name: value for name, value in own.items() if name not in PRIORS}
    settings: Settings = entry.settings | (shared if isinstance(entry, NetMethod) else {}) | plain | special
    for name, value in settings.items():
        check_setting(name, value, f"{where} methods.{method}")
    return settings


def _trials(
    searched: Mapping[str, list[Any]], count: object, method: str, where: str
) -> tuple[Settings, ...]:
    """Return the full grid, or its first point and random others: the same for every row and seed."""
    wanted = 0 if count == "all" else check_count(count, f"{where} trials")
    size = math.prod(len(values) for values in searched.values())
    if size > MAX_GRID:
        raise InvalidInputError(
            f"{where} methods.{method}: the lists of {', '.join(f'`{name}`' for name in searched)} make a "
            f"grid of {size:,} points; at most {MAX_GRID:,} are allowed. Use fewer values."
        )
    grid = [dict(zip(searched, values, strict=True)) for values in product(*searched.values())]
    if count == "all" or len(grid) == 1:
        return tuple(grid)
    if len(grid) < wanted:
        raise InvalidInputError(
            f"{where} gives every method {wanted} trials, but the grid of {method!r} has {len(grid)} points; "
            "give it more values, or one value for each setting if it does not search."
        )
    seed = int.from_bytes(hashlib.sha256(method.encode()).digest()[:8])
    others = np.random.default_rng(seed).choice(len(grid) - 1, wanted - 1, replace=False) + 1
    return tuple(grid[i] for i in [0, *sorted(int(i) for i in others)])
