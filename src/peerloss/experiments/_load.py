"""Load an experiment: read its TOML file and let its family check it."""

from __future__ import annotations

import tomllib
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from peerloss._deprecation import renamed_parameters
from peerloss.exceptions import InvalidInputError
from peerloss.experiments._experiment_checks import check_numbers

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from peerloss.experiments._experiment import Experiment

#: The experiments with images. They need a folder with CIFAR-10 and should run on a GPU.
IMAGE_EXPERIMENTS = ("cifar10", "cifar10n")
_DEFINITIONS = "peerloss.experiments.definitions"


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
        Only for images: the noise to run, any ``uniform:RATE`` or set of human labels. ``None`` means all.
    changes
        Only for images: settings that differ from the file, as ``"name=value"`` with a Python literal:
        ``"epochs=60"``, ``"sieve.rounds=3"`` (ignored by methods without a sieve),
        ``"architecture='resnet34'"``.
    smoke
        Only for images: use a few images, four epochs and a narrow network, to check that everything works.
    closed
        Only for images: do not read the test set, as it should be while recipes are chosen. Results are then
        accuracies on held-out noisy labels. The same runs without ``closed`` are other runs.

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
    of_tables: dict[str, Any] = {"protocol": protocol, "data_sets": data_sets}
    of_images: dict[str, Any] = {"noise": noise, "changes": changes, "smoke": smoke, "closed": closed}
    common: dict[str, Any] = {"methods": methods, "seeds": seeds, "first_seed": first_seed}
    # Each family is imported only if needed, with its dependencies.
    if str(name) in IMAGE_EXPERIMENTS:
        from peerloss.experiments.cifar._cifar_experiment import parse_cifar  # noqa: PLC0415

        _refuse(of_tables, known)
        return parse_cifar(known, table, **common, **of_images)
    from peerloss.experiments.tables._parse_tables import parse_tables  # noqa: PLC0415

    _refuse(of_images, known)
    return parse_tables(known, table, **common, **of_tables)


def _refuse(options: dict[str, Any], name: str) -> None:
    given = [option for option, value in options.items() if value is not None and value is not False]
    if given:
        raise InvalidInputError(f"`{given[0]}` does not apply to {name}; leave it out.")


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
    except (
        ValueError,
        RecursionError,
    ) as error:  # bad TOML or UTF-8, numbers of thousands of digits, nesting
        raise InvalidInputError(f"`name` {path} is not a TOML file: {error}.") from error
    check_numbers(table, path.stem)
    return path.stem, table
