"""Backward and forward correction."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd import gradcheck

from peerloss.exceptions import InvalidInputError, NotIdentifiableError
from peerloss.functional import BASES, backward_loss, forward_loss, loss_matrix, plain_loss
from peerloss.noise import NoiseModel


def noise_and_logits(k, seed):
    rng = np.random.default_rng(seed)
    matrix = 0.6 * np.eye(k) + 0.4 * rng.dirichlet(np.ones(k), size=k)
    return NoiseModel(matrix), torch.tensor(rng.normal(size=(4, k)) * 2)


@pytest.mark.parametrize("base", sorted(BASES))
@given(k=st.integers(2, 4), seed=st.integers(0, 1000))
def test_the_surrogate_is_unbiased(base, k, seed):
    """Averaged over the noise of each clean label, the corrected loss is the clean loss, exactly."""
    noise, z = noise_and_logits(k, seed)
    for clean in range(k):
        over_noise = sum(
            noise.transition[clean, noisy]
            * backward_loss(z, torch.full((4,), noisy), noise, base=base, reduction="none")
            for noisy in range(k)
        )
        wanted = loss_matrix(z, base)[:, clean]
        torch.testing.assert_close(over_noise, wanted, rtol=1e-10, atol=1e-10)


@given(e_neg=st.floats(0, 0.45), e_pos=st.floats(0, 0.45), seed=st.integers(0, 1000))
def test_two_classes_give_the_formula_of_the_paper(e_neg, e_pos, seed):
    """((1 − e_{−y})·ℓ(t, y) − e_y·ℓ(t, −y)) / (1 − e₋₁ − e₊₁)."""
    z = torch.tensor(np.random.default_rng(seed).normal(size=6))
    y = torch.tensor([0, 1, 0, 1, 1, 0])
    losses = loss_matrix(z, "logistic")
    rates = {0: e_neg, 1: e_pos}
    expected = [
        ((1 - rates[1 - label]) * losses[n, label] - rates[label] * losses[n, 1 - label])
        / (1 - e_neg - e_pos)
        for n, label in enumerate(y.tolist())
    ]
    taken = backward_loss(z, y, NoiseModel.binary(e_neg, e_pos), base="logistic", reduction="none")
    torch.testing.assert_close(taken, torch.stack(expected), rtol=1e-10, atol=1e-12)


@given(k=st.integers(2, 5), seed=st.integers(0, 1000))
def test_forward_agrees_with_a_naive_reference(k, seed):
    """−log (p T)[ỹ], entry by entry."""
    noise, z = noise_and_logits(k, seed)
    y = torch.arange(4) % k
    p = torch.softmax(z, 1).numpy()
    expected = [-np.log(sum(p[n, i] * noise.transition[i, y[n]] for i in range(k))) for n in range(4)]
    np.testing.assert_allclose(forward_loss(z, y, noise, reduction="none"), expected, rtol=1e-10)


def test_without_noise_both_are_cross_entropy():
    """T = I corrects nothing; a T with zeros is legal."""
    z, y = torch.randn(6, 3, dtype=torch.float64), torch.tensor([0, 1, 2, 2, 1, 0])
    plain = torch.nn.functional.cross_entropy(z, y)
    torch.testing.assert_close(backward_loss(z, y, np.eye(3)), plain_loss(z, y))
    torch.testing.assert_close(backward_loss(z, y, np.eye(3), eps=0.0), plain)
    torch.testing.assert_close(forward_loss(z, y, np.eye(3)), plain)


@given(seed=st.integers(0, 100))
def test_gradients_agree_with_finite_differences(seed):
    """Both corrections are differentiable, with class weights too."""
    noise, z = noise_and_logits(3, seed)
    z.requires_grad_()
    y, weight = torch.tensor([0, 1, 2, 1]), torch.tensor([1.0, 2.0, 0.5])
    assert gradcheck(lambda t: backward_loss(t, y, noise, weight=weight), (z,))
    assert gradcheck(lambda t: forward_loss(t, y, noise, weight=weight), (z,))


def test_forward_survives_confident_logits():
    """Logits of ±1000 give finite losses and gradients."""
    z = torch.tensor([1000.0, -1000.0], requires_grad=True)
    forward_loss(z, torch.tensor([0, 1]), [[0.8, 0.2], [0.3, 0.7]]).backward()
    assert torch.isfinite(z.grad).all()


def test_weights_multiply_columns():
    """weight[k] multiplies column k before the correction."""
    noise, z = noise_and_logits(3, 0)
    y, weight = torch.tensor([0, 1, 2, 1]), torch.tensor([1.0, 2.0, 0.5])
    losses = loss_matrix(z, "hinge").numpy() * weight.numpy()
    expected = [noise.inverse()[label] @ losses[n] for n, label in enumerate(y.tolist())]
    taken = backward_loss(z, y, noise, base="hinge", weight=weight, reduction="none")
    np.testing.assert_allclose(taken, expected, rtol=1e-12)


def test_invalid_noise_is_refused():
    """T must be invertible (backward), of the size of the logits, and have rows that sum to 1."""
    z, y = torch.randn(4, 3), torch.tensor([0, 1, 2, 0])
    with pytest.raises(NotIdentifiableError, match="`transition` cannot be inverted"):
        backward_loss(z, y, np.full((3, 3), 1 / 3))
    for loss in (backward_loss, forward_loss):
        with pytest.raises(InvalidInputError, match="`noise` must have one entry for each of the 3 classes"):
            loss(z, y, NoiseModel.binary(0.1, 0.2))
        with pytest.raises(InvalidInputError, match="`noise` must be a NoiseModel or a transition matrix"):
            loss(z, y, np.ones((3, 3)))
