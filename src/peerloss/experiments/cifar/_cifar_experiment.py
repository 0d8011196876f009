"""Experiments on images: which runs there are, in order, and how each is trained.

The file has at the top level: ``title``, ``images`` (CIFAR-10 if it is missing), ``noise`` (the most
important first), ``seeds``, ``holdout`` (number of rows whose noisy labels choose the epoch), ``holdout_at``
(other numbers for kinds of noise with fewer rows), ``architecture``; ``[recipe]`` has what differs from the
defaults of :class:`DeepRecipe` for all methods. ``[methods.NAME]``: ``loss``; ``warm_start`` (``share`` of
the epochs with cross entropy, then the other loss with its ``learning_rate``); ``held_out_images``;
``architecture`` and ``recipe`` in place of those above, and ``at.KIND`` for one kind of noise only.
``false`` means "none" for settings that can be absent. ``[published.NOISE]`` has published accuracies for
comparison and ``source``, their origin.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import product
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from peerloss._deprecation import renamed_fields, warn_renamed
from peerloss._validation import check_choice, check_count, check_in_range
from peerloss.exceptions import DivergenceError, InvalidInputError
from peerloss.experiments._experiment import Experiment, Outcome, Run, check_keys, check_seeds
from peerloss.experiments._image_noise import parse_noise
from peerloss.experiments._record import SMOKE_WIDTH, image_protocol
from peerloss.experiments._run_experiment import RunSummary, run_experiment
from peerloss.experiments._store import Store
from peerloss.experiments.cifar._changes import changed
from peerloss.experiments.cifar._train_cifar import (
    LOSSES,
    NETWORKS,
    SharedResources,
    checkpoint_file,
    make_record,
    train_cifar,
)
from peerloss.training import DeepRecipe, Growth, Sieve

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from peerloss.experiments._record import Record

_ROWS = ("images", "noise", "seeds", "holdout", "holdout_at")
_TOP = ("title", *_ROWS, "architecture", "recipe", "methods", "published")
_METHOD = ("loss", "architecture", "width", "warm_start", "holdout", "held_out_images", "recipe", "at")
#: Settings for which ``false`` means "none".
_MAY_BE_ABSENT = ("average", "clip_norm", "patience", "sieve", "growth")
#: Objects that are absent by default; a table in the file creates them.
_OBJECTS = {"sieve": Sieve, "growth": Growth}
WIDTH = 64
#: Size of a smoke test: enough to execute every step.
SMOKE_ROWS, SMOKE_EPOCHS = 200, 4


class WarmStart(NamedTuple):
    """Training with cross entropy first, for losses that cannot start from random weights."""

    share: float
    learning_rate: float


@dataclass(frozen=True)
class CifarRun(Run):
    """One method on images with noisy labels, with one seed. The fields determine its result."""

    experiment: str
    noise: str
    method: str
    seed: int
    loss: str
    warm_start: WarmStart | None
    architecture: str
    width: int
    rows: int | None
    """Number of images used, from the first one; ``None`` means all."""
    holdout: int
    held_out_images: bool
    """Whether a sieve trains on the images of the held-out rows. Their labels are never trained on."""
    recipe: DeepRecipe
    smoke: bool = False
    """Whether the run only checks that everything works. Its results mean nothing."""
    closed: bool = False
    """Whether the test set is not read: recipes are compared on held-out noisy labels only."""
    images: str = "cifar10"
    """Name of the images."""
    members: int = 1
    """Number of networks that share the batches and predict together, see
    :class:`~peerloss.models.Ensemble`."""

    @property
    def key(self) -> str:
        """Unique name: noise, method, seed and a hash of every setting."""
        settings = self.settings()
        for mark in ("smoke", "closed"):
            if not settings[mark]:  # records made before these marks existed keep their keys
                del settings[mark]
        digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:12]
        return f"{self.experiment}/{self.noise}/{self.method}/{self.seed}/{digest}"

    def settings(self) -> dict[str, Any]:
        """Return all settings under the names that records have, which never change."""
        settings = asdict(self)
        recipe = settings["recipe"]
        recipe["seed"] = recipe.pop("random_state")
        later = [
            (settings, "images", "cifar10"),
            (settings, "members", 1),
            (recipe, "optimizer", "sgd"),
            (recipe["augment"], "random_changes", 0),
        ]
        if recipe["sieve"] is not None:
            sieve = recipe["sieve"]
            sieve["renew"] = sieve.pop("refresh_every")
            later += [(sieve["augment"], "random_changes", 0), (sieve, "growth", None)]
            if sieve["growth"] is not None:
                later += [(sieve["growth"], "final_trust", 0.0), (sieve["growth"], "cut", 0.0)]
        for part, name, default in later:
            if part[name] == default:  # records made before these settings existed keep their keys
                del part[name]
        return settings

    @property
    def cost(self) -> int:
        """Number of epochs."""
        return self.recipe.epochs

    def stages(self) -> list[tuple[str, DeepRecipe]]:
        """Return the losses and recipes to train with, in order: two with a warm start."""
        if self.warm_start is None:
            return [(self.loss, self.recipe)]
        epochs, rate = self.recipe.epochs, self.warm_start.learning_rate
        first = min(max(1, round(epochs * self.warm_start.share)), epochs - 1)
        second = replace(self.recipe, epochs=epochs - first, learning_rate=rate, warm_up=0.0)
        return [("cross_entropy", replace(self.recipe, epochs=first, alpha=())), (self.loss, second)]


@dataclass(frozen=True, eq=False)
class CifarExperiment(Experiment):
    """An experiment on CIFAR-10 or CIFAR-100 with synthetic or human label noise."""

    images: str
    noise: tuple[str, ...]
    published: Mapping[str, Mapping[str, float]]
    """Noise → method or other name → accuracy in per cent."""
    sources: Mapping[str, str]
    """Noise → origin of its published accuracies."""
    templates: Mapping[tuple[str, str], CifarRun]
    """One per noise and method, with seed 0."""
    smoke: bool = False
    closed: bool = False

    OPTIONS: ClassVar[tuple[str, ...]] = ("resources",)
    IS_SEQUENTIAL: ClassVar[bool] = True

    def runs(self) -> list[CifarRun]:
        """Return all runs, the most important first: every noise and method once, then more seeds."""
        return [
            replace(template, seed=seed, recipe=replace(template.recipe, random_state=seed))
            for seed, noise, method in product(self.seeds, self.noise, self.methods)
            for template in [self.templates[noise, method]]
        ]

    def plan(self) -> dict[str, Any]:
        """Return the keys of all runs, each with its method."""
        return {"seeds": list(self.seeds), "keys": {run.key: run.method for run in self.runs()}}

    def prepare(self, options: dict[str, Any], runs: Sequence[CifarRun]) -> dict[str, Any]:
        """Check the device in ``options`` and read the images if there are ``runs``."""
        resources = options.get("resources") or SharedResources(images=self.images)
        if resources.images != self.images:
            raise InvalidInputError(
                f"`resources` must have the images of {self.name}; got images={resources.images!r}. Use "
                f"SharedResources(images={self.images!r})."
            )
        if runs:
            resources.load(test=not self.closed)
        return {"resources": resources}

    def execute(self, batches: Iterable[list[CifarRun]], folder: Path, **options: Any) -> Iterator[Outcome]:
        """Train the runs, one per batch, each from its checkpoint in ``folder`` if it has one.

        ``options`` has the key ``resources``.
        """
        resources: SharedResources = options["resources"]
        for (run,) in batches:
            stem = folder / self.name / "unfinished" / run.key.replace("/", "_").replace(":", "_")
            try:
                results = train_cifar(run, resources, stem)
            except DivergenceError as error:
                yield Outcome([run], [], str(error))
                continue
            yield Outcome([run], [make_record(run, results, resources.torch_device)])
            for stage in range(len(run.stages())):  # the record is stored by now
                checkpoint_file(stem, stage).unlink(missing_ok=True)


def parse_cifar(
    name: str,
    table: Mapping[str, Any],
    *,
    noise: Collection[str] | None,
    methods: Collection[str] | None,
    seeds: int | None,
    first_seed: int,
    changes: Sequence[str] | None,
    smoke: bool,
    closed: bool,
) -> CifarExperiment:
    """Check the content of an experiment file and select the requested part of it."""
    check_keys(table, _TOP, name)
    kinds = tuple(dict.fromkeys(table["noise"] if noise is None else noise))
    images = table.get("images", "cifar10")
    for kind in kinds:
        parse_noise(kind, images)
    known = tuple(table["methods"])
    for method in methods or ():
        check_choice(method, "methods", known)
    wanted = tuple(m for m in known if methods is None or m in methods)
    templates = {
        (kind, method): _template(name, table, kind, method, changes or (), smoke=smoke, closed=closed)
        for kind, method in product(kinds, wanted)
    }
    published = {kind: dict(found) for kind, found in table.get("published", {}).items()}
    return CifarExperiment(
        name=name,
        protocol=image_protocol(smoke=smoke, closed=closed),
        title=table["title"] + (" (smoke test)" if smoke else "") + (", test set closed" if closed else ""),
        images=images,
        noise=kinds,
        methods=wanted,
        seeds=check_seeds(table["seeds"] if seeds is None else seeds, first_seed),
        sources={kind: found.pop("source") for kind, found in published.items()},
        published=published,
        templates=templates,
        smoke=smoke,
        closed=closed,
    )


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
    """Return the run of a noise and a method with seed 0."""
    entry, where = table["methods"][method], f"{name}: methods.{method}"
    check_keys(entry, _METHOD, where)
    kind = parse_noise(noise).kind
    holdout = entry.get("holdout", table.get("holdout_at", {}).get(kind, table["holdout"]))
    recipe = DeepRecipe()
    for layer in (table.get("recipe", {}), entry.get("recipe", {}), entry.get("at", {}).get(kind, {})):
        recipe = _filled(recipe, layer, where)
    warm = entry.get("warm_start")
    run = CifarRun(
        experiment=name,
        noise=noise,
        method=method,
        seed=0,
        loss=check_choice(entry.get("loss"), f"{where}: loss", tuple(LOSSES)),
        warm_start=None if warm is None else WarmStart(**warm),
        architecture=check_choice(
            entry.get("architecture", table["architecture"]), f"{name}: architecture", tuple(NETWORKS)
        ),
        width=SMOKE_WIDTH if smoke else check_count(entry.get("width", WIDTH), f"{where}: width"),
        rows=SMOKE_ROWS if smoke else None,
        holdout=SMOKE_ROWS // 10 if smoke else check_count(holdout, f"{where}: holdout"),
        held_out_images=entry.get("held_out_images", False),
        recipe=_for_smoke(recipe) if smoke else recipe,
        smoke=smoke,
        closed=closed,
        images=table.get("images", "cifar10"),
    )
    for change in changes:
        run = changed(run, change)
    if run.warm_start is not None:
        check_in_range(run.warm_start.share, "warm_start.share", 0.0, 1.0, low_open=True, high_open=True)
        check_count(run.recipe.epochs, f"epochs of {method!r}, which trains in two parts,", minimum=2)
    check_choice(run.architecture, "architecture", tuple(NETWORKS))
    for setting in ("width", "holdout", "rows", "members"):
        if getattr(run, setting) is not None:
            check_count(getattr(run, setting), setting)
    return run


def _for_smoke(recipe: DeepRecipe) -> DeepRecipe:
    """Shorten a recipe; with a sieve the four epochs include peer loss, the teacher and refreshed targets."""
    sieve = None if recipe.sieve is None else replace(recipe.sieve, start=0.5, refresh_every=1)
    return replace(recipe, epochs=SMOKE_EPOCHS, sieve=sieve)


def _filled(settings: Any, table: Mapping[str, Any], where: str) -> Any:
    """Return a settings object with the entries of ``table``, including those of inner objects."""
    check_keys(table, [f.name for f in fields(settings)], where)
    values = dict(table)
    for name, value in table.items():
        if value is False and name in _MAY_BE_ABSENT:
            values[name] = None
        elif isinstance(value, dict):
            values[name] = _filled(getattr(settings, name) or _OBJECTS[name](), value, f"{where}.{name}")
    return replace(settings, **values)


@renamed_fields(epochs_done="finished_cost", epochs_left="remaining_cost")
@dataclass
class CifarSummary(RunSummary):
    """What :func:`run_cifar` returns."""

    in_folder: list[Record] = field(default_factory=list)
    """All records of the experiment in the folder."""


def run_cifar(
    experiment: CifarExperiment,
    folder: str | Path,
    *,
    on_run: Callable[[Any, CifarSummary], None] | None = None,
    on_result: Callable[[Record], None] | None = None,
    workshop: SharedResources | None = None,
    **options: Any,
) -> CifarSummary:
    """Run an experiment into a folder. Deprecated; use :func:`~peerloss.experiments.run_experiment`.

    ``options`` are those of :class:`SharedResources`. They cannot be combined with ``workshop``.
    """
    warn_renamed("run_cifar", "peerloss.experiments.run_experiment")
    if workshop is not None and options:
        raise InvalidInputError(
            f"`{next(iter(options))}` cannot be combined with `workshop`, which has its own. Pass only one."
        )

    def report(summary: RunSummary) -> None:
        if on_run is not None and summary.current is not None:
            on_run(summary.current, CifarSummary(**vars(summary)))

    resources = SharedResources(**options) if workshop is None else workshop
    with Store(folder) as store:
        done = run_experiment(experiment, store, resources=resources, on_progress=report, on_record=on_result)
        return CifarSummary(**vars(done), in_folder=store.records_of(experiment))
