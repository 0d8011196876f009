"""Losses that take probabilities as targets, and examples for them."""

import numpy as np
import torch

from peerloss.functional import (
    backward_loss,
    dmi_loss,
    f_divergence_loss,
    forward_loss,
    peer_loss,
    plain_loss,
)

M3 = torch.tensor([[1.0, -1.0, 0.5], [0.0, 1.0, -1.0], [-1.0, 0.5, 1.0]], dtype=torch.float64)
W3 = torch.tensor([0.5, 2.0, 1.0], dtype=torch.float64)
T3 = [[0.8, 0.2, 0.0], [0.1, 0.7, 0.2], [0.0, 0.1, 0.9]]
PRIOR = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64)
#: Losses that are linear in the target once the prior is given.
LINEAR = {
    "plain": plain_loss,
    "peer": lambda z, y, **kw: peer_loss(z, y, alpha=0.7, noisy_prior=PRIOR, **kw),
    "score matrix": lambda z, y, **kw: peer_loss(z, y, noisy_prior=PRIOR, score_matrix=M3, **kw),
    "backward": lambda z, y, **kw: backward_loss(z, y, T3, **kw),
    "forward": lambda z, y, **kw: forward_loss(z, y, T3, **kw),
}
OTHERS = {"dmi": dmi_loss, "f-divergence": f_divergence_loss}


def example(n=6, k=3, seed=0):
    rng = np.random.default_rng(seed)
    q = rng.dirichlet(np.ones(k), size=n)
    return torch.tensor(rng.normal(size=(n, k)) * 2), torch.tensor(q), torch.tensor(rng.integers(k, size=n))


def one_hot(y, k=3):
    return torch.nn.functional.one_hot(y, k).double()


def with_gradient(loss, z, target):
    t = z.clone().requires_grad_()
    value = loss(t, target)
    (gradient,) = torch.autograd.grad(value.sum(), t)
    return value.detach(), gradient
