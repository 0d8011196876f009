"""A run of a table experiment, and the recipe that determines its result."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

from peerloss.experiments._experiment import Run
from peerloss.experiments._record import FORMAT, IDENTITY, run_key

Settings = dict[str, Any]


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
class TableRun(Run):
    """One method on one table with noisy labels, with one seed."""

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
        """Unique name: the same run with the same recipe has the same key everywhere."""
        return run_key(self.identity(), self.recipe.digest)

    @property
    def size(self) -> int:
        """Number of trials."""
        return len(self.recipe.trials)

    def identity(self) -> dict[str, Any]:
        """Return the fields that identify the run; its record begins with them."""
        return {name: getattr(self, name) for name in IDENTITY}
