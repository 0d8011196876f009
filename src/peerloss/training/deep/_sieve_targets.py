"""What the two algorithms of the sieve share: their interface and state, and the loss of soft targets."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from peerloss._validation import as_prior
from peerloss.functional import loss_matrix

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from peerloss.training.deep._sieve import Sieve


class Targets(NamedTuple):
    """The targets of an epoch."""

    probs: Tensor
    """(n, K) soft targets; the sum of a row is its weight in the loss."""
    kept: Tensor
    """(n,) bool: rows whose label was kept."""


class SieveTargets(ABC):
    """The targets of a training with a sieve; the only state is ``teacher_probs``.

    Parameters
    ----------
    sieve, epochs
        The settings and the length of the training.
    y
        Noisy labels (n,), −1 for rows without a label.
    predict
        Returns the probabilities (n, K) of all rows under the current averaged model.
    mirrored
        Whether the teacher predicts as the mean over each image and its mirror image.
    """

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
        if self.teacher_probs is None:
            return None
        balance = self.sieve.balance
        probs = self.teacher_probs
        if balance is not False:
            probs = balance_classes(probs, None if balance is True else balance)
        targets, kept = self.decide(probs)
        return Targets(targets * targets.amax(dim=1, keepdim=True), kept)  # uncertain rows count less

    def _query_teacher(self) -> Tensor:
        """Return the probabilities (n, K) of the teacher of a new round."""
        return self._predict(mirrored=self._mirrored)

    @abstractmethod
    def decide(self, probs: Tensor) -> Targets:
        """Return the targets of probabilities (n, K), before rows are weighted."""

    def label_likelihood(self, probs: Tensor) -> tuple[Tensor, Tensor]:
        """Return labels as one-hot rows (n, K) and their likelihood T[k, ỹ] (n, K), T counted from ``probs``.

        A row without a label has zeros in the first result and ones in the second.
        """
        has_label = (self.y >= 0)[:, None]
        codes = self.y.clamp(min=0)
        onehot = functional.one_hot(codes, probs.shape[1]).to(probs.dtype) * has_label
        transition = functional.normalize(probs.T @ onehot, p=1.0, dim=1)
        return onehot, torch.where(has_label, transition.T[codes], 1.0)

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        return {"teacher_probs": self.teacher_probs}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the ``state`` of a checkpoint."""
        probs = state["teacher_probs"]
        self.teacher_probs = None if probs is None else probs.to(self.y.device)


def balance_classes(probs: Tensor, shares: Sequence[float] | None = None, *, rounds: int = 20) -> Tensor:
    """Return the rows with one weight per class such that the means over rows are close to ``shares``.

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
    """Return the mean over rows of Σ_k targets[n, k]·L[n, k] for cross entropy."""
    return (targets * loss_matrix(logits, eps=0.0)).sum(dim=1).mean()
