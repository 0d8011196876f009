"""After the loss: believe the labels that a teacher finds informative, replace the others.

The expected peer loss of a row, L[n, ỹ_n] − Σ_k π̃_k L[n, k], says how much more the model disagrees with the
row's label than with the label of somebody else. Where it is negative the label is kept. That is the sample
sieve of CORES² (Cheng et al., 2021), whose threshold is the mean loss over the labels, and what decides where
targets stay as they are. Where they are renewed, the mean of the model's answers and the chance of the label
decide. The other rows get what the model says of the plain image; the student learns it from a changed one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional

from peerloss._validation import as_prior, check_count, check_finite, check_flag, check_in_range, make_plain
from peerloss.functional import loss_matrix, peer_loss
from peerloss.training._augment import STRONG_AUGMENT, Augment, check_augment

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class Sieve:
    """How labels are kept and replaced."""

    start: float = 0.4
    """Share of the epochs after which the teacher decides about labels; before that the loss does."""
    rounds: int = 1
    """So many times it decides, evenly over the rest; with each round the rate starts anew. In between
    targets stay as they are, so that no mistake feeds on itself, unless the student is to ``renew`` them."""
    threshold: float = 0.0
    """How much may speak against a label that is kept: its expected peer loss where targets stay as they are,
    minus its log-odds where they are renewed. Higher keeps more labels; below 0 a label needs support."""
    mixup: bool = False
    """Whether images and targets are mixed in pairs."""
    augment: Augment = STRONG_AUGMENT
    """Changes of the images that the student sees. Some should stay plain: those it is asked about are."""
    renew: int = 2
    """Every so many epochs of a round the student itself answers for all rows, and the targets follow the
    mean of its answers, the teacher's included. A label is kept if that mean, with the label's ``trust``,
    gives it more than one half (at ``threshold`` 0). The first quarter of a round is left to the teacher,
    whom the student has to catch up with. 0 leaves targets as they were decided: a label is kept by its
    expected peer loss."""
    memory: float = 0.8
    """Share of the earlier answers in that mean."""
    trust: float = 0.5
    """Power to which T[k, ỹ], the chance of the label if class k is true, multiplies that mean before it
    decides. At 0 the answers decide alone, and a right label that the student finds hard is lost; at 1 the
    label counts as one more observation, though the answers may have learned it already."""
    balance: bool | tuple[float, ...] = False
    """Shares of the classes where they are known, ``True`` where all are of one size: answers are weighted
    until the classes are that common among them. A student that teaches itself drifts to the classes it finds
    easy. Shares of the noisy labels are no substitute, as noise that leans to one side moves them."""

    def __post_init__(self) -> None:
        make_plain(self)
        check_in_range(self.start, "start", 0.0, 1.0)
        check_count(self.rounds, "rounds")
        check_count(self.renew, "renew", minimum=0)
        check_in_range(self.memory, "memory", 0.0, 1.0, high_open=True)
        check_in_range(self.trust, "trust", 0.0, math.inf, high_open=True)
        check_flag(self.mixup, "mixup")
        check_finite(self.threshold, "threshold")
        check_augment(self.augment)
        if not isinstance(self.balance, bool):
            as_prior(self.balance, "balance")

    def decisions(self, epochs: int) -> list[int]:
        """Return the epochs before which the teacher decides."""
        first = round(self.start * epochs)
        return [first + round(i * (epochs - first) / self.rounds) for i in range(self.rounds)]

    def renewals(self, epochs: int) -> list[int]:
        """Return the epochs before which the student answers."""
        if not self.renew:
            return []
        decisions = self.decisions(epochs)
        rounds = zip(decisions, [*decisions[1:], epochs], strict=True)
        return [
            epoch
            for first, end in rounds
            for epoch in range(first + self.renew, end, self.renew)
            if epoch - first >= (end - first) / 4
        ]


def check_shares(sieve: Sieve, n_classes: int) -> None:
    """Refuse shares for another number of classes, before hours are spent on the way to the sieve."""
    if not isinstance(sieve.balance, bool):
        as_prior(sieve.balance, "balance", n_classes=n_classes)


def keep_rows(probabilities: Tensor, y: Tensor, noisy_prior: Tensor, *, threshold: float = 0.0) -> Tensor:
    """Return which labels to keep, (n,) bool: those with expected peer loss (α = 1) below ``threshold``.

    Parameters
    ----------
    probabilities
        The teacher's, (n, K).
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


def sieve_targets(
    probabilities: Tensor, y: Tensor, noisy_prior: Tensor, sieve: Sieve
) -> tuple[Tensor, Tensor]:
    """Return soft targets (n, K) whose rows sum to the row's weight, and which labels were kept (n,).

    A kept label is taken for what it is, a noisy observation: the target is the posterior p_k·T[k, ỹ], with T
    counted from the teacher's own probabilities. Elsewhere it is the teacher's answer alone. Targets that are
    renewed have met the label before: it is kept as it is where they give it log-odds above −``threshold``
    (at 0: more than one half), once they are multiplied by T[k, ỹ] to the power of ``trust``. A row weighs as
    much as its target is sure. Rows without a label, −1, learn the answer.
    """
    if sieve.balance is not False:
        probabilities = balanced(probabilities, None if sieve.balance is True else sieve.balance)
    labelled = y >= 0
    known = y.clamp(min=0)
    labels = functional.one_hot(known, probabilities.shape[1]).to(probabilities.dtype) * labelled[:, None]
    transition = functional.normalize(probabilities.T @ labels, p=1.0, dim=1)
    likelihood = torch.where(labelled[:, None], transition.T[known], 1.0)
    if sieve.renew:
        answers = torch.softmax(probabilities.log() + torch.xlogy(sieve.trust, likelihood), dim=1)
        least = 0.5 - 0.5 * math.tanh(sieve.threshold / 2.0)  # the probability whose log-odds are −threshold
        kept = labelled & (answers.gather(1, known[:, None])[:, 0] > least)
        believed = labels
    else:
        answers = probabilities
        kept = labelled & keep_rows(probabilities, known, noisy_prior, threshold=sieve.threshold)
        believed = functional.normalize(probabilities * likelihood, p=1.0, dim=1)
    targets = torch.where(kept[:, None], believed, answers)
    return targets * targets.amax(dim=1, keepdim=True), kept


def balanced(probabilities: Tensor, shares: Sequence[float] | None = None, *, rounds: int = 20) -> Tensor:
    """Return the rows with a weight for each class such that the means over rows are nearly ``shares``.

    ``None`` stands for equal shares. Very sure rows hardly move, and more rounds would be needed to bring
    them there.

    Examples
    --------
    >>> balanced(torch.tensor([[0.9, 0.1], [0.6, 0.4]])).mean(dim=0)
    tensor([0.5000, 0.5000])
    """
    n_classes = probabilities.shape[1]
    known = (
        [1.0 / n_classes] * n_classes if shares is None else as_prior(shares, "balance", n_classes=n_classes)
    )
    wanted = torch.as_tensor(known, dtype=probabilities.dtype, device=probabilities.device)
    rows = probabilities.clamp(min=1e-6)  # a class that never comes up keeps a finite weight
    for _ in range(rounds):
        rows = functional.normalize(rows * (wanted / rows.mean(dim=0)), p=1.0, dim=1)
    return rows


def mix_pairs(inputs: Tensor, targets: Tensor, *, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
    """Return every row mixed with its mirror in the batch, with a share of its own uniform in [½, 1]."""
    own = 1.0 - 0.5 * torch.rand(len(inputs), device=inputs.device, generator=generator)
    wide = own.view(-1, *[1] * (inputs.ndim - 1))
    return wide * inputs + (1.0 - wide) * inputs.flip(0), own[:, None] * targets + (
        1.0 - own[:, None]
    ) * targets.flip(0)


def soft_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the mean over rows of Σ_k targets[n, k]·L[n, k] for cross entropy."""
    return (targets * loss_matrix(logits, eps=0.0)).sum(dim=1).mean()
