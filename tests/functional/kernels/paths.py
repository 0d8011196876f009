"""PeerLoss through one path only, and batches to compare the paths on."""

from unittest.mock import patch

import numpy as np
import torch

from peerloss import PeerLoss
from peerloss.functional.kernels import dispatch

PRIOR = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)


class InTorch(PeerLoss):
    """PeerLoss that computes in torch operations only: a subclass that prepares batches has no fast path."""

    def batch(self, logits, target):
        """Prepare the batch as PeerLoss does."""
        return super().batch(logits, target)


class Fast(PeerLoss):
    """PeerLoss that fails if the fast path is not taken."""

    def _compute(self, logits, target):
        with patch.object(dispatch, "make_batch", side_effect=AssertionError("the fast path was not taken")):
            return super()._compute(logits, target)


class DeclinedError(Exception):
    """Raised in place of computing in torch operations."""


def declines(loss, logits, target):
    """Return whether the fast paths decline a batch, before torch operations check or compute anything."""
    with patch.object(dispatch, "make_batch", side_effect=DeclinedError):
        try:
            loss(logits, target)
        except DeclinedError:
            return True
    return False


def started(kind, z, **options):
    """Return a loss that has counted labels before."""
    loss = kind(**options)
    loss.label_counts = torch.arange(1, z.shape[1] + 1)
    return loss


def example(n=6, k=3, seed=0, dtype=torch.float64, scale=2.0):
    rng = np.random.default_rng(seed)
    return torch.tensor(rng.normal(size=(n, k)) * scale, dtype=dtype), torch.tensor(rng.integers(k, size=n))


def value_and_gradient(loss, z, y):
    z = z.clone().requires_grad_()
    value = loss(z, y)
    (3 * value).backward()
    return value.detach(), z.grad
