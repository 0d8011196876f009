"""PeerLoss by either path alone, and batches for them."""

import numpy as np
import torch

from peerloss import PeerLoss

PRIOR = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)


class InOperations(PeerLoss):
    """PeerLoss without the compiled path."""

    def _at_once(self, logits, target):  # noqa: ARG002
        return None


class AtOnce(PeerLoss):
    """PeerLoss that takes nothing but the compiled path."""

    def _prior(self, batch):  # noqa: ARG002 (the other one needs it)
        raise AssertionError("the compiled path was not taken")


def started(kind, z, **options):
    """Make a loss that has counted labels before."""
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
