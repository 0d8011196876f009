"""Specs of the CIFAR experiments: one TOML file says which runs there are, in order, and how they train.

Top level: ``title``, ``noise`` (the most important first), ``seeds``, ``holdout`` (rows whose noisy labels
choose the epoch), ``architecture``; ``[recipe]`` holds what differs from :class:`DeepRecipe` for all methods.
``[methods.NAME]``: ``loss``; ``warm_start`` (``share`` of the epochs with cross entropy, then the other loss
with its ``learning_rate``); ``held_out_images``; ``recipe``, and ``at.NOISE`` for one noise alone. ``false``
stands for "none" where a setting may be absent. ``[published.NOISE]`` has figures to print beside ours,
``source`` whose.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from dataclasses import asdict, dataclass, fields, replace
from importlib import resources
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

from peerloss._validation import check_choice, check_count, check_in_range
from peerloss.datasets.cifar10 import HUMAN_LABELS
from peerloss.exceptions import InvalidInputError
from peerloss.experiments._settings import check_seeds
from peerloss.experiments.cifar._changes import changed
from peerloss.experiments.cifar._work import LOSSES
from peerloss.training import DeepRecipe, Sieve

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

CIFAR_SPECS = ("cifar10", "cifar10n")
ARCHITECTURES = ("resnet18", "resnet34")
_TOP = ("title", "noise", "seeds", "holdout", "architecture", "recipe", "methods", "published")
_METHOD = ("loss", "warm_start", "held_out_images", "recipe", "at")
#: Settings for which ``false`` means that there is none.
_MAY_BE_ABSENT = ("average", "clip_norm", "patience", "sieve")
WIDTH = 64
#: What ``smoke`` runs: enough to go through every line.
SMOKE_ROWS, SMOKE_EPOCHS, SMOKE_WIDTH = 200, 4, 4


class WarmStart(NamedTuple):
    """Cross entropy first, for losses that need a model that already knows something."""

    share: float
    learning_rate: float


@dataclass(frozen=True)
class CifarRun:
    """What identifies a run; nothing else decides its figures."""

    experiment: str
    noise: str
    method: str
    seed: int
    loss: str
    warm_start: WarmStart | None
    architecture: str
    width: int
    rows: int | None
    """Images used, the first ones; ``None`` means all."""
    holdout: int
    held_out_images: bool
    """Whether a sieve teaches the images of these rows too; their labels are never trained on."""
    recipe: DeepRecipe
    smoke: bool = False
    """Whether it is there to see that everything works; its figures mean nothing."""
    closed: bool = False
    """Whether the test set stays closed: recipes are compared on held-out noisy labels alone."""

    @property
    def key(self) -> str:
        """Unique name: who it is, and a hash of every setting."""
        settings = self.settings()
        for mark in ("smoke", "closed"):
            if not settings[mark]:  # records made before there were such marks keep their names
                del settings[mark]
        digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:12]
        return f"{self.experiment}/{self.noise}/{self.method}/{self.seed}/{digest}"

    def settings(self) -> dict[str, Any]:
        """Return all settings under the names that records have, which never change."""
        settings = asdict(self)
        recipe = settings["recipe"]
        recipe["seed"] = recipe.pop("random_state")
        if recipe["sieve"] is not None:
            recipe["sieve"]["renew"] = recipe["sieve"].pop("refresh_every")
        return settings

    def stages(self) -> list[tuple[str, DeepRecipe]]:
        """Return losses and recipes one after another: two with a warm start."""
        if self.warm_start is None:
            return [(self.loss, self.recipe)]
        first = min(max(1, round(self.recipe.epochs * self.warm_start.share)), self.recipe.epochs - 1)
        second = replace(
            self.recipe,
            epochs=self.recipe.epochs - first,
            learning_rate=self.warm_start.learning_rate,
            warm_up=0.0,
        )
        return [("cross_entropy", replace(self.recipe, epochs=first, alpha=())), (self.loss, second)]


@dataclass(frozen=True, eq=False)
class CifarExperiment:
    """A checked spec."""

    name: str
    title: str
    noise: tuple[str, ...]
    methods: tuple[str, ...]
    seeds: tuple[int, ...]
    published: Mapping[str, Mapping[str, float]]
    """Noise → method or other name → accuracy in per cent."""
    source: str
    templates: Mapping[tuple[str, str], CifarRun]
    """One for each noise and method, with seed 0."""
    smoke: bool = False
    closed: bool = False

    def runs(self) -> list[CifarRun]:
        """Return all runs, the most important first: every noise and method once, then more seeds."""
        return [
            replace(template, seed=seed, recipe=replace(template.recipe, random_state=seed))
            for seed, noise, method in product(self.seeds, self.noise, self.methods)
            for template in [self.templates[noise, method]]
        ]


def load_cifar(
    name: str,
    *,
    noise: Collection[str] | None = None,
    methods: Collection[str] | None = None,
    seeds: int | None = None,
    first_seed: int = 0,
    changes: Sequence[str] = (),
    smoke: bool = False,
    closed: bool = False,
) -> CifarExperiment:
    """Read a spec; leave out what is not asked for.

    Parameters
    ----------
    name
        ``"cifar10"`` or ``"cifar10n"``.
    noise, methods
        Only these; ``None`` means all of the spec. Any ``uniform:RATE`` and any set of human labels will do.
    seeds, first_seed
        How many seeds, from which on; ``None`` means as many as the spec says.
    changes
        Settings that differ from the spec, ``"name=value"`` in Python's notation: ``"epochs=60"``,
        ``"sieve.rounds=3"`` (only where there is a sieve), ``"architecture='resnet34'"``.
    smoke
        Whether to take a few images, four epochs and a thin network, to see that everything works.
    closed
        Whether the test set stays closed, as it should while recipes are chosen: it is not even read, and
        held-out noisy labels are all there is to compare. Asked for openly, the same runs are run again.
    """
    check_choice(name, "name", CIFAR_SPECS)
    source = resources.files("peerloss.experiments.cifar") / "specs" / f"{name}.toml"
    table = tomllib.loads(source.read_text(encoding="utf-8"))
    _check_keys(table, _TOP, name)
    kinds = tuple(table["noise"]) if noise is None else tuple(noise)
    for kind in kinds:
        check_noise(kind)
    known = list(table["methods"])
    wanted = known if methods is None else [m for m in known if m in methods]
    for method in methods or ():
        check_choice(method, "methods", tuple(known))
    all_seeds = check_seeds(table["seeds"] if seeds is None else seeds, first_seed)
    templates = {
        (kind, method): _template(name, table, kind, method, changes, smoke=smoke, closed=closed)
        for kind, method in product(kinds, wanted)
    }
    published = dict(table.get("published", {}))
    return CifarExperiment(
        name=name,
        title=table["title"] + (" (smoke test)" if smoke else "") + (", test set closed" if closed else ""),
        noise=kinds,
        methods=tuple(wanted),
        seeds=all_seeds,
        source=str(published.pop("source", "")),
        published=published,
        templates=templates,
        smoke=smoke,
        closed=closed,
    )


def check_noise(noise: str) -> str:
    """Return ``noise`` if it is ``uniform:RATE`` or the name of a set of human labels."""
    kind, _, rate = noise.partition(":")
    try:
        usable = noise in HUMAN_LABELS or (kind == "uniform" and 0.0 <= float(rate) < 1.0)
    except ValueError:
        usable = False
    if not usable:
        raise InvalidInputError(
            f"`noise` must be uniform:RATE, such as uniform:0.4, or one of {', '.join(HUMAN_LABELS)}; "
            f"got {noise!r}."
        )
    return noise


def _template(
    name: str,
    table: Mapping[str, Any],
    noise: str,
    method: str,
    changes: Sequence[str],
    *,
    smoke: bool,
    closed: bool,
) -> CifarRun:
    entry = table["methods"][method]
    _check_keys(entry, _METHOD, f"{name}: methods.{method}")
    recipe = DeepRecipe()
    for layer in (table.get("recipe", {}), entry.get("recipe", {}), entry.get("at", {}).get(noise, {})):
        recipe = _filled(recipe, layer, f"{name}: methods.{method}")
    warm = entry.get("warm_start")
    run = CifarRun(
        experiment=name,
        noise=noise,
        method=method,
        seed=0,
        loss=check_choice(entry.get("loss"), f"{name}: methods.{method}: loss", tuple(LOSSES)),
        warm_start=None if warm is None else WarmStart(**warm),
        architecture=check_choice(table["architecture"], f"{name}: architecture", ARCHITECTURES),
        width=SMOKE_WIDTH if smoke else WIDTH,
        rows=SMOKE_ROWS if smoke else None,
        holdout=SMOKE_ROWS // 10 if smoke else check_count(table["holdout"], f"{name}: holdout"),
        held_out_images=entry.get("held_out_images", False),
        recipe=_for_smoke(recipe) if smoke else recipe,
        smoke=smoke,
        closed=closed,
    )
    for change in changes:
        run = changed(run, change)
    if run.warm_start is not None:
        check_in_range(run.warm_start.share, "warm_start.share", 0.0, 1.0, low_open=True, high_open=True)
        check_count(run.recipe.epochs, f"epochs of {method!r}, which trains in two parts,", minimum=2)
    check_choice(run.architecture, "architecture", ARCHITECTURES)
    check_count(run.width, "width")
    check_count(run.holdout, "holdout")
    if run.rows is not None:
        check_count(run.rows, "rows")
    return run


def _for_smoke(recipe: DeepRecipe) -> DeepRecipe:
    """Shorten a recipe; of four epochs with a sieve the last three see peer loss, the teacher, a renewal."""
    sieve = None if recipe.sieve is None else replace(recipe.sieve, start=0.5, refresh_every=1)
    return replace(recipe, epochs=SMOKE_EPOCHS, sieve=sieve)


def _filled(record: Any, table: Mapping[str, Any], where: str) -> Any:
    """Return a settings record with the entries of ``table``, those of inner records included."""
    _check_keys(table, [f.name for f in fields(record)], where)
    values: dict[str, Any] = {}
    for name, value in table.items():
        if value is False and name in _MAY_BE_ABSENT:
            values[name] = None
        elif isinstance(value, dict):
            inner = getattr(record, name)
            values[name] = _filled(Sieve() if inner is None else inner, value, f"{where}.{name}")
        else:
            values[name] = value
    return replace(record, **values)


def _check_keys(table: Mapping[str, Any], known: Collection[str], where: str) -> None:
    unknown = sorted(set(table) - set(known))
    if unknown:
        raise InvalidInputError(
            f"{where} has the unknown key `{unknown[0]}`; known are {', '.join(sorted(known))}."
        )
