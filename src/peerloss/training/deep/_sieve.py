"""The settings of the sample sieve: which labels are kept, and what replaces the others."""

from __future__ import annotations

import math
from dataclasses import dataclass

from peerloss._deprecation import renamed_fields, warn_renamed
from peerloss._validation import as_prior, check_count, check_finite, check_flag, check_in_range, make_plain
from peerloss.exceptions import InvalidInputError
from peerloss.training.deep._augment import STRONG_AUGMENT, Augment, check_augment


@renamed_fields(renew="refresh_every")
@dataclass(frozen=True)
class Sieve:
    """How labels are kept and replaced, after a first phase of training with the loss alone.

    At the start of each round the model (with averaged weights) predicts all training rows. This model is the
    teacher. Labels that fit its predictions are kept, and the other rows are trained on its predictions. With
    ``refresh_every > 0`` the targets follow the predictions of the model during the round; with 0 they stay
    fixed until the next round.
    """

    start: float = 0.4
    """Share of the epochs that train with the loss alone, before the first round."""
    rounds: int = 1
    """Number of rounds, of equal length. Each starts with a new teacher and a new learning rate schedule."""
    threshold: float = 0.0
    """How strongly the teacher may disagree with a label that is kept: its expected peer loss if targets are
    fixed, minus its log-odds if they are refreshed. A higher value keeps more labels; with a negative value a
    label needs support from the teacher."""
    mixup: bool = False
    """Whether images and targets are mixed in pairs."""
    augment: Augment = STRONG_AUGMENT
    """Augmentation during the rounds. A share of the images should stay plain, because the model predicts
    plain images when the targets are computed."""
    refresh_every: int = 2
    """Number of epochs between two refreshes of the targets. At a refresh the model predicts all rows, and
    the targets follow the moving average of the predictions, including those of the teacher. A label is kept
    if this average, combined with ``trust`` in the label, gives it a probability above one half (at
    ``threshold`` 0). There is no refresh in the first quarter of a round, because the model must first reach
    the accuracy of the teacher. 0 keeps the targets fixed within a round, and a label is kept by its expected
    peer loss."""
    memory: float = 0.8
    """Weight of the earlier predictions in the moving average. Only for refreshed targets."""
    trust: float = 0.5
    """Power of T[k, ỹ], the probability of the label if class k is true, by which the average is multiplied
    before the decision. At 0 the predictions decide alone, and correct labels of hard images are lost. At 1
    the label counts as one more observation, although the model may have learned it already. Only for
    refreshed targets."""
    balance: bool | tuple[float, ...] = False
    """Known shares of the classes, or ``True`` if all classes have the same size: predictions are reweighted
    until the classes have these shares. A model trained on its own predictions drifts to the classes that are
    easy for it. The shares of the noisy labels are not a substitute, because asymmetric noise changes
    them."""

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
        for name in ("memory", "trust"):
            if self.refresh_every == 0 and getattr(self, name) != getattr(Sieve, name):
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
        decisions = self.decisions(epochs)
        rounds = zip(decisions, [*decisions[1:], epochs], strict=True)
        return [
            epoch
            for first, end in rounds
            for epoch in range(first + self.refresh_every, end, self.refresh_every)
            if epoch - first >= (end - first) / 4
        ]

    def renewals(self, epochs: int) -> list[int]:
        """Return :meth:`refreshes` of ``epochs``, under its deprecated name."""
        warn_renamed("Sieve.renewals", "Sieve.refreshes")
        return self.refreshes(epochs)


def check_class_shares(sieve: Sieve, n_classes: int) -> None:
    """Refuse ``balance`` for another number of classes before training starts, not hours later."""
    if not isinstance(sieve.balance, bool):
        as_prior(sieve.balance, "balance", n_classes=n_classes)
