"""The settings of the deep loop and of its sample sieve."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from peerloss._deprecation import renamed_fields, warn_renamed
from peerloss._validation import (
    as_prior,
    check_choice,
    check_count,
    check_finite,
    check_flag,
    check_in_range,
    make_plain,
)
from peerloss.exceptions import InvalidInputError
from peerloss.training.deep._augment import STRONG_AUGMENT, Augment, check_augment


@renamed_fields(renew="refresh_every")
@dataclass(frozen=True)
class Sieve:
    """Settings of the sample sieve, which keeps or replaces labels after a first phase with the loss alone.

    At the start of each round the model (with averaged weights) predicts all training rows. This model is the
    teacher. Labels that fit its predictions are kept, and the other rows are trained on its predictions.
    """

    start: float = 0.4
    """Share of the epochs that train with the loss alone, before the first round."""
    rounds: int = 1
    """Number of rounds, of equal length. Each starts with a new teacher and a new learning rate schedule."""
    threshold: float = 0.0
    """How strongly the teacher may disagree with a label that is kept. This is measured by the expected peer
    loss of the label if targets are fixed, and by minus its log-odds if they are refreshed. A higher value
    keeps more labels. With a negative value, a label is kept only if the teacher supports it."""
    mixup: bool = False
    """Whether images and targets are mixed in pairs."""
    augment: Augment = STRONG_AUGMENT
    """Augmentation during the rounds. A share of the images should stay plain, because the model predicts
    plain images when the targets are computed."""
    refresh_every: int = 2
    """Number of epochs between two refreshes of the targets. At a refresh the model predicts all rows, and
    the targets follow the moving average of the predictions, including those of the teacher. A label is kept
    if this average, combined with ``trust`` in the label, gives it a probability above one half (at
    ``threshold`` 0). The first quarter of a round has no refreshes, because the model must first reach the
    accuracy of the teacher. With 0 the targets stay fixed within a round, and the expected peer loss of a
    label decides whether it is kept."""
    memory: float = 0.8
    """Weight of the earlier predictions in the moving average. It applies to refreshed targets only."""
    trust: float = 0.5
    """Power of T[k, ỹ], the probability of the label if class k is true, by which the average is multiplied
    before the decision. At 0 the predictions decide alone, and correct labels of hard images are lost. At 1
    the label counts as one more observation, although the model may have learned it already. It applies to
    refreshed targets only."""
    balance: bool | tuple[float, ...] = False
    """Known shares of the classes, or ``True`` if all classes have the same size. The predictions are
    reweighted until the classes have these shares, because a model trained on its own predictions drifts to
    the classes that are easy for it. The shares of the noisy labels are not a substitute: asymmetric noise
    changes them."""

    def __post_init__(self) -> None:
        make_plain(self)
        check_in_range(self.start, "start", 0.0, 1.0)
        check_count(self.rounds, "rounds")
        check_count(self.refresh_every, "refresh_every", minimum=0)
        check_in_range(self.memory, "memory", 0.0, 1.0, high_open=True)
        check_in_range(self.trust, "trust", 0.0, math.inf, high_open=True)
        check_flag(self.mixup, "mixup")
        check_finite(self.threshold, "threshold")
        check_augment(self.augment)
        if not isinstance(self.balance, bool):
            as_prior(self.balance, "balance")
        for name in () if self.refresh_every else ("memory", "trust"):
            if getattr(self, name) != getattr(Sieve, name):
                raise InvalidInputError(
                    f"`{name}` has no effect with refresh_every=0, because fixed targets are not averaged; "
                    f"got {getattr(self, name)!r}. Leave it out, or use refresh_every=2."
                )

    def decisions(self, epochs: int) -> list[int]:
        """Return the epochs at which a round starts and a new teacher decides."""
        first = round(self.start * epochs)
        return [first + round(i * (epochs - first) / self.rounds) for i in range(self.rounds)]

    def refreshes(self, epochs: int) -> list[int]:
        """Return the epochs at which the targets are refreshed."""
        if not self.refresh_every:
            return []
        return [
            epoch
            for first, end in pairwise([*self.decisions(epochs), epochs])
            for epoch in range(first + self.refresh_every, end, self.refresh_every)
            if epoch - first >= (end - first) / 4
        ]

    def renewals(self, epochs: int) -> list[int]:
        """Return :meth:`refreshes` of ``epochs``, under its deprecated name."""
        warn_renamed("Sieve.renewals", "Sieve.refreshes")
        return self.refreshes(epochs)


@renamed_fields(seed="random_state")
@dataclass(frozen=True)
class DeepRecipe:
    """The settings of :func:`train_deep`; the defaults suit a ResNet on 32 × 32 images."""

    epochs: int = 30
    """Number of passes over the training rows."""
    batch_size: int = 512
    """Number of rows per step."""
    learning_rate: float = 0.2
    """The highest learning rate of SGD with Nesterov momentum."""
    schedule: str = "one_cycle"
    """After the warm-up the learning rate falls to 0 linearly (``"one_cycle"``) or along a ``"cosine"``."""
    warm_up: float = 0.2
    """Share of the steps in which the learning rate rises."""
    momentum: float = 0.9
    """Nesterov momentum of SGD."""
    weight_decay: float = 5e-4
    """Weight decay of SGD. It applies to all trained weights."""
    clip_norm: float | None = 5.0
    """Largest norm of the gradient; with ``None`` gradients are not clipped."""
    alpha: tuple[tuple[float, float], ...] = ()
    """Schedule of the α of the loss as knots (share of the steps, α). For example ((0.35, 0.0), (1.0, 2.0))
    is cross entropy for 35 % of the steps, then a linear rise to 2. Without knots α does not change."""
    divide_rate: bool = True
    """Whether the learning rate is divided by 1 + α, because the gradient grows with it."""
    average: float | None = 0.99
    """Decay of the moving average of the weights; ``None`` for no average. Averaging over more than a hundred
    steps does not help, because the learning rate falls to 0 and the last steps gain most."""
    augment: Augment = field(default_factory=Augment)
    """Augmentation of images (uint8 inputs); other inputs are not changed."""
    sieve: Sieve | None = None
    """Settings of the rounds in which the model replaces labels that do not fit its predictions; ``None``
    trains with the loss alone."""
    patience: int | None = None
    """Number of epochs without a better noisy validation score after which training stops. With a sieve they
    are counted from its first round."""
    scoring_alpha: float = 1.0
    """The α of the noisy validation score. With α* it ranks models by accuracy, and with 1 by balanced
    accuracy (if there are two classes)."""
    half_precision: bool = True
    """Whether to compute in bfloat16 on a GPU; weights, sums and losses stay in float32."""
    compile: bool = False
    """Whether to use ``torch.compile``. Compiling takes about a minute, and steps are faster afterwards."""
    random_state: int = 0
    """Seed of the order of the rows and of the augmentation. It has no effect on the initial weights, which
    are those of the model that is passed."""

    def __post_init__(self) -> None:
        make_plain(self)
        check_count(self.epochs, "epochs")
        check_count(self.batch_size, "batch_size")
        check_count(self.random_state, "random_state", minimum=0)
        check_in_range(self.learning_rate, "learning_rate", 0.0, math.inf, low_open=True)
        check_choice(self.schedule, "schedule", ("one_cycle", "cosine"))
        check_in_range(self.warm_up, "warm_up", 0.0, 1.0, high_open=True)
        check_in_range(self.momentum, "momentum", 0.0, 1.0, low_open=True, high_open=True)
        check_in_range(self.weight_decay, "weight_decay", 0.0, math.inf)
        if self.clip_norm is not None:
            check_in_range(self.clip_norm, "clip_norm", 0.0, math.inf, low_open=True)
        if self.average is not None:
            check_in_range(self.average, "average", 0.0, 1.0, high_open=True)
        if self.patience is not None:
            check_count(self.patience, "patience")
        for name in ("divide_rate", "half_precision", "compile"):
            check_flag(getattr(self, name), name)
        _check_knots(self.alpha)
        check_augment(self.augment)
        if not (self.sieve is None or isinstance(self.sieve, Sieve)):
            raise InvalidInputError(f"`sieve` must be a Sieve, such as Sieve(), or None; got {self.sieve!r}.")

    def rate(self, done: float, alpha: float) -> float:
        """Return the learning rate after a share ``done`` of the steps; ``alpha`` is the current α."""
        if done < self.warm_up:
            share = done / self.warm_up
        else:
            left = (1.0 - done) / (1.0 - self.warm_up)
            share = left if self.schedule == "one_cycle" else 0.5 * (1.0 - math.cos(math.pi * left))
        divisor = 1.0 + max(alpha, 0.0) if self.divide_rate else 1.0
        return self.learning_rate * share / divisor


def _check_knots(alpha: object) -> None:
    knots: list[Any] = list(alpha) if isinstance(alpha, tuple | list) else [alpha]
    if not all(isinstance(knot, tuple | list) and len(knot) == 2 for knot in knots):
        raise InvalidInputError(
            f"`alpha` must be pairs (share of the steps, α), such as ((0.35, 0.0), (1.0, 2.0)); got "
            f"{alpha!r}. For a constant α set it in the loss."
        )
    shares = [check_in_range(share, "alpha: share of the steps", 0.0, 1.0) for share, _ in knots]
    if any(later <= earlier for earlier, later in pairwise(shares)):
        raise InvalidInputError(f"`alpha` must have increasing shares of the steps; got {shares}.")
    for _, value in knots:
        check_finite(value, "alpha")
