"""The values that an experiment file may contain; all others are rejected before anything runs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from peerloss._validation import MAX_COUNT, check_count
from peerloss.datasets.cifar10 import HUMAN_LABELS
from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

#: Largest number of seeds, and the largest seed that NumPy and scikit-learn accept.
MAX_SEEDS, MAX_SEED = 10_000, 2**32 - 1
#: Largest number of runs of an experiment and of points in a method's grid.
MAX_RUNS, MAX_GRID = 1_000_000, 100_000
#: Deepest nesting of an experiment file.
MAX_DEPTH = 10


class Numbers(NamedTuple):
    """Numbers from ``low`` (excluded if ``low_open``) to ``high``, or one of ``names``."""

    low: float
    high: float
    integer: bool = False
    low_open: bool = False
    names: tuple[str, ...] = ()

    def contains(self, value: Any) -> bool:
        """Whether a value is allowed."""
        if isinstance(value, str):
            return value in self.names
        if isinstance(value, bool) or not isinstance(value, int if self.integer else int | float):
            return False
        return (value > self.low if self.low_open else value >= self.low) and value <= self.high

    def __str__(self) -> str:
        """Describe the allowed values."""
        kind = "an integer" if self.integer else "a number"
        low = f"above {self.low:g}, at most" if self.low_open else f"from {self.low:g} to"
        return f"{kind} {low} {self.high:g}" + "".join(f", or {name!r}" for name in self.names)


#: The settings that are numbers. Settings that are not listed may be any finite number or name.
NUMBERS = {
    "width": Numbers(1, 4096, integer=True),
    "hidden_layers": Numbers(1, 64, integer=True),
    "learning_rate": Numbers(0, 1e3, low_open=True),
    "weight_decay": Numbers(0, 1e6),
    "batch_size": Numbers(1, 10**6, integer=True),
    "steps": Numbers(1, 10**7, integer=True),
    "alpha": Numbers(-1e6, 1e6, names=("auto",)),
    "warm_start": Numbers(0, 10**7, integer=True),
    "class_weight": Numbers(0, 1e6, low_open=True),
    "C": Numbers(0, 1e12, low_open=True),
    "margin": Numbers(0, 1e6),
    "n_epochs": Numbers(1, 10**6, integer=True),
    "cv": Numbers(2, 1000, integer=True),
    "leaf": Numbers(0, 0.5, low_open=True),
    "max_features": Numbers(0, 1, low_open=True),
    "leaves": Numbers(2, 10**6, integer=True),
    "rounds": Numbers(1, 10**6, integer=True),
    "rate": Numbers(0, 1e3, low_open=True),
}


def check_setting(name: str, value: Any, where: str) -> None:
    """Reject a setting, or a list of values to be searched, that is out of range."""
    values = value if isinstance(value, list) else [value]
    if not values or not all(isinstance(v, int | float | str) for v in values):
        raise InvalidInputError(
            f"{where}: `{name}` must be a number, a name or a list of them; got {value!r}."
        )
    allowed = NUMBERS.get(name)
    for single in values:
        if allowed is not None and not allowed.contains(single):
            raise InvalidInputError(f"{where}: `{name}` must be {allowed}; got {single!r}.")


def check_numbers(table: Mapping[str, Any], where: str) -> None:
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
