"""Which values the settings of a spec may have; whatever else comes is refused before anything is run."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from peerloss._validation import MAX_COUNT, check_count
from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Most seeds of a spec, and the largest seed that NumPy and scikit-learn take.
MAX_SEEDS, MAX_SEED = 10_000, 2**32 - 1
#: Most cells of an experiment and most points of a method's grid.
MAX_CELLS, MAX_GRID = 1_000_000, 100_000
#: Deepest nesting of a spec.
MAX_DEPTH = 10


class Numbers(NamedTuple):
    """Numbers from ``low`` (which itself may be excluded) to ``high``, or one of some names."""

    low: float
    high: float
    whole: bool = False
    low_open: bool = False
    names: tuple[str, ...] = ()

    def hold(self, value: Any) -> bool:
        """Whether a value is one of them."""
        if isinstance(value, str):
            return value in self.names
        if isinstance(value, bool) or not isinstance(value, int if self.whole else int | float):
            return False
        return (value > self.low if self.low_open else value >= self.low) and value <= self.high

    def __str__(self) -> str:
        """Return them in words."""
        kind = "an integer" if self.whole else "a number"
        low = f"above {self.low:g}, at most" if self.low_open else f"from {self.low:g} to"
        return f"{kind} {low} {self.high:g}" + "".join(f", or {name!r}" for name in self.names)


#: The settings that are numbers. A setting of a new method that is not here may be any finite number or name.
NUMBERS = {
    "width": Numbers(1, 4096, whole=True),
    "hidden_layers": Numbers(1, 64, whole=True),
    "learning_rate": Numbers(0, 1e3, low_open=True),
    "weight_decay": Numbers(0, 1e6),
    "batch_size": Numbers(1, 10**6, whole=True),
    "steps": Numbers(1, 10**7, whole=True),
    "alpha": Numbers(-1e6, 1e6, names=("auto",)),
    "warm_start": Numbers(0, 10**7, whole=True),
    "class_weight": Numbers(0, 1e6, low_open=True),
    "C": Numbers(0, 1e12, low_open=True),
    "margin": Numbers(0, 1e6),
    "n_epochs": Numbers(1, 10**6, whole=True),
    "cv": Numbers(2, 1000, whole=True),
    "leaf": Numbers(0, 0.5, low_open=True),
    "max_features": Numbers(0, 1, low_open=True),
    "leaves": Numbers(2, 10**6, whole=True),
    "rounds": Numbers(1, 10**6, whole=True),
    "rate": Numbers(0, 1e3, low_open=True),
}


def check_setting(name: str, value: Any, where: str) -> None:
    """Refuse a setting, or a list of them to be searched, whose values make no sense."""
    values = value if isinstance(value, list) else [value]
    if not values or not all(isinstance(v, int | float | str) for v in values):
        raise InvalidInputError(
            f"{where}: `{name}` must be a number, a name or a list of them; got {value!r}."
        )
    allowed = NUMBERS.get(name)
    for single in values:
        if allowed is not None and not allowed.hold(single):
            raise InvalidInputError(f"{where}: `{name}` must be {allowed}; got {single!r}.")


def check_numbers(table: Mapping[str, Any], where: str) -> None:
    """Refuse a spec with numbers that are not finite or not within 64 bits, or that is nested too deeply."""
    entries: list[tuple[str, Any, int]] = [(name, value, 1) for name, value in table.items()]
    while entries:
        path, value, depth = entries.pop()
        if depth > MAX_DEPTH:
            raise InvalidInputError(
                f"{where}: `{path}` is nested too deeply; a spec has {MAX_DEPTH} levels at most."
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
    """Return ``count`` seeds from ``first`` on; ``name`` is what messages call the count."""
    number, start = check_count(count, name), check_count(first, "first_seed", minimum=0)
    if number > MAX_SEEDS:
        raise InvalidInputError(f"`{name}` must be at most {MAX_SEEDS:,}; got {number:,}.")
    if start + number - 1 > MAX_SEED:
        raise InvalidInputError(
            f"`first_seed` must be at most {MAX_SEED - number + 1:,} with {number} seeds; got {start:,}."
        )
    return tuple(range(start, start + number))
