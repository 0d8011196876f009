"""A run on images and the settings that determine its result."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from peerloss.experiments._experiment import Run
from peerloss.losses import BaseLoss, DMILoss, FDivergenceLoss, PeerLoss
from peerloss.training import DeepRecipe  # noqa: TC001 (`--set` reads annotations at run time)

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

LOSSES: dict[str, Callable[[], nn.Module]] = {
    "cross_entropy": BaseLoss,
    "peer": PeerLoss,
    "dmi": lambda: DMILoss(eps=0.0),  # log |det J| itself, as in the published results
    "total_variation": lambda: FDivergenceLoss("total_variation"),
    "jensen_shannon": lambda: FDivergenceLoss("jensen_shannon"),
}


class WarmStart(NamedTuple):
    """Training with cross entropy first, for losses that cannot start from random weights."""

    share: float
    learning_rate: float


@dataclass(frozen=True)
class CifarRun(Run):
    """One method on CIFAR-10 with noisy labels, with one seed. The fields determine its result."""

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
    """Whether it only checks that everything works; its results mean nothing."""
    closed: bool = False
    """Whether the test set is not read: recipes are compared on held-out noisy labels only."""

    @property
    def key(self) -> str:
        """Unique name: noise, method, seed and a hash of every setting."""
        settings = asdict(self)
        for mark in ("smoke", "closed"):
            if not settings[mark]:  # records made before these marks existed keep their keys
                del settings[mark]
        digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:12]
        return f"{self.experiment}/{self.noise}/{self.method}/{self.seed}/{digest}"

    @property
    def size(self) -> int:
        """Number of epochs."""
        return self.recipe.epochs

    def stages(self) -> list[tuple[str, DeepRecipe]]:
        """Return the losses and recipes to train with, in order: two with a warm start."""
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
