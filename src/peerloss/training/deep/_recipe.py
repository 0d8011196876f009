"""The settings of the deep loop and of its sample sieve."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch

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

if TYPE_CHECKING:
    from torch import nn

#: AdamW changes every weight by about the learning rate in each step, whatever the gradient. The default rate
#: of SGD is above this limit, so that it is never used for AdamW by mistake.
LARGEST_ADAMW_RATE = 0.1
#: Smallest relative number of rows per class that ``"auto"`` trusts with their own label, see ``Growth.own``.
LEAST_OWN_SHARE = 0.3


@dataclass(frozen=True)
class Growth:
    """Settings of a sieve with a growing set of trusted rows.

    Each step trains on two batches whose losses are added. The first consists of trusted rows. Its images are
    augmented as before the sieve and mixed in pairs. The second consists of any rows, augmented by
    ``Sieve.augment``. A row is trusted with its own label if this label is among the most probable ones of
    its class, and with the predicted class if the prediction is among the surest of its class. The target of
    the other rows is the posterior of ``Sieve.trust``.

    All shares of time refer to one round of the sieve. Numbers of rows are relative to the expected size of a
    class, which is known from ``Sieve.balance`` or estimated from the predictions.
    """

    own: tuple[float, float | str] = (0.5, 0.3)
    """Relative number of rows per class that are trusted with their own label, at the start and from the
    middle of a round on. In between it changes linearly. ``"auto"`` as the second number uses
    max(0.3, 1 − 2ε), with ε as in ``final_trust``: the fewer labels are wrong, the more can be trusted."""
    guessed: tuple[float, float] = (0.5, 0.7)
    """Relative number of the surest rows per predicted class, at the start and at the end of the growth.
    Those whose own label is not trusted are trusted with the predicted class, provided that the predictions
    for the image and its mirror image agree."""
    period: tuple[float, float] = (0.05, 0.6)
    """Shares of a round at which the growth starts and ends. The refreshes start with it. Until then the
    weight of rows that are not trusted rises from 0."""
    fade: tuple[float, float] = (0.55, 0.8)
    """Shares of a round between which ``Sieve.trust`` falls to ``final_trust``. Early, labels correct the
    mistakes of the model. Late, the model has memorised them, and they would count twice."""
    final_trust: float | str = 0.0
    """Share of ``Sieve.trust`` that is left after ``fade``. ``"auto"`` uses max(0, 1 − 2ε), where ε is the
    mean probability of a wrong label under the teacher at the start of the round: the fewer labels are
    wrong, the fewer wrong labels can be memorised, and the more correct labels of difficult rows would be
    lost."""
    mix: int = 4
    """Images of the first batch are mixed with a share drawn from Beta(mix, mix); 1 means a uniform share."""
    cut: float = 0.0
    """Share of the images of the first batch into which a rectangle of another image is pasted, instead of
    mixing both images (CutMix). It needs images."""
    learning_rate: float | None = None
    """The highest learning rate in the rounds; ``None`` for that of the recipe."""
    warm_up: float | None = None
    """Share of a round in which the learning rate rises; ``None`` for that of the recipe."""
    average: float | None = None
    """Decay of the moving average of the weights in the rounds; ``None`` for that of the recipe."""

    def __post_init__(self) -> None:
        make_plain(self)
        for name in ("own", "guessed", "period", "fade"):
            _check_pair(self._numbers(name), name, increasing=name in ("period", "fade"))
        if isinstance(self.final_trust, str):
            check_choice(self.final_trust, "final_trust", ("auto",))
        else:
            check_in_range(self.final_trust, "final_trust", 0.0, 1.0)
        if min(self._numbers("own")) == 0.0:
            raise InvalidInputError(
                f"`own` must be above 0, because some rows must be trusted; got {self.own}. Use (0.5, 0.3)."
            )
        check_count(self.mix, "mix")
        check_in_range(self.cut, "cut", 0.0, 1.0)
        if self.learning_rate is not None:
            check_in_range(self.learning_rate, "learning_rate", 0.0, math.inf, low_open=True)
        if self.warm_up is not None:
            check_in_range(self.warm_up, "warm_up", 0.0, 1.0, high_open=True)
        if self.average is not None:
            check_in_range(self.average, "average", 0.0, 1.0, high_open=True)

    def _numbers(self, name: str) -> Any:
        """Return a pair of numbers; ``"auto"`` in ``own`` is replaced by its smallest value."""
        pair: Any = getattr(self, name)
        is_auto = name == "own" and isinstance(pair, tuple) and len(pair) == 2 and pair[1] == "auto"
        return (pair[0], LEAST_OWN_SHARE) if is_auto else pair

    def own_share(self, done: float, wrong_share: float = 0.0) -> float:
        """Return the relative number of own labels after a share ``done`` of a round.

        ``wrong_share`` is ε of ``"auto"``.
        """
        first, end = self._numbers("own")
        if self.own[1] == "auto":
            end = max(end, 1.0 - 2.0 * wrong_share)
        return _between((first, end), min(2.0 * done, 1.0))

    def guessed_share(self, done: float) -> float:
        """Return the relative number of guessed labels after a share ``done`` of a round."""
        first, end = self.period
        return 0.0 if done < first else _between(self.guessed, min((done - first) / (end - first), 1.0))

    def trust_left(self, done: float, wrong_share: float) -> float:
        """Return the share of ``Sieve.trust`` that is left after a share ``done`` of a round.

        ``wrong_share`` is ε of ``final_trust="auto"``.
        """
        final = max(0.0, 1.0 - 2.0 * wrong_share) if self.final_trust == "auto" else float(self.final_trust)
        first, end = self.fade
        return _between((1.0, final), min(max((done - first) / (end - first), 0.0), 1.0))

    def weight(self, done: float) -> float:
        """Return the weight of rows that are not trusted after a share ``done`` of a round."""
        return min(done / self.period[0], 1.0) if self.period[0] else 1.0


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
    label decides whether it is kept. With ``growth`` the refreshes start with the growth."""
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
    growth: Growth | None = None
    """Settings of a growing set of trusted rows, which replaces the decision by ``threshold``. It needs about
    twice the time per epoch, because each step has two batches."""

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
        if not isinstance(self.balance, bool) and not as_prior(self.balance, "balance").all():
            raise InvalidInputError(
                f"`balance` must have a share above 0 for each class; got {self.balance}. Leave classes out "
                "of the model, or use balance=False."
            )
        for name in () if self.refresh_every else ("memory", "trust"):
            if getattr(self, name) != getattr(Sieve, name):
                raise InvalidInputError(
                    f"`{name}` has no effect with refresh_every=0, because fixed targets are not averaged; "
                    f"got {getattr(self, name)!r}. Leave it out, or use refresh_every=2."
                )
        if self.growth is not None:
            self._check_growth()

    def _check_growth(self) -> None:
        if not isinstance(self.growth, Growth):
            raise InvalidInputError(
                f"`growth` must be a Growth, such as Growth(), or None; got {self.growth!r}."
            )
        if not self.refresh_every:
            raise InvalidInputError(
                "`growth` needs refreshed targets; got refresh_every=0. Use refresh_every=4."
            )
        for name in ("threshold", "mixup"):
            if getattr(self, name) != getattr(Sieve, name):
                raise InvalidInputError(
                    f"`{name}` has no effect with `growth`, which selects rows by rank and always mixes "
                    f"trusted rows; got {getattr(self, name)!r}. Leave it out."
                )

    def decisions(self, epochs: int) -> list[int]:
        """Return the epochs at which a round starts and a new teacher decides."""
        first = round(self.start * epochs)
        return [first + round(i * (epochs - first) / self.rounds) for i in range(self.rounds)]

    def refreshes(self, epochs: int) -> list[int]:
        """Return the epochs at which the targets are refreshed."""
        if not self.refresh_every:
            return []
        wait = 0.25 if self.growth is None else self.growth.period[0]
        return [
            epoch
            for first, end in pairwise([*self.decisions(epochs), epochs])
            for epoch in range(first + self.refresh_every, end, self.refresh_every)
            if epoch - first >= wait * (end - first)
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
    """The highest learning rate. The default suits SGD. AdamW needs far less: about 1e-3 for random weights,
    2e-5 to 5e-5 for a pretrained transformer."""
    schedule: str = "one_cycle"
    """After the warm-up the learning rate falls to 0 linearly (``"one_cycle"``) or along a ``"cosine"``."""
    warm_up: float = 0.2
    """Share of the steps in which the learning rate rises."""
    momentum: float = 0.9
    """Nesterov momentum of SGD, and β₁ of AdamW."""
    weight_decay: float = 5e-4
    """Weight decay. SGD applies it to all trained weights, AdamW only to those with two or more dimensions,
    so not to biases and normalisation layers. 0.01 is usual for AdamW."""
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
    optimizer: str = "sgd"
    """``"sgd"`` with Nesterov momentum, or ``"adamw"``, which suits transformers."""

    def __post_init__(self) -> None:
        make_plain(self)
        check_count(self.epochs, "epochs")
        check_count(self.batch_size, "batch_size")
        check_count(self.random_state, "random_state", minimum=0)
        check_in_range(self.learning_rate, "learning_rate", 0.0, math.inf, low_open=True)
        check_choice(self.schedule, "schedule", ("one_cycle", "cosine"))
        check_choice(self.optimizer, "optimizer", ("sgd", "adamw"))
        if self.optimizer == "adamw" and self.learning_rate > LARGEST_ADAMW_RATE:
            raise InvalidInputError(
                f"`learning_rate` must be at most {LARGEST_ADAMW_RATE} with optimizer='adamw'; got "
                f"{self.learning_rate}. Use about 1e-3 for random weights, and 2e-5 for a pretrained model."
            )
        check_in_range(self.warm_up, "warm_up", 0.0, 1.0, high_open=True)
        check_in_range(self.momentum, "momentum", 0.0, 1.0, low_open=True, high_open=True)
        check_in_range(self.weight_decay, "weight_decay", 0.0, math.inf)
        if self.clip_norm is not None:
            check_in_range(self.clip_norm, "clip_norm", 0.0, math.inf, low_open=True)
        if self.average is not None:
            check_in_range(self.average, "average", 0.0, 1.0, high_open=True)
        if self.patience is not None:
            check_count(self.patience, "patience")
        check_finite(self.scoring_alpha, "scoring_alpha")
        for name in ("divide_rate", "half_precision", "compile"):
            check_flag(getattr(self, name), name)
        _check_knots(self.alpha)
        check_augment(self.augment)
        if not (self.sieve is None or isinstance(self.sieve, Sieve)):
            raise InvalidInputError(f"`sieve` must be a Sieve, such as Sieve(), or None; got {self.sieve!r}.")
        growth = None if self.sieve is None else self.sieve.growth
        if self.average is None and growth is not None and growth.average is not None:
            raise InvalidInputError(
                f"`growth.average` needs averaged weights; got {growth.average} with average=None. Set "
                "`average`."
            )

    def rate(self, done: float, alpha: float) -> float:
        """Return the learning rate after a share ``done`` of the steps; ``alpha`` is the current α."""
        if done < self.warm_up:
            share = done / self.warm_up
        else:
            left = (1.0 - done) / (1.0 - self.warm_up)
            share = left if self.schedule == "one_cycle" else 0.5 * (1.0 - math.cos(math.pi * left))
        divisor = 1.0 + max(alpha, 0.0) if self.divide_rate else 1.0
        return self.learning_rate * share / divisor

    def for_rounds(self) -> DeepRecipe:
        """Return the recipe of the sieve's rounds, with the learning rate and the averaging of its growth."""
        growth = None if self.sieve is None else self.sieve.growth
        own = {name: getattr(growth, name, None) for name in ("learning_rate", "warm_up", "average")}
        return replace(self, **{name: value for name, value in own.items() if value is not None})


def make_optimizer(model: nn.Module, recipe: DeepRecipe, *, fused: bool) -> torch.optim.Optimizer:
    """Return SGD or AdamW with the settings of the recipe."""
    rate, decay, momentum = recipe.learning_rate, recipe.weight_decay, recipe.momentum
    weights = list(model.parameters())
    if recipe.optimizer == "sgd":
        return torch.optim.SGD(
            weights, lr=rate, momentum=momentum, nesterov=True, weight_decay=decay, fused=fused
        )
    # Biases and the weights of normalisation layers have one dimension; they are customarily not decayed.
    groups = [
        {"params": [w for w in weights if w.ndim >= 2], "weight_decay": decay},
        {"params": [w for w in weights if w.ndim < 2], "weight_decay": 0.0},
    ]
    filled = [group for group in groups if group["params"]]
    return torch.optim.AdamW(filled, lr=rate, betas=(momentum, 0.999), fused=fused)


def _between(ends: tuple[float, float], share: float) -> float:
    return ends[0] + (ends[1] - ends[0]) * share


def _check_pair(pair: object, name: str, *, increasing: bool) -> None:
    if not (isinstance(pair, tuple) and len(pair) == 2):
        raise InvalidInputError(f"`{name}` must be two numbers, such as (0.5, 0.7); got {pair!r}.")
    first, last = (check_in_range(value, name, 0.0, 1.0) for value in pair)
    if increasing and first >= last:
        raise InvalidInputError(f"`{name}` must be two increasing shares of a round; got {pair!r}.")


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
