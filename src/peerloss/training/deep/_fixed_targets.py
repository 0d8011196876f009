"""The sieve with fixed targets (``Sieve.refresh_every=0``)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from peerloss.functional import peer_loss
from peerloss.training.deep._sieve_targets import SieveTargets, Targets


class FixedTargets(SieveTargets):
    """Compute the targets once per round, so that the model cannot reinforce its own mistakes.

    1. At the start of a round the teacher predicts probabilities p for every row.
    2. A label ỹ is kept if its expected peer loss at α = 1, L[n, ỹ] − Σ_k π̃_k L[n, k], is below
       ``threshold``: the teacher disagrees less with this label than with the label of a random row. For
       equal priors this is the rule of CORES² (Cheng et al., 2021), a loss below the mean over labels.
    3. A kept label counts as a noisy observation: the target is the posterior ∝ p_k·T[k, ỹ], with T counted
       from the predictions of the teacher.
    4. The target of the other rows, and of rows without a label, is p.
    5. Each target is multiplied by its largest entry, so that uncertain rows count less.
    """

    def decide(self, probs: Tensor) -> Targets:
        """Apply steps 2 to 4 to the probabilities of the teacher."""
        has_label = self.y >= 0
        labels = self.y[has_label]
        noisy_prior = torch.bincount(labels, minlength=probs.shape[1]) / len(labels)
        kept = has_label & keep_rows(probs, self.y.clamp(min=0), noisy_prior, threshold=self.sieve.threshold)
        _, likelihood = self.label_likelihood(probs)
        posterior = functional.normalize(probs * likelihood, p=1.0, dim=1)
        return Targets(torch.where(kept[:, None], posterior, probs), kept)


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
