"""Blocks of rows give the numbers of the plain formula."""

import numpy as np
import pytest
import torch
from torch.autograd import forward_ad, gradcheck, gradgradcheck

from peerloss.functional import peer_loss
from peerloss.functional.kernels import blocked, dispatch, reference


def example(n=6, k=3, seed=0, scale=2.0):
    rng = np.random.default_rng(seed)
    return torch.tensor(rng.normal(size=(n, k)) * scale), torch.tensor(rng.integers(k, size=n))


@pytest.mark.parametrize("k", [2, 3, 100])
@pytest.mark.parametrize("eps", [0.0, 1e-5, 0.1])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("per_row", [False, True])
def test_blocks_agree_with_the_plain_formula(monkeypatch, k, eps, weighted, masked, per_row):
    """Blocks of rows, few and many classes, clipped or not: values, gradients, second derivatives.

    The coefficients of the columns may be the same for all rows or differ, as for several binary labels.
    """
    z, y = example(10, k)
    own = torch.rand(10, dtype=z.dtype, generator=torch.Generator().manual_seed(1)) if weighted else None
    shared = -0.7 * torch.softmax(torch.arange(k, dtype=z.dtype) / k, 0)
    if per_row:
        shared = shared * torch.linspace(0.5, 1.5, 10, dtype=z.dtype)[:, None]
    if masked and k > 2:
        z[2, (y[2] + 1) % k] = -torch.inf
        shared[..., (y[2] + 1) % k] = 0.0
    upstream = torch.linspace(-1, 2, 10, dtype=z.dtype)
    results = []
    monkeypatch.setattr(blocked, "BLOCK", 4 * k)  # four rows
    for compute in (reference.cross_entropy_rows, blocked.blocked_rows):
        t = z.clone().requires_grad_()
        rows = compute(t, y, own, shared, eps, masked=masked)
        (grad,) = torch.autograd.grad(rows, t, upstream, create_graph=True)
        (second,) = torch.autograd.grad(grad.square().sum(), t)
        (first,) = torch.autograd.grad(compute(t, y, own, shared, eps, masked=masked), t, upstream)
        results.append((rows.detach(), grad.detach(), second, first))
    for plain, kernel in zip(*results, strict=True):
        torch.testing.assert_close(kernel, plain, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("weighted", [False, True])
def test_unclipped_rows_on_a_gpu_agree_with_the_plain_formula(weighted):
    """Rows without a clip in one piece, as on a GPU: values, first and second derivatives."""
    z, y = example(6, 5)
    own = torch.rand(6, dtype=z.dtype, generator=torch.Generator().manual_seed(1)) if weighted else None
    shared = -0.7 * torch.softmax(torch.arange(5, dtype=z.dtype), 0)

    def rows(t):
        return blocked._UnclippedRows.apply(t, y, own, shared)

    torch.testing.assert_close(rows(z), reference.cross_entropy_rows(z, y, own, shared, 0.0))
    assert gradcheck(rows, (z.requires_grad_(),))
    assert gradgradcheck(rows, (z,))


@pytest.mark.parametrize("eps", [0.0, 1e-3])
def test_derivatives_agree_with_finite_differences(monkeypatch, eps):
    """First and second derivatives, as the losses call the kernel."""
    monkeypatch.setattr(dispatch, "MIN_BLOCKED_LOGITS", 0)
    z, y = example(4, 3)
    z.requires_grad_()
    prior = torch.tensor([0.2, 0.3, 0.5], dtype=z.dtype)

    def loss(t):
        return peer_loss(t, y, alpha=0.6, eps=eps, noisy_prior=prior, reduction="none").mean()

    assert gradcheck(loss, (z,))
    assert gradgradcheck(loss, (z,))


def test_functional_transforms_use_the_plain_formula(monkeypatch):
    """Under torch.func and in forward mode large batches use plain operations and give the usual gradient."""
    monkeypatch.setattr(dispatch, "MIN_BLOCKED_LOGITS", 0)
    z, y = example(4, 3)
    prior = torch.full((3,), 1 / 3, dtype=z.dtype)

    def total(t):
        return peer_loss(t, y, alpha=0.5, eps=0.0, noisy_prior=prior, reduction="none").sum()

    expected = 0.5 * torch.softmax(z, 1) - torch.eye(3, dtype=z.dtype)[y] + 0.5 * prior
    torch.testing.assert_close(torch.func.grad(total)(z), expected)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(z.clone().requires_grad_(), torch.ones_like(z))
        slope = forward_ad.unpack_dual(total(dual)).tangent
    torch.testing.assert_close(slope, expected.sum())


def test_single_precision_agrees_with_double(monkeypatch):
    """float32 in, float32 out, with plain operations and with blocks."""
    z, y = example(50, 70)
    for small in (1 << 30, 0):
        monkeypatch.setattr(dispatch, "MIN_BLOCKED_LOGITS", small)
        for eps in (0.0, 1e-5):
            single, double = (
                peer_loss(t.requires_grad_(), y, alpha=0.8, eps=eps, reduction="none")
                for t in (z.float(), z.clone())
            )
            assert single.dtype == torch.float32
            torch.testing.assert_close(single.double(), double, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("k", [2, 3, 100])
@pytest.mark.parametrize("eps", [0.0, 1e-5, 0.1])
@pytest.mark.parametrize("masked", [False, True])
def test_blocks_of_soft_targets_agree_with_the_plain_formula(monkeypatch, k, eps, masked):
    """Values, gradients, second derivatives; entries may be negative, and a masked class has the factor 0."""
    z, _ = example(10, k)
    q = torch.softmax(example(10, k, seed=1)[0], dim=1) * 1.2 - 0.2 / k
    shared = -0.7 * torch.softmax(torch.arange(k, dtype=z.dtype) / k, 0)
    if masked and k > 2:
        z[2, 1], q[2, 1], shared[1] = -torch.inf, 0.0, 0.0
    upstream = torch.linspace(-1, 2, 10, dtype=z.dtype)
    results = []
    monkeypatch.setattr(blocked, "SOFT_BLOCK", 4 * k)  # four rows
    paths = [reference.cross_entropy_rows, blocked.blocked_rows]
    if eps == 0:  # as on a GPU
        paths.append(lambda t, q, own, shared, *_, **__: blocked._UnclippedRows.apply(t, q, own, shared))
    for compute in paths:
        t = z.clone().requires_grad_()
        rows = compute(t, q, None, shared, eps, masked=masked)
        (grad,) = torch.autograd.grad(rows, t, upstream, create_graph=True)
        (second,) = torch.autograd.grad(grad.square().sum(), t)
        (first,) = torch.autograd.grad(compute(t, q, None, shared, eps, masked=masked), t, upstream)
        results.append((rows.detach(), grad.detach(), second, first))
    for found in results[1:]:
        torch.testing.assert_close(found, results[0], rtol=1e-9, atol=1e-12)
