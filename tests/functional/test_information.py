"""Determinant-based mutual information."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd import gradcheck

from peerloss.exceptions import InvalidInputError
from peerloss.functional import dmi_loss
from peerloss.noise import NoiseModel


@given(k=st.integers(2, 5), seed=st.integers(0, 1000), eps=st.sampled_from([0.0, 1e-4]))
def test_dmi_agrees_with_a_naive_reference(k, seed, eps):
    """−log(|det J| + eps), J counted in a loop."""
    rng = np.random.default_rng(seed)
    z, y = torch.tensor(rng.normal(size=(9, k))), torch.tensor(rng.integers(k, size=9))
    joint = np.zeros((k, k))
    for p, label in zip(torch.softmax(z, 1).numpy(), y.tolist(), strict=True):
        joint[label] += p / 9
    if len(set(y.tolist())) == k:  # otherwise the determinant is zero up to rounding
        stated = -np.log(abs(np.linalg.det(joint)) + eps)
        np.testing.assert_allclose(dmi_loss(z, y, eps=eps), stated, rtol=1e-8)


@given(seed=st.integers(0, 1000))
def test_noise_adds_a_constant(seed):
    """On the population, noisy labels shift the loss by −log |det T| whatever the classifier."""
    rng = np.random.default_rng(seed)
    noise = NoiseModel(0.6 * np.eye(3) + 0.4 * rng.dirichlet(np.ones(3), size=3))
    joint = rng.dirichlet(np.ones(9)).reshape(3, 3)  # clean label × predicted class
    shift = np.log(abs(np.linalg.det(joint))) - np.log(abs(np.linalg.det(noise.transition.T @ joint)))
    assert shift == pytest.approx(-np.log(abs(np.linalg.det(noise.transition))), abs=1e-9)


def test_gradients_agree_with_finite_differences():
    """The determinant is differentiable, with and without the floor."""
    z = torch.randn(8, 3, dtype=torch.float64, requires_grad=True)
    y = torch.tensor([0, 1, 2, 0, 1, 2, 2, -100])
    assert gradcheck(lambda t: dmi_loss(t, y), (z,))
    assert gradcheck(lambda t: dmi_loss(t, y, eps=0.0), (z,))


def test_a_batch_with_one_label_moves_nothing():
    """The determinant is zero then: the loss is −log eps and its gradient vanishes."""
    z = torch.randn(5, 3, requires_grad=True)
    loss = dmi_loss(z, torch.zeros(5, dtype=torch.long))
    loss.backward()
    assert loss.item() == pytest.approx(-np.log(1e-4), rel=1e-4)
    assert torch.isfinite(z.grad).all()


def test_negative_eps_is_refused():
    """The floor is a small positive number."""
    with pytest.raises(InvalidInputError, match="`eps` must lie in"):
        dmi_loss(torch.zeros(2, 2), torch.tensor([0, 1]), eps=-1.0)
