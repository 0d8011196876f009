"""The sieve with targets that follow the model (``Sieve.refresh_every > 0``, the default)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from peerloss.training.deep._sieve_targets import (
    SieveTargets,
    Targets,
    balanced_probs,
    label_likelihood,
    weigh_by_confidence,
)


class RefreshedTargets(SieveTargets):
    """Update the targets during a round with the predictions of the model that is trained on them.

    1. At the start of a round the teacher predicts probabilities p for every row.
    2. Every ``refresh_every`` epochs, except in the first quarter of a round, the model with averaged weights
       predicts every row again, and p becomes ``memory``·p + (1 − ``memory``)·prediction.
    3. The posterior ∝ p_k·T[k, ỹ]^``trust`` combines p with the label ỹ, with T counted from p.
    4. A label is kept, as a one-hot target, if the posterior gives it log-odds above −``threshold`` (at 0: a
       probability above one half). The target of the other rows is the posterior, and of rows without a label
       p.
    5. Each target is multiplied by its largest entry, so that uncertain rows count less.

    The model then learns from its own predictions, which can collapse. Two precautions prevent that: a share
    of the images is not augmented (``Augment.share``), so that batch statistics fit the plain images that the
    model predicts, and known shares of the classes are enforced (``Sieve.balance``).
    """

    def targets_for(self, epoch: int) -> Targets | None:
        """Return the targets of an epoch, after a refresh if one is due."""
        if epoch in self.decisions:
            self.teacher_probs = self._query_teacher()
        elif epoch in self.refreshes and self.teacher_probs is not None:
            self.teacher_probs = self._refresh_targets(self.teacher_probs)
        if self.teacher_probs is None:
            return None
        probs = balanced_probs(self.teacher_probs, self.sieve)
        return refreshed_targets(probs, self.y, trust=self.sieve.trust, threshold=self.sieve.threshold)

    def _refresh_targets(self, earlier: Tensor) -> Tensor:
        """Average with new predictions, without mirror images because refreshes are frequent."""
        return torch.lerp(self._predict(), earlier, self.sieve.memory)


def refreshed_targets(probs: Tensor, y: Tensor, *, trust: float = 0.5, threshold: float = 0.0) -> Targets:
    """Return targets from averaged predictions (n, K) and noisy labels (n,), −1 for none."""
    onehot, likelihood = label_likelihood(probs, y)
    posterior = torch.softmax(probs.log() + torch.xlogy(trust, likelihood), dim=1)
    least = 0.5 - 0.5 * math.tanh(threshold / 2.0)  # the probability whose log-odds are −threshold
    kept = (y >= 0) & (posterior.gather(1, y.clamp(min=0)[:, None])[:, 0] > least)
    return Targets(weigh_by_confidence(torch.where(kept[:, None], onehot, posterior)), kept)
