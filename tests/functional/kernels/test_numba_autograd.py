"""The numba path of PeerLoss under autograd, transforms, tracing and torch's modes."""

import pytest
import torch
from torch.autograd import forward_ad, gradcheck, gradgradcheck
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

from peerloss import PeerLoss
from tests.functional.kernels.paths import (
    PRIOR,
    Fast,
    InTorch,
    declines,
    example,
    started,
    value_and_gradient,
)

pytest.importorskip("numba", reason="the compiled path needs numba")


@pytest.mark.parametrize("eps", [0.0, 1e-3])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_first_and_second_derivatives_agree_with_finite_differences(eps, reduction):
    """The gradient comes from numba, the second derivative from torch operations."""
    z, y = example(4)
    loss = Fast(alpha=0.6, eps=eps, reduction=reduction, noisy_prior=PRIOR)
    assert gradcheck(lambda t: loss(t, y), (z.requires_grad_(),))
    assert gradgradcheck(lambda t: loss(t, y), (z,))


def test_the_second_derivative_keeps_the_prior_of_its_own_step():
    """Labels counted after a step do not change its graph."""
    z, y = example(4)
    results = []
    for kind in (Fast, InTorch):
        loss, t = started(kind, z, alpha=0.6), z.clone().requires_grad_()
        value = loss(t, y)
        loss(z, torch.zeros_like(y))
        (slope,) = torch.autograd.grad(value, t, create_graph=True)
        results.append(torch.autograd.grad(slope.square().sum(), t)[0])
    torch.testing.assert_close(*results, rtol=1e-10, atol=1e-12)


def test_logits_may_be_overwritten_after_the_loss():
    """As with torch's cross entropy; a second derivative, which needs the logits, then raises."""
    z, y = example(4)
    loss = Fast(noisy_prior=PRIOR)
    _, expected = value_and_gradient(loss, z, y)
    leaf = z.clone().requires_grad_()
    logits = leaf * 1
    value = loss(logits, y)
    logits.detach().zero_()
    (slope,) = torch.autograd.grad(value, leaf, retain_graph=True)
    torch.testing.assert_close(3 * slope, expected)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(value, leaf, create_graph=True)


def test_a_graph_is_used_once_and_frees_its_memory():
    """As everywhere in torch: a second backward pass needs ``retain_graph``."""
    z, y = example()
    z.requires_grad_()
    value = Fast(noisy_prior=PRIOR)(z, y)
    value.backward()
    with pytest.raises(RuntimeError, match="second time"):
        value.backward()


def test_an_activation_checkpoint_around_the_first_batch():
    """The recomputation in the backward pass takes the same path as the forward pass."""
    z, y = example()
    z.requires_grad_()
    loss = PeerLoss()
    checkpoint(lambda t: loss(t, y), z, use_reentrant=False).backward()
    assert torch.isfinite(z.grad).all()


def test_transforms_use_torch_operations():
    """torch.func, forward mode and batched gradients give the gradients of torch operations."""
    z, y = example(4)
    loss = PeerLoss(alpha=0.6, noisy_prior=PRIOR)
    _, expected = value_and_gradient(InTorch(alpha=0.6, noisy_prior=PRIOR), z, y)
    torch.testing.assert_close(3 * torch.func.grad(loss)(z, y), expected)
    torch.testing.assert_close(3 * torch.func.jacfwd(loss)(z, y), expected)
    jacobian = torch.autograd.functional.jacobian(lambda t: loss(t, y), z, vectorize=True)
    torch.testing.assert_close(3 * jacobian, expected)
    tangent = torch.linspace(-1, 1, 12, dtype=z.dtype).view(4, 3)
    with forward_ad.dual_level():
        slope = forward_ad.unpack_dual(loss(forward_ad.make_dual(z, tangent), y)).tangent
    torch.testing.assert_close(3 * slope, (expected * tangent).sum())


@pytest.mark.filterwarnings("ignore")  # tracing warns about itself and about every value that is read
def test_a_traced_loss_is_not_a_constant():
    """A traced loss depends on its inputs, and modes that intercept operations see torch operations."""
    (z, y), (other, _) = example(), example(seed=1)
    loss = PeerLoss(noisy_prior=PRIOR)
    traced = torch.jit.trace(loss, (z, y))
    torch.testing.assert_close(traced(other, y), loss(other, y))
    with FlopCounterMode(display=False), pytest.raises(AssertionError, match="was not taken"):
        Fast(noisy_prior=PRIOR)(z, y)


def test_modes_of_torch_do_not_change_the_loss():
    """Autocast, no_grad, inference tensors, a default device elsewhere: the same number."""
    z, y = example(dtype=torch.float32)
    expected = InTorch(noisy_prior=PRIOR)(z, y)
    loss = Fast(noisy_prior=PRIOR)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(loss(z, y), expected)
    with torch.no_grad():
        assert not loss(z.clone().requires_grad_(), y).requires_grad
    with torch.inference_mode():
        inference = z.clone()
        torch.testing.assert_close(loss(z, y), expected)
    torch.testing.assert_close(loss(inference, y), expected)
    with torch.device("meta"):
        assert loss(z, y).device.type == "cpu"


def test_a_prior_that_requires_a_gradient_is_left_to_torch():
    """The prior may be learned; numba does not compute its gradient."""
    z, y = example()
    loss = PeerLoss(noisy_prior=PRIOR)
    loss.noisy_prior.requires_grad_()
    assert declines(loss, z, y)
