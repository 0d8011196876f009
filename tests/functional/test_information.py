"""Determinant-based mutual information."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd import gradcheck

from peerloss.exceptions import InvalidInputError
from peerloss.functional import dmi_loss
from peerloss.functional.information import joint_loss
from peerloss.noise import NoiseModel


@given(k=st.integers(2, 5), seed=st.integers(0, 1000), eps=st.sampled_from([0.0, 1e-4]))
def test_dmi_agrees_with_a_naive_reference(k, seed, eps):
    """−log(|det J| + eps_K), J counted in a loop, eps_K = (2√eps/K)ᴷ."""
    rng = np.random.default_rng(seed)
    z, y = torch.tensor(rng.normal(size=(9, k))), torch.tensor(rng.integers(k, size=9))
    joint = np.zeros((k, k))
    for p, label in zip(torch.softmax(z, 1).numpy(), y.tolist(), strict=True):
        joint[label] += p / 9
    if len(set(y.tolist())) == k:  # otherwise the determinant is zero up to rounding
        expected = -np.log(abs(np.linalg.det(joint)) + (2 * np.sqrt(eps) / k) ** k)
        np.testing.assert_allclose(dmi_loss(z, y, eps=eps), expected, rtol=1e-8)


@given(seed=st.integers(0, 1000))
def test_noise_adds_a_constant(seed):
    """On the population, noisy labels shift the loss by −log |det T| for every classifier."""
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


@given(seed=st.integers(0, 1000), eps=st.floats(0.0, 1.0))
def test_for_two_classes_the_floor_is_eps(seed, eps):
    """−log(|det J| + eps) for every eps, as the authors of DMI wrote it."""
    rng = np.random.default_rng(seed)
    z, y = torch.tensor(rng.normal(size=9)), torch.tensor([0, 1, *rng.integers(2, size=7).tolist()])
    p = 1 / (1 + np.exp(-z.numpy()))
    joint = np.array([[np.where(y == i, q, 0).mean() for q in (1 - p, p)] for i in range(2)])
    assert dmi_loss(z, y, eps=eps).item() == pytest.approx(-np.log(abs(np.linalg.det(joint)) + eps), rel=1e-9)


@pytest.mark.parametrize("k", [2, 3, 10, 26])
def test_the_floor_hardly_changes_gradients_for_any_number_of_classes(k):
    """The default floor changes the gradient of −log |det J| by less than a tenth; it does not become 0."""
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(20 * k) % k
    z = torch.randn(20 * k, k, generator=generator, dtype=torch.float64)
    z[torch.arange(20 * k), y] += 1.0
    z.requires_grad_()
    gradients = [torch.autograd.grad(dmi_loss(z, y, **options), z)[0] for options in ({}, {"eps": 0.0})]
    assert gradients[0].abs().max() > 1e-3
    assert (gradients[0] - gradients[1]).norm() < 0.1 * gradients[1].norm()


@pytest.mark.parametrize("eps", [0.0, 1e-4, 1.0])
@pytest.mark.parametrize("k", [2, 3, 10])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_batch_that_lacks_a_class_has_gradient_zero(k, eps, dtype):
    """The determinant is zero then: the loss is finite and its gradient is 0, for every floor."""
    z = torch.randn(8 * k, k, generator=torch.Generator().manual_seed(0), dtype=dtype, requires_grad=True)
    loss = dmi_loss(z, torch.arange(8 * k) % (k - 1), eps=eps)
    loss.backward()
    assert torch.isfinite(loss)
    assert not z.grad.any()
    if eps > 0:
        assert loss.item() == pytest.approx(-k * np.log(2 * np.sqrt(eps) / k), rel=1e-5)


def test_constant_predictions_are_singular():
    """Every row predicts the same: the loss and its gradient are finite."""
    for eps in (0.0, 1e-4):
        z = torch.zeros(30, 3, dtype=torch.float64, requires_grad=True)
        loss = dmi_loss(z, torch.arange(30) % 3, eps=eps)
        loss.backward()
        assert torch.isfinite(loss)
        assert torch.isfinite(z.grad).all()


def test_a_stack_of_matrices_is_taken_one_by_one():
    """One singular matrix among others neither changes them nor gets a gradient."""
    joint = torch.rand(4, 3, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    joint[2, 1] = 0.0
    joint.requires_grad_()
    losses = joint_loss(joint, 1e-4)
    for one, loss in zip(joint, losses, strict=True):
        torch.testing.assert_close(joint_loss(one, 1e-4), loss)
    (gradient,) = torch.autograd.grad(losses.sum(), joint)
    assert gradient.flatten(1).any(dim=1).tolist() == [True, True, False, True]


def test_negative_eps_is_refused():
    """The floor is a small positive number."""
    with pytest.raises(InvalidInputError, match="`eps` must lie in"):
        dmi_loss(torch.zeros(2, 2), torch.tensor([0, 1]), eps=-1.0)


def test_a_missing_class_is_never_better_than_a_complete_batch():
    """Also without a floor and with many classes: losing a class must not lower the loss."""
    for k in (10, 50, 200):
        logits = torch.randn(4 * k, k, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        complete = torch.arange(4 * k) % k
        assert dmi_loss(logits, complete % (k - 1), eps=0.0) > dmi_loss(logits, complete, eps=0.0)
