"""Diverging training raises or warns."""

import warnings

import pytest
import torch

from peerloss import PeerLoss
from peerloss.exceptions import DivergenceError, DivergenceWarning

Y = torch.tensor([0, 1, 1, 0])


def test_a_loss_that_is_not_finite_raises():
    """−inf logits under an unclipped peer term: the message names remedies."""
    z = torch.zeros(4, 2)
    z[0, 1] = -torch.inf
    with pytest.raises(DivergenceError, match=r"not finite \(alpha = 1.*eps=1e-5.*AlphaSchedule"):
        PeerLoss(eps=0.0)(z, Y)
    with pytest.raises(DivergenceError, match="not finite"):
        PeerLoss(eps=0.0, reduction="none")(z, Y)


def test_diverging_logits_warn_once_until_they_are_small_again():
    """There is one warning as long as a logit exceeds 10⁴ while α ≥ 1."""
    loss = PeerLoss()
    large = torch.full((4, 2), 2e4)
    with pytest.warns(DivergenceWarning, match=r"logits have reached 2e\+04 .*alpha = 1 ≥ 1"):
        loss(large, Y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loss(large, Y)
        loss(torch.zeros(4, 2), Y)
    with pytest.warns(DivergenceWarning):
        loss(-large, Y)


def test_no_warning_below_one():
    """Under α = 1 cross entropy is bounded below: large logits are confidence, not divergence."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        PeerLoss(alpha=0.9)(torch.full((4, 2), 2e4), Y)


def test_diverging_training_is_detected():
    """Gradient descent on the unclipped loss at α = 5 ends in a warning or an error."""
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2)
    X, loss = torch.randn(40, 3), PeerLoss(alpha=5.0, eps=0.0)
    y = (X[:, 0] > 0).long()
    optimizer = torch.optim.SGD(model.parameters(), lr=100.0)

    def train():
        for _ in range(100):
            optimizer.zero_grad()
            loss(model(X), y).backward()
            optimizer.step()

    with pytest.warns(DivergenceWarning, match="lower the learning rate"):
        train()


@pytest.mark.cuda
def test_on_cuda_the_message_comes_without_a_synchronisation():
    """The numbers of one step are read at a later one; nothing waits for the device."""
    loss = PeerLoss(eps=0.0)
    z = torch.zeros(4, 2, device="cuda")
    z[0, 1] = -torch.inf
    y = Y.cuda()
    torch.cuda.set_sync_debug_mode("error")
    try:
        loss(z, y)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    torch.cuda.synchronize()
    with pytest.raises(DivergenceError, match="not finite"):
        loss(z, y)


@pytest.mark.cuda
def test_a_masked_class_is_not_taken_for_divergence_on_cuda():
    """−inf logits are left out of the largest |logit|, as on the CPU."""
    loss = PeerLoss()
    z, y = torch.zeros(4, 3, device="cuda"), Y.cuda()
    z[:, 2] = -torch.inf
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            loss(z, y)
            torch.cuda.synchronize()


@pytest.mark.parametrize("low", [-torch.inf, -3.0])
def test_a_masked_class_is_not_taken_for_divergence(low):
    """−inf logits do not warn on the CPU either."""
    z = torch.zeros(4, 3)
    z[:, 2] = low
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        PeerLoss()(z, Y)
