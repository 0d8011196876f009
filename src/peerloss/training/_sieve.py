"""After the loss: believe the labels that a teacher finds informative, replace the others.

The expected peer loss of a row, L[n, ỹ_n] − Σ_k π̃_k L[n, k], says how much more the model disagrees with the
row's label than with the label of somebody else. Where it is negative the label is kept. That is the sample
sieve of CORES² (Cheng et al., 2021), whose threshold is the mean loss over the labels. The other rows get
what the teacher says of the plain image; the student learns it from a changed one.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from peerloss.functional import loss_matrix, peer_loss
from peerloss.training._augment import STRONG_AUGMENT, Augment


@dataclass(frozen=True)
class Sieve:
    """How labels are kept and replaced."""

    start: float = 0.4
    """Share of the epochs after which the teacher decides about labels; before that the loss does."""
    rounds: int = 1
    """So many times it decides, evenly over the rest. In between targets stay as they are, so that no mistake
    feeds on itself, and with each round the rate starts anew."""
    threshold: float = 0.0
    """Labels with an expected peer loss below this are kept."""
    mixup: bool = False
    """Whether images and targets are mixed in pairs."""
    augment: Augment = STRONG_AUGMENT
    """Changes of the images that the student sees."""

    def decisions(self, epochs: int) -> list[int]:
        """Return the epochs before which the teacher decides."""
        first = round(self.start * epochs)
        return [first + round(i * (epochs - first) / self.rounds) for i in range(self.rounds)]


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
    counted from the teacher's own probabilities. Elsewhere it is the teacher's answer alone. A row weighs as
    much as its target is sure.
    """
    kept = keep_rows(probabilities, y, noisy_prior, threshold=sieve.threshold)
    labels = functional.one_hot(y, probabilities.shape[1]).to(probabilities.dtype)
    transition = functional.normalize(probabilities.T @ labels, p=1.0, dim=1)
    posterior = functional.normalize(probabilities * transition.T[y], p=1.0, dim=1)
    targets = torch.where(kept[:, None], posterior, probabilities)
    return targets * targets.amax(dim=1, keepdim=True), kept


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
