"""The sieve with targets that follow the model (``Sieve.refresh_every > 0``, the default)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from peerloss.training.deep._sieve_targets import SieveTargets, Targets


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
        """Return the targets of an epoch, after a refresh if one is due; ``None`` before the first round."""
        if epoch in self.refreshes and self.teacher_probs is not None:
            self.teacher_probs = self._refresh_targets(self.teacher_probs)
        return super().targets_for(epoch)

    def _refresh_targets(self, earlier: Tensor) -> Tensor:
        """Average with new predictions, without mirror images because refreshes are frequent."""
        return torch.lerp(self._predict(), earlier, self.sieve.memory)

    def decide(self, probs: Tensor) -> Targets:
        """Apply steps 3 and 4 to the averaged probabilities."""
        onehot, likelihood = self.label_likelihood(probs)
        posterior = torch.softmax(probs.log() + torch.xlogy(self.sieve.trust, likelihood), dim=1)
        of_label = posterior.gather(1, self.y.clamp(min=0)[:, None])[:, 0]
        least = 0.5 - 0.5 * math.tanh(self.sieve.threshold / 2.0)  # its log-odds are −threshold
        kept = (self.y >= 0) & (of_label > least)
        return Targets(torch.where(kept[:, None], onehot, posterior), kept)
