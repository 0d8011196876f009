"""Specs: one TOML file a table or figure says which cells there are and how their figures are made.

Top level: ``title``; ``data_sets`` and ``noise`` (pairs e_neg, e_pos; every data set with every pair) or
``rows`` (data set, e_neg, e_pos); ``priors``, ``seeds`` (how many), ``test_size``, ``validation_size``. Then
a table for each protocol, ``[paper]`` or ``[fair]``: ``trials`` (``"all"`` or a number), ``choose``
(``"seed"`` or ``"row"``), ``scoring_alpha`` (a number, or one a prior), ``record`` (a list of ``"curve"``,
``"invariance"``, ``"plane"``) and ``record_every`` (steps); ``nets`` holds settings of all networks and
``methods.NAME`` those of one method, which ``methods.NAME.PRIOR`` overrides for one prior. A setting that is
a list is searched.
"""

from __future__ import annotations

import hashlib
import math
import tomllib
from dataclasses import dataclass
from importlib import resources
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from peerloss._validation import check_choice, check_count, check_finite, check_in_range
from peerloss.datasets import OTHER_DATASETS, list_datasets
from peerloss.exceptions import InvalidInputError
from peerloss.experiments._cells import Cell, Recipe, Settings
from peerloss.experiments._methods import METHODS, NET_SETTINGS, NetMethod
from peerloss.experiments._observe import OBSERVATIONS
from peerloss.experiments._settings import MAX_CELLS, MAX_GRID, check_numbers, check_seeds, check_setting
from peerloss.experiments._tasks import PRIORS
from peerloss.noise import NoiseModel

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

PROTOCOLS = ("paper", "fair")
_TOP = {"title", "data_sets", "noise", "rows", "priors", "seeds", "test_size", "validation_size", *PROTOCOLS}
_PROTOCOL = {"trials", "choose", "scoring_alpha", "record", "record_every", "nets", "methods"}


@dataclass(frozen=True, eq=False)
class Experiment:
    """A checked spec under one protocol."""

    name: str
    protocol: str
    title: str
    rows: tuple[tuple[str, float, float], ...]
    """Data set, e_neg, e_pos."""
    priors: tuple[str, ...]
    methods: tuple[str, ...]
    seeds: tuple[int, ...]
    recipes: Mapping[tuple[str, str], Recipe]
    """One for each method and prior."""

    def cells(self) -> list[Cell]:
        """Return all cells, row by row."""
        return [
            Cell(self.name, self.protocol, *row, prior, method, seed, self.recipes[method, prior])
            for row, prior, method, seed in product(self.rows, self.priors, self.methods, self.seeds)
        ]


def list_experiments() -> list[str]:
    """Return the names of the specs that come with the package."""
    folder = resources.files("peerloss.experiments") / "specs"
    return sorted(
        entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml")
    )


def load_experiment(
    spec: str | Path,
    *,
    protocol: str = "paper",
    data_sets: Collection[str] | None = None,
    methods: Collection[str] | None = None,
    seeds: int | None = None,
    first_seed: int = 0,
) -> Experiment:
    """Read and check a spec; leave out what is not asked for.

    Parameters
    ----------
    spec
        A name of :func:`list_experiments`, or the path of a TOML file.
    protocol
        ``"paper"`` or ``"fair"``.
    data_sets, methods
        Only these; ``None`` means all.
    seeds, first_seed
        How many seeds, from which on; ``None`` means as many as the spec says.

    Examples
    --------
    >>> heart = load_experiment("table-a1", data_sets=["heart"], methods=["peer", "nn"])
    >>> len(heart.cells())  # 5 noise pairs, 2 priors, 2 methods, 8 seeds
    160
    """
    name, table = _read(spec)
    _check_keys(table, _TOP, name)
    check_choice(protocol, "protocol", PROTOCOLS)
    if protocol not in table:
        offered = [p for p in PROTOCOLS if p in table]
        raise InvalidInputError(
            f"`protocol` of {name} must be one of {', '.join(offered)}; got {protocol!r}."
        )
    chosen = table[protocol]
    _check_keys(chosen, _PROTOCOL, f"{name}: [{protocol}]")
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
    cells = len(rows) * len(recipes) * len(all_seeds)
    if cells > MAX_CELLS:
        raise InvalidInputError(
            f"{name} has {cells:,} cells (rows × methods × priors × seeds), more than {MAX_CELLS:,}; use "
            "fewer rows, methods or seeds."
        )
    return Experiment(
        name=name,
        protocol=protocol,
        title=str(table.get("title", name)),
        rows=tuple(rows),
        priors=priors,
        methods=tuple(method_names),
        seeds=all_seeds,
        recipes=recipes,
    )


def _read(spec: str | Path) -> tuple[str, dict[str, Any]]:
    text = str(spec)
    if text in list_experiments():
        source = resources.files("peerloss.experiments") / "specs" / f"{text}.toml"
        return text, tomllib.loads(source.read_text(encoding="utf-8"))
    path = Path(spec)
    if path.suffix != ".toml" or not path.is_file():
        raise InvalidInputError(
            f"`spec` must be one of {', '.join(list_experiments())}, or an existing .toml file; got {text!r}."
        )
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (
        ValueError,
        RecursionError,
    ) as error:  # bad TOML or UTF-8, numbers of thousands of digits, nesting
        raise InvalidInputError(f"`spec` {path} is not a TOML file: {error}.") from error
    check_numbers(table, path.stem)
    return path.stem, table


def _check_keys(table: object, known: Iterable[str], where: str) -> None:
    if not isinstance(table, dict):
        raise InvalidInputError(f"{where} must be a table of settings; got {table!r}.")
    unknown = sorted(set(table) - set(known))
    if unknown:
        raise InvalidInputError(
            f"{where} has the unknown key `{unknown[0]}`; known are {', '.join(sorted(known))}."
        )


def _each(values: object, known: Collection[str], where: str) -> list[str]:
    """Return a list of distinct known names."""
    if not isinstance(values, list) or not values or len(set(map(str, values))) < len(values):
        raise InvalidInputError(f"{where} must be a list of distinct names; got {values!r}.")
    for value in values:
        if value not in known:
            raise InvalidInputError(f"{where} must be among {', '.join(known)}; got {value!r}.")
    return values


def _selected(asked: Collection[str] | None, known: Sequence[str], what: str, where: str) -> list[str]:
    """Return the names asked for, in the order of the spec."""
    if not known:
        raise InvalidInputError(f"{where} must have `{what}`; it has none.")
    if asked is None:
        return list(known)
    for name in asked:
        if name not in known:
            raise InvalidInputError(
                f"`{what}` must be among those of {where}: {', '.join(known)}; got {name!r}."
            )
    if not asked:
        raise InvalidInputError(f"`{what}` is empty; {where} has {', '.join(known)}.")
    return [name for name in known if name in asked]


def _rows(table: Mapping[str, Any], name: str) -> list[tuple[str, float, float]]:
    if ("rows" in table) == ("data_sets" in table or "noise" in table):
        raise InvalidInputError(f"{name} must have either `rows` or both `data_sets` and `noise`.")
    if "rows" in table:
        entries = table["rows"]
    else:
        pairs = table.get("noise", [])
        sets = table.get("data_sets", [])
        if not (
            isinstance(pairs, list) and isinstance(sets, list) and all(isinstance(p, list) for p in pairs)
        ):
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
        NoiseModel.binary(entry[1], entry[2])  # refuses rates that are none
        rows.append((str(entry[0]), float(entry[1]), float(entry[2])))
    if len(set(rows)) < len(rows):
        raise InvalidInputError(f"{name}: every row must be there once; some are repeated.")
    return rows


def _recipe(
    table: Mapping[str, Any], protocol: Mapping[str, Any], method: str, prior: str, where: str
) -> Recipe:
    scoring = protocol.get("scoring_alpha", 0.0)
    if isinstance(scoring, dict):
        _check_keys(scoring, PRIORS, f"{where} scoring_alpha")
        scoring = scoring.get(prior, 0.0)
    limits = {"low_open": True, "high_open": True}
    test_size = check_in_range(table.get("test_size"), "test_size", 0.0, 1.0, **limits)
    validation_size = check_in_range(
        table.get("validation_size"), "validation_size", 0.0, 1.0 - test_size, **limits
    )
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
    """Return what of the networks' training is recorded, and how often."""
    record, every = protocol.get("record", []), protocol.get("record_every")
    if record:
        _each(record, OBSERVATIONS, f"{where} record")
    if {"curve", "invariance"}.intersection(record):
        check_count(every, f"{where} record_every")
    elif every is not None:
        raise InvalidInputError(f"{where} has `record_every`, but its `record` names no curve.")
    return {"record": tuple(record), "record_every": every}


def _settings(protocol: Mapping[str, Any], method: str, prior: str, where: str) -> Settings:
    """Defaults of the method, then those of all networks, of the method in this spec, and of its prior."""
    if method not in METHODS:
        raise InvalidInputError(f"{where} has the unknown method {method!r}; known are {', '.join(METHODS)}.")
    entry = METHODS[method]
    shared = protocol.get("nets", {})
    _check_keys(shared, NET_SETTINGS, f"{where} nets")
    own = protocol["methods"][method]
    _check_keys(own, [*entry.settings, *PRIORS], f"{where} methods.{method}")
    special = own.get(prior, {})
    _check_keys(special, entry.settings, f"{where} methods.{method}.{prior}")
    plain = {name: value for name, value in own.items() if name not in PRIORS}
    settings: Settings = entry.settings | (shared if isinstance(entry, NetMethod) else {}) | plain | special
    for name, value in settings.items():
        check_setting(name, value, f"{where} methods.{method}")
    return settings


def _trials(
    searched: Mapping[str, list[Any]], count: object, method: str, where: str
) -> tuple[Settings, ...]:
    """Return the whole grid, or the first point and random others: the same for every row and seed."""
    wanted = 0 if count == "all" else check_count(count, f"{where} trials")
    size = math.prod(len(values) for values in searched.values())
    if size > MAX_GRID:
        raise InvalidInputError(
            f"{where} methods.{method}: the lists of {', '.join(f'`{name}`' for name in searched)} make a "
            f"grid of {size:,} points; at most {MAX_GRID:,} are allowed. Offer fewer values."
        )
    grid = [dict(zip(searched, values, strict=True)) for values in product(*searched.values())]
    if count == "all" or len(grid) == 1:
        return tuple(grid)
    if len(grid) < wanted:
        raise InvalidInputError(
            f"{where} gives every method {wanted} trials, but the grid of {method!r} has {len(grid)} points; "
            "offer it more values, or one value for each setting if it does not search."
        )
    seed = int.from_bytes(hashlib.sha256(method.encode()).digest()[:8])
    others = np.random.default_rng(seed).choice(len(grid) - 1, wanted - 1, replace=False) + 1
    return tuple(grid[i] for i in [0, *sorted(int(i) for i in others)])
