"""f-divergence peers."""

import numpy as np
import pytest
import torch

from peerloss.exceptions import InvalidInputError
from peerloss.functional import f_divergence_loss, peer_loss

#: A joint distribution of four inputs and three labels.
JOINT = np.array([[0.20, 0.03, 0.02], [0.05, 0.15, 0.05], [0.01, 0.04, 0.20], [0.10, 0.10, 0.05]])


def expectation(joint, logits, divergence):
    """Σ over inputs and labels of P(x, y)·loss(x, y), with the prior of these labels."""
    prior = torch.tensor(joint.sum(axis=0))
    total = torch.zeros((), dtype=torch.float64)
    for label in range(joint.shape[1]):
        y = torch.full((len(joint),), label)
        rows = f_divergence_loss(logits, y, divergence=divergence, noisy_prior=prior, reduction="none")
        total = total + (torch.tensor(joint[:, label]) * rows).sum()
    return total


def random_logits(seed, rows=4):
    return torch.randn(rows, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_at_the_posterior_jensen_shannon_is_the_divergence():
    """The value is −D between joint and product of marginals, by the textbook formula."""
    product = np.outer(JOINT.sum(axis=1), JOINT.sum(axis=0))
    middle = (JOINT + product) / 2
    textbook = (JOINT * np.log(JOINT / middle)).sum() + (product * np.log(product / middle)).sum()
    posterior = torch.tensor(JOINT / JOINT.sum(axis=1, keepdims=True)).log()
    assert float(expectation(JOINT, posterior, "jensen_shannon")) == pytest.approx(-textbook, abs=1e-12)


def test_jensen_shannon_is_least_at_the_posterior():
    """No other predictions do better: zero gradient there, and higher values elsewhere."""
    posterior = torch.tensor(JOINT / JOINT.sum(axis=1, keepdims=True)).log().requires_grad_()
    best = expectation(JOINT, posterior, "jensen_shannon")
    (gradient,) = torch.autograd.grad(best, posterior)
    torch.testing.assert_close(gradient, torch.zeros_like(gradient), atol=1e-12, rtol=0)
    others = [float(expectation(JOINT, random_logits(seed), "jensen_shannon")) for seed in range(30)]
    assert min(others) > best.item()


@pytest.mark.parametrize("divergence", ["total_variation", "jensen_shannon"])
def test_an_uninformed_model_gets_nothing(divergence):
    """Predictions that always equal the prior have loss zero whatever the label."""
    prior = torch.tensor([0.5, 0.3, 0.2])
    rows = f_divergence_loss(
        prior.log().expand(3, 3), torch.arange(3), divergence=divergence, noisy_prior=prior, reduction="none"
    )
    torch.testing.assert_close(rows, torch.zeros(3), atol=1e-6, rtol=0)


def test_total_variation_is_peer_loss_on_a_bounded_matrix():
    """With any prior it equals expected peer loss at α = 1 with base −½(r − 1)/(r + 1)."""
    prior = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)

    def base(z):
        ratio = torch.softmax(z, dim=1) / prior
        return -0.5 * (ratio - 1) / (ratio + 1)

    logits, y = random_logits(0, rows=6), torch.tensor([0, 1, 2, 0, 1, 2])
    expected = peer_loss(logits, y, base=base, noisy_prior=prior, reduction="none")
    actual = f_divergence_loss(logits, y, noisy_prior=prior, reduction="none")
    torch.testing.assert_close(actual, expected, atol=1e-12, rtol=0)


def test_total_variation_is_invariant_under_uniform_noise():
    """Labels with equal prior: noise multiplies the expected loss by 1 − Σe, whatever the predictions."""
    joint = JOINT / JOINT.sum(axis=0) / 3
    rate = 0.1  # to each of the other two classes
    noisy = joint @ ((1 - 3 * rate) * np.eye(3) + rate)
    for seed in range(10):
        clean_value = expectation(joint, random_logits(seed), "total_variation")
        noisy_value = expectation(noisy, random_logits(seed), "total_variation")
        torch.testing.assert_close(noisy_value, (1 - 3 * rate) * clean_value, atol=1e-12, rtol=0)


@pytest.mark.parametrize("divergence", ["total_variation", "jensen_shannon"])
def test_gradients_are_right(divergence):
    """Against finite differences, with an ignored row and a counted prior."""
    y = torch.tensor([0, 1, -100, 2])
    logits = random_logits(1).requires_grad_()
    assert torch.autograd.gradcheck(lambda z: f_divergence_loss(z, y, divergence=divergence), logits)
    (gradient,) = torch.autograd.grad(f_divergence_loss(logits, y, divergence=divergence), logits)
    assert not gradient[2].any()


@pytest.mark.parametrize("divergence", ["total_variation", "jensen_shannon"])
def test_extreme_logits_and_absent_classes_stay_finite(divergence):
    """A class without labels and logits of ±1000 give finite losses and gradients."""
    logits = torch.tensor([[1e3, -1e3, 0.0], [-1e3, 1e3, 0.0]], requires_grad=True)
    loss = f_divergence_loss(logits, torch.tensor([0, 0]), divergence=divergence)
    (gradient,) = torch.autograd.grad(loss, logits)
    assert torch.isfinite(loss)
    assert torch.isfinite(gradient).all()


def test_an_unknown_divergence_is_named():
    """The message lists those there are."""
    with pytest.raises(InvalidInputError, match="`divergence` must be one of 'total_variation', 'jensen_sh"):
        f_divergence_loss(torch.zeros(2, 2), torch.tensor([0, 1]), divergence="hellinger")
