"""What all experiments have in common and how to load one; ``tables`` and ``cifar`` are the two families."""

from __future__ import annotations

import math
import tomllib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from peerloss._deprecation import renamed_parameters, warn_renamed
from peerloss._validation import MAX_COUNT, check_count
from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from peerloss.experiments._record import Record

#: The experiments with images. They need a folder with CIFAR-10 or CIFAR-100 and should run on a GPU.
IMAGE_EXPERIMENTS = ("cifar10", "cifar10n", "cifar100", "cifar100n")
_DEFINITIONS = "peerloss.experiments.definitions"
#: Largest number of seeds, and the largest seed that NumPy and scikit-learn accept.
MAX_SEEDS, MAX_SEED = 10_000, 2**32 - 1
#: Deepest nesting of an experiment file.
MAX_DEPTH = 10


class Run(ABC):
    """One method on one noisy data set with one seed; each family has its own subclass."""

    experiment: str
    method: str
    seed: int

    @property
    @abstractmethod
    def key(self) -> str:
        """Unique name: the same run with the same recipe has the same key everywhere."""

    @property
    @abstractmethod
    def cost(self) -> int:
        """Number of epochs or trials, from which the remaining time is estimated."""


@dataclass(frozen=True)
class Outcome:
    """The result of runs that were executed together: one record each, or one error for all."""

    runs: Sequence[Run]
    records: Sequence[Record]
    error: str | None = None


@dataclass(frozen=True, eq=False)
class Experiment(ABC):
    """The runs of a TOML file under one protocol, checked. Made by :func:`load_experiment`."""

    name: str
    protocol: str
    title: str
    methods: tuple[str, ...]
    seeds: tuple[int, ...]

    #: The options of :func:`run_experiment` that this family uses.
    OPTIONS: ClassVar[tuple[str, ...]] = ()
    #: Whether runs are executed one after another in this process.
    IS_SEQUENTIAL: ClassVar[bool] = False

    @abstractmethod
    def runs(self) -> Sequence[Any]:
        """Return all runs, in an order that depends on the family."""

    @abstractmethod
    def plan(self) -> dict[str, Any]:
        """Return the fields of the plan that identify the runs."""

    def batches(self, runs: Sequence[Any]) -> list[list[Any]]:
        """Return ``runs`` in the order of execution; those in one list are executed together."""
        return [[run] for run in runs]

    @abstractmethod
    def prepare(self, options: dict[str, Any], runs: Sequence[Any]) -> dict[str, Any]:
        """Check the ``options`` and load what the missing ``runs`` need, before anything is written."""

    @abstractmethod
    def execute(self, batches: Iterable[list[Any]], folder: Any, **options: Any) -> Iterator[Outcome]:
        """Execute each of the ``batches`` when it can start and yield its outcome as soon as it is known.

        ``folder`` is that of the store, ``options`` are from :meth:`prepare`.
        """

    def cells(self) -> Sequence[Any]:
        """Return :meth:`runs`, under its deprecated name."""
        warn_renamed("Experiment.cells", "Experiment.runs")
        return self.runs()


def list_experiments() -> list[str]:
    """Return the names of the experiments that come with the package."""
    names = (entry.name for entry in resources.files(_DEFINITIONS).iterdir())
    return sorted(name.removesuffix(".toml") for name in names if name.endswith(".toml"))


@renamed_parameters(spec="name")
def load_experiment(
    name: str | Path,
    *,
    protocol: str | None = None,
    data_sets: Collection[str] | None = None,
    methods: Collection[str] | None = None,
    seeds: int | None = None,
    first_seed: int = 0,
    noise: Collection[str] | None = None,
    changes: Sequence[str] | None = None,
    smoke: bool = False,
    closed: bool = False,
) -> Experiment:
    """Read and check an experiment, or a part of it.

    Parameters
    ----------
    name
        A name of :func:`list_experiments`, or the path of a TOML file.
    protocol
        Only for tables: ``"paper"`` (the default) or ``"fair"``.
    data_sets
        Only for tables: the data sets to run. ``None`` means all.
    methods
        The methods to run. ``None`` means all.
    seeds, first_seed
        Number of seeds and the first one. ``None`` means the number in the file.
    noise
        Only for images: the noise to run, each ``uniform:RATE``, ``asymmetric:RATE``, ``instance:RATE``,
        ``long_tail:IMBALANCE:RATE`` or a set of human labels. ``None`` means all noise in the file.
    changes
        Only for images: settings that differ from the file, as ``"name=value"`` with a Python literal:
        ``"epochs=60"``, ``"sieve.rounds=3"`` (ignored by methods without a sieve),
        ``"architecture='resnet34'"``.
    smoke
        Only for images: use a few images, four epochs and a narrow network, to check that everything works.
    closed
        Only for images: do not read the test set, for use while recipes are compared. Results are accuracies
        on held-out noisy labels, stored apart from those of the same runs without ``closed``.

    Raises
    ------
    InvalidInputError
        If the file or an option is not valid, or an option does not apply to the experiment.

    Examples
    --------
    >>> heart = load_experiment("table-a1", data_sets=["heart"], methods=["peer", "nn"])
    >>> len(heart.runs())  # 5 noise pairs, 2 priors, 2 methods, 8 seeds
    160
    >>> images = load_experiment("cifar10", methods=["ce", "peer"], seeds=1)
    >>> [(run.noise, run.method) for run in images.runs()][:2]
    [('uniform:0.2', 'ce'), ('uniform:0.2', 'peer')]
    """
    known, table = _read(name)
    has_images = str(name) in IMAGE_EXPERIMENTS
    of_tables: dict[str, Any] = {"protocol": protocol, "data_sets": data_sets}
    of_images: dict[str, Any] = {"noise": noise, "changes": changes or None, "smoke": smoke, "closed": closed}
    for option, value in (of_tables if has_images else of_images).items():
        if value is not None and value is not False:
            raise InvalidInputError(f"`{option}` does not apply to {known}; leave it out.")
    common: dict[str, Any] = {"methods": methods, "seeds": seeds, "first_seed": first_seed}
    # Each family is imported only if needed, with its dependencies.
    if has_images:
        from peerloss.experiments.cifar._cifar_experiment import parse_cifar  # noqa: PLC0415

        return parse_cifar(known, table, **common, **of_images)
    from peerloss.experiments.tables._table_experiment import parse_tables  # noqa: PLC0415

    return parse_tables(known, table, **common, **of_tables)


def _read(name: str | Path) -> tuple[str, dict[str, Any]]:
    text = str(name)
    if text in list_experiments():
        source = resources.files(_DEFINITIONS) / f"{text}.toml"
        return text, tomllib.loads(source.read_text(encoding="utf-8"))
    path = Path(name)
    if path.suffix != ".toml" or not path.is_file():
        raise InvalidInputError(
            f"`name` must be one of {', '.join(list_experiments())}, or an existing .toml file; got {text!r}."
        )
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # TOML, UTF-8, numbers of thousands of digits, nesting
        raise InvalidInputError(f"`name` {path} is not a TOML file: {error}.") from error
    _check_numbers(table, path.stem)
    return path.stem, table


def _check_numbers(table: Mapping[str, Any], where: str) -> None:
    """Reject numbers that are not finite or exceed 64 bits, and nesting that is too deep."""
    entries: list[tuple[str, Any, int]] = [(name, value, 1) for name, value in table.items()]
    while entries:
        path, value, depth = entries.pop()
        if depth > MAX_DEPTH:
            raise InvalidInputError(
                f"{where}: `{path}` is nested too deeply; at most {MAX_DEPTH} levels are allowed."
            )
        if isinstance(value, dict):
            entries += [(f"{path}.{name}", inner, depth + 1) for name, inner in value.items()]
        elif isinstance(value, list):
            entries += [(path, inner, depth + 1) for inner in value]
        elif isinstance(value, float) and not math.isfinite(value):
            raise InvalidInputError(f"{where}: `{path}` must be a finite number; got {value!r}.")
        elif isinstance(value, int) and abs(value) > MAX_COUNT:
            raise InvalidInputError(
                f"{where}: `{path}` must be a number within 64 bits; got one of {value.bit_length()} bits."
            )


def check_seeds(count: Any, first: Any, *, name: str = "seeds") -> tuple[int, ...]:
    """Return ``count`` seeds starting at ``first``; messages call the count ``name``."""
    number, start = check_count(count, name), check_count(first, "first_seed", minimum=0)
    if number > MAX_SEEDS:
        raise InvalidInputError(f"`{name}` must be at most {MAX_SEEDS:,}; got {number:,}.")
    if start + number - 1 > MAX_SEED:
        raise InvalidInputError(
            f"`first_seed` must be at most {MAX_SEED - number + 1:,} with {number} seeds; got {start:,}."
        )
    return tuple(range(start, start + number))


def check_keys(table: object, known: Iterable[str], where: str) -> None:
    """Reject anything but a table with known keys; ``where`` names it in messages."""
    if not isinstance(table, dict):
        raise InvalidInputError(f"{where} must be a table of settings; got {table!r}.")
    unknown = sorted(set(table) - set(known))
    if unknown:
        raise InvalidInputError(
            f"{where} has the unknown key `{unknown[0]}`; known are {', '.join(sorted(known))}."
        )
