"""The smallest unit of an experiment: data set, noise, prior, method, seed, and what decides its figures."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Part of every hash: raised when the meaning of a recipe or a record changes, so that old cells run again.
FORMAT = 1

Settings = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Recipe:
    """How the figures of a cell are made; cells of one method and prior share it."""

    test_size: float
    validation_size: float
    scoring_alpha: float
    """α of the peer score by which noisy validation chooses; 0 is noisy accuracy."""
    choose: str
    """``"seed"``: each seed for itself. ``"row"``: by the mean over a row's seeds, when results are read."""
    record: tuple[str, ...]
    """What is recorded of networks beside their figures."""
    record_every: int | None
    """Steps between the points of curves."""
    settings: Settings
    """What all trials have in common."""
    trials: tuple[Settings, ...]
    """What they differ in, one entry a trial; a single empty one where nothing is searched."""

    @cached_property
    def digest(self) -> str:
        """Hash of everything above."""
        text = json.dumps([FORMAT, asdict(self)], sort_keys=True, allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Cell:
    """One figure to be found; its fields are the first of its record."""

    experiment: str
    protocol: str
    data_set: str
    e_neg: float
    e_pos: float
    prior: str
    method: str
    seed: int
    recipe: Recipe = field(compare=False, repr=False)

    @cached_property
    def key(self) -> str:
        """Name of the cell, the same in every run with the same recipe."""
        return cell_key(self.identity(), self.recipe.digest)

    def identity(self) -> dict[str, Any]:
        """Return the fields that say which cell it is."""
        return {name: getattr(self, name) for name in IDENTITY}


#: Fields of a cell and of its record that say which cell it is.
IDENTITY = ("experiment", "protocol", "data_set", "e_neg", "e_pos", "prior", "method", "seed")


def cell_key(identity: Mapping[str, Any], digest: str) -> str:
    """Return the unique name of a cell: what it is, then the hash of how its figures are made."""
    return "/".join(f"{identity[name]}" for name in IDENTITY) + "@" + digest
