"""The algorithms of the sieve, with fixed, refreshed and grown targets, and the loss of soft targets."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from peerloss._validation import as_prior
from peerloss.functional import loss_matrix, peer_loss
from peerloss.training.deep._inputs import check_outputs
from peerloss.training.deep._recipe import Growth

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from peerloss.training.deep._recipe import Sieve


class Targets(NamedTuple):
    """The targets of all rows, and which labels were kept."""

    probs: Tensor
    """(n, K): class probabilities times the weight of the row."""
    kept: Tensor
    """(n,) bool."""


class SieveTargets(ABC):
    """The targets of a training run with a sieve; the only state is ``teacher_probs``.

    At the start of a round the teacher predicts probabilities p for every row, and :meth:`decide` turns p and
    the labels into targets. Each target is multiplied by its largest entry, so that uncertain rows have less
    weight. ``predict`` returns the probabilities (n, K) of all rows under the averaged model. If
    ``mirrored``, the teacher predicts the mean over each image and its mirror image. −1 in ``y`` marks a
    missing label.
    """

    trusted: Tensor | None = None
    """Rows of the first of two batches per step, set with the targets; ``None`` if a step has one batch."""

    def __init__(
        self, sieve: Sieve, y: Tensor, *, epochs: int, predict: Callable[..., Tensor], mirrored: bool
    ) -> None:
        self.sieve, self.y = sieve, y
        self.decisions, self.refreshes = sieve.decisions(epochs), sieve.refreshes(epochs)
        self._predict, self._mirrored = predict, mirrored
        self.teacher_probs: Tensor | None = None

    @property
    def has_started(self) -> bool:
        """Whether the targets have replaced the labels."""
        return self.teacher_probs is not None

    def targets_for(self, epoch: int) -> Targets | None:
        """Return the targets of an epoch; ``None`` before the first round, when the labels are the targets.

        Must be called once per epoch, before its first step.
        """
        if epoch in self.decisions:
            self.teacher_probs = self._query_teacher()
            check_outputs(self.teacher_probs, int(self.y.max()), "y", sieve=self.sieve)
        if self.teacher_probs is None:
            return None
        probs, balance = self.teacher_probs, self.sieve.balance
        if balance is not False:
            probs = balance_classes(probs, None if balance is True else balance)
        targets, kept = self.decide(probs)
        return Targets(targets * targets.amax(dim=1, keepdim=True), kept)

    def _query_teacher(self) -> Tensor:
        return self._predict(mirrored=self._mirrored)

    @abstractmethod
    def decide(self, probs: Tensor) -> Targets:
        """Return the targets of probabilities (n, K), before rows are weighted."""

    def label_likelihood(self, probs: Tensor) -> tuple[Tensor, Tensor]:
        """Return the labels as one-hot rows, and their likelihood T[k, ỹ] with T counted from ``probs``.

        Both have shape (n, K). A row without a label has zeros in the first and ones in the second.
        """
        has_label = (self.y >= 0)[:, None]
        codes = self.y.clamp(min=0)
        onehot = functional.one_hot(codes, probs.shape[1]).to(probs.dtype) * has_label
        transition = functional.normalize(probs.T @ onehot, p=1.0, dim=1)
        return onehot, torch.where(has_label, transition.T[codes], 1.0)

    def state_dict(self) -> dict[str, Any]:
        return {"teacher_probs": self.teacher_probs}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        probs = state["teacher_probs"]
        self.teacher_probs = None if probs is None else probs.to(self.y.device)


class FixedTargets(SieveTargets):
    """Compute the targets once per round, so that the model cannot reinforce its own mistakes.

    1. A label ỹ is kept if its expected peer loss at α = 1, L[n, ỹ] − Σ_k π̃_k L[n, k], is below
       ``threshold``: the teacher disagrees less with this label than with the label of a random row. For
       equal priors this is the rule of CORES² (Cheng et al., 2021), a loss below the mean over labels.
    2. A kept label counts as a noisy observation: the target is the posterior ∝ p_k·T[k, ỹ], with T counted
       from p. The target of the other rows, and of rows without a label, is p.
    """

    def decide(self, probs: Tensor) -> Targets:
        """Apply both steps to the probabilities of the teacher."""
        has_label = self.y >= 0
        labels = self.y[has_label]
        noisy_prior = torch.bincount(labels, minlength=probs.shape[1]) / len(labels)
        kept = has_label & keep_rows(probs, self.y.clamp(min=0), noisy_prior, threshold=self.sieve.threshold)
        _, likelihood = self.label_likelihood(probs)
        posterior = functional.normalize(probs * likelihood, p=1.0, dim=1)
        return Targets(torch.where(kept[:, None], posterior, probs), kept)


class RefreshedTargets(SieveTargets):
    """Update the targets during a round with the predictions of the model that is trained on them.

    1. Every ``refresh_every`` epochs, except in the first quarter of a round, the model with averaged weights
       predicts every row again, and p becomes ``memory``·p + (1 − ``memory``)·prediction.
    2. The posterior ∝ p_k·T[k, ỹ]^``trust`` combines p with the label ỹ, with T counted from p. Without a
       label it is p.
    3. A label is kept, as a one-hot target, if the posterior gives it log-odds above −``threshold`` (at 0: a
       probability above one half). The target of the other rows is the posterior.

    The model then learns from its own predictions, which can collapse. Two precautions prevent that: a share
    of the images is not augmented (``Augment.share``), so that batch statistics fit the plain images that the
    model predicts, and known shares of the classes are enforced (``Sieve.balance``).
    """

    def targets_for(self, epoch: int) -> Targets | None:
        if epoch in self.refreshes and self.teacher_probs is not None:
            self.teacher_probs = self._refresh_targets(self.teacher_probs)
        return super().targets_for(epoch)

    def _refresh_targets(self, earlier: Tensor) -> Tensor:
        """Average with new predictions, without mirror images because refreshes are frequent."""
        return torch.lerp(self._predict(), earlier, self.sieve.memory)

    def decide(self, probs: Tensor) -> Targets:
        """Apply steps 2 and 3 to the averaged probabilities."""
        onehot, likelihood = self.label_likelihood(probs)
        posterior = torch.softmax(probs.log() + torch.xlogy(self.sieve.trust, likelihood), dim=1)
        of_label = posterior.gather(1, self.y.clamp(min=0)[:, None])[:, 0]
        least = 0.5 - 0.5 * math.tanh(self.sieve.threshold / 2.0)  # its log-odds are −threshold
        kept = (self.y >= 0) & (of_label > least)
        return Targets(torch.where(kept[:, None], onehot, posterior), kept)


class GrownTargets(RefreshedTargets):
    """Train on a set of trusted rows that grows, and on soft targets of the other rows.

    1. p is the average of predictions of :class:`RefreshedTargets`, here always over images and their mirror
       images, and the posterior ∝ p_k·T[k, ỹ]^trust uses a trust that falls late in a round.
    2. Of each label, the rows with the largest p_ỹ are trusted with this label.
    3. Of each predicted class, the rows with the largest posterior are trusted with this class, if the newest
       predictions for the image and its mirror image agree (and, without trust, confirm the class).
    4. The target of the other rows is the posterior. Their weight rises until the growth starts.

    Ranks within classes are used instead of thresholds, because a model that is trained on mixed images is
    hardly ever sure, and because they keep the classes balanced. ``predict`` returns the predictions by view,
    (views, n, K).
    """

    def __init__(self, sieve: Sieve, y: Tensor, *, epochs: int, **options: Any) -> None:
        super().__init__(sieve, y, epochs=epochs, **options)
        self.growth = sieve.growth or Growth()
        self._rounds = list(pairwise([*self.decisions, epochs]))
        self.done = 0.0
        """Share of the round that is done."""
        self.latest = y.new_zeros(2, len(y))
        """Newest predicted classes of the images and of their mirror images."""
        self.wrong_share = 0.0
        """Mean probability, under the teacher of the round, that a label is wrong."""

    def targets_for(self, epoch: int) -> Targets | None:
        for first, end in self._rounds:
            if first <= epoch < end:
                self.done = (epoch - first) / (end - first)
        targets = super().targets_for(epoch)
        if targets is None or self.trusted is None:
            return None
        weights = torch.where(self.trusted, 1.0, self.growth.weight(self.done))
        return targets._replace(probs=targets.probs * weights[:, None])

    def _query_teacher(self) -> Tensor:
        views = self._predict(mirrored=self._mirrored)
        self.latest = views.argmax(dim=2)[[0, -1]]
        return views.mean(dim=0)

    def _refresh_targets(self, earlier: Tensor) -> Tensor:
        return torch.lerp(self._query_teacher(), earlier, self.sieve.memory)

    def decide(self, probs: Tensor) -> Targets:
        """Apply steps 2 to 4 to the averaged probabilities."""
        growth, (n, k) = self.growth, probs.shape
        onehot, likelihood = self.label_likelihood(probs)
        labelled = (self.y >= 0).nonzero()[:, 0]
        of_label = (probs * onehot).sum(dim=1)[labelled]
        if self.done == 0.0:
            self.wrong_share = 1.0 - float(of_label.mean())
        trust = self.sieve.trust * growth.trust_left(self.done, self.wrong_share)
        posterior = torch.softmax(probs.log() + torch.xlogy(trust, likelihood), dim=1)
        shares = self._class_shares(probs)
        counts = (growth.own_share(self.done, self.wrong_share) * len(labelled) * shares).round().clamp(min=1)
        own = torch.zeros(n, dtype=torch.bool, device=probs.device)
        own[labelled] = surest_of_classes(of_label, self.y[labelled], counts)
        best, guess = posterior.max(dim=1)
        sure = surest_of_classes(best, guess, (growth.guessed_share(self.done) * n * shares).round())
        sure &= (self.latest[0] == self.latest[1]) & ~own
        if not trust:
            sure &= guess == self.latest[0]
        self.trusted = own | sure
        targets = torch.where(sure[:, None], functional.one_hot(guess, k).to(probs.dtype), posterior)
        return Targets(torch.where(own[:, None], onehot, targets), own | (sure & (guess == self.y)))

    def _class_shares(self, probs: Tensor) -> Tensor:
        balance, k = self.sieve.balance, probs.shape[1]
        if balance is False:
            return probs.double().mean(dim=0)
        known = [1.0 / k] * k if balance is True else balance
        return torch.as_tensor(known, dtype=torch.float64, device=probs.device)

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "latest": self.latest, "wrong_share": self.wrong_share}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.latest = state["latest"].to(self.y.device)
        self.wrong_share = state["wrong_share"]


def surest_of_classes(scores: Tensor, classes: Tensor, counts: Tensor) -> Tensor:
    """Return which rows have one of the ``counts[k]`` largest scores of their class k, (n,) bool.

    Of rows with the same score the first comes first, so that the result does not depend on the device.

    Examples
    --------
    >>> surest_of_classes(torch.tensor([0.2, 0.9, 0.5]), torch.tensor([0, 0, 1]), torch.tensor([1, 3]))
    tensor([False,  True,  True])
    """
    order = scores.argsort(descending=True, stable=True)
    order = order[classes[order].argsort(stable=True)]  # by class, then by score
    sizes = torch.bincount(classes, minlength=len(counts))
    ranks = torch.arange(len(order), device=order.device) - (sizes.cumsum(dim=0) - sizes)[classes[order]]
    chosen = torch.zeros_like(classes, dtype=torch.bool)
    chosen[order] = ranks < counts[classes[order]]
    return chosen


def keep_rows(probabilities: Tensor, y: Tensor, noisy_prior: Tensor, *, threshold: float = 0.0) -> Tensor:
    """Return which labels to keep, (n,) bool: those with expected peer loss (α = 1) below ``threshold``.

    Parameters
    ----------
    probabilities
        Predictions of the teacher, (n, K).
    y
        Noisy labels (n,).
    noisy_prior
        π̃ (K,).

    Examples
    --------
    >>> teacher = torch.tensor([[0.9, 0.1], [0.9, 0.1]])
    >>> keep_rows(teacher, torch.tensor([0, 1]), torch.tensor([0.5, 0.5]))
    tensor([ True, False])
    """
    rows = peer_loss(probabilities.log(), y, alpha=1.0, noisy_prior=noisy_prior, reduction="none")
    return rows < threshold


def balance_classes(probs: Tensor, shares: Sequence[float] | None = None, *, rounds: int = 20) -> Tensor:
    """Multiply each class by one weight, so that the mean probabilities over rows are close to ``shares``.

    ``None`` means equal shares. Very confident rows hardly change; they would need more rounds.

    Examples
    --------
    >>> balance_classes(torch.tensor([[0.9, 0.1], [0.6, 0.4]])).mean(dim=0)
    tensor([0.5000, 0.5000])
    """
    k = probs.shape[1]
    known = [1.0 / k] * k if shares is None else as_prior(shares, "balance", n_classes=k)
    wanted = torch.as_tensor(known, dtype=probs.dtype, device=probs.device)
    rows = probs.clamp(min=1e-6)  # the weight of a class that is never predicted stays finite
    for _ in range(rounds):
        rows = functional.normalize(rows * (wanted / rows.mean(dim=0)), p=1.0, dim=1)
    return rows


def soft_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the mean over rows of Σ_k targets[n, k]·L[n, k] for cross entropy.

    Classes with a target of 0 do not count, even if their loss is infinite: the model may have masked them.
    """
    return (targets * loss_matrix(logits, eps=0.0).masked_fill(targets == 0, 0.0)).sum(dim=1).mean()
