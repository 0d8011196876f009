"""A class masked by −inf logits is left out if its coefficient is 0, in every path."""

import numpy as np
import pytest
import torch

from peerloss import BackwardLoss, PeerLoss
from peerloss.functional import BASES, backward_loss, f_divergence_loss, peer_loss, plain_loss
from peerloss.functional.kernels import blocked, dispatch, reference
from tests.functional.kernels.paths import Fast, InTorch

PRIOR = torch.tensor([0.3, 0.7, 0.0], dtype=torch.float64)
UNCLIPPED = [{"base": "cross_entropy", "eps": 0.0}, {"base": "logistic"}, {"base": "hinge"}]
#: Three classes, the third one untouched by noise and without influence on the others.
T = np.array([[0.8, 0.2, 0.0], [0.3, 0.7, 0.0], [0.0, 0.0, 1.0]])


def masked(n=6, seed=0):
    """Logits of three classes, the third one masked, and labels of the other two."""
    rng = np.random.default_rng(seed)
    z = torch.tensor(rng.normal(size=(n, 3)))
    z[:, 2] = -torch.inf
    return z, torch.tensor(rng.integers(2, size=n))


def value_and_gradient(loss, z, y):
    z = z.clone().requires_grad_()
    value = loss(z, y)
    (gradient,) = torch.autograd.grad(value.sum(), z)
    return value.detach(), gradient


def agree(loss, without):
    """Check that three classes with one masked have the loss and the gradient of the other two."""
    z, y = masked()
    value, gradient = value_and_gradient(loss, z, y)
    expected, slope = value_and_gradient(without, z[:, :2], y)
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(gradient[:, :2], slope)
    assert not gradient[:, 2].any()


@pytest.mark.parametrize("base", sorted(set(BASES) - {"zero_one"}))
def test_the_plain_loss_is_finite(base):
    """As torch's cross entropy is, for every base; the masked class gets no gradient."""
    z, y = masked()
    value, gradient = value_and_gradient(lambda t, labels: plain_loss(t, labels, base=base, eps=0.0), z, y)
    assert torch.isfinite(value)
    assert torch.isfinite(gradient).all()


@pytest.mark.parametrize("base", sorted(set(BASES) - {"zero_one", "unhinged"}))
@pytest.mark.parametrize("k", [2, 3, 5])
def test_all_classes_but_one_may_be_masked(base, k):
    """The prediction is certain, so its loss and gradient are 0; those of other rows do not change."""
    z = torch.randn(4, k, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    y = torch.tensor([1, 0, 1, 0])
    alone = z.clone()
    alone[0] = -torch.inf
    alone[0, 1] = z[0, 1]

    def loss(t, labels):
        return plain_loss(t, labels, base=base, eps=0.0, reduction="none")

    value, gradient = value_and_gradient(loss, alone, y)
    expected, slope = value_and_gradient(loss, z, y)
    torch.testing.assert_close(value[1:], expected[1:])
    torch.testing.assert_close(gradient[1:], slope[1:])
    assert value[0] == 0
    assert not gradient[0].any()


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("options", [*UNCLIPPED, {"base": "unhinged"}])
@pytest.mark.parametrize("peers", ["expected", "sampled"])
def test_peer_loss_is_that_of_the_other_classes(options, peers, reduction):
    """A masked class with prior 0 changes neither loss nor gradient, with a given prior."""
    more = {"peers": peers, "alpha": 0.8, "reduction": reduction, **options}

    def with_prior(prior):
        prior = None if peers == "sampled" else prior
        return lambda z, y: peer_loss(
            z, y, noisy_prior=prior, generator=torch.Generator().manual_seed(0), **more
        )

    agree(with_prior(PRIOR), with_prior(PRIOR[:2]))


@pytest.mark.parametrize("options", UNCLIPPED)
def test_the_prior_may_be_counted(options):
    """No label is of the masked class, so its counted frequency is 0, in the function and in the module."""
    agree(lambda z, y: peer_loss(z, y, **options), lambda z, y: peer_loss(z, y, **options))
    for kind in (PeerLoss, InTorch):
        agree(kind(**options), PeerLoss(**options))


@pytest.mark.parametrize("options", UNCLIPPED)
def test_alpha_zero_is_the_plain_loss(options):
    """Also if the prior of the masked class is positive."""
    z, y = masked()
    prior = torch.tensor([0.3, 0.3, 0.4], dtype=z.dtype)
    torch.testing.assert_close(
        peer_loss(z, y, alpha=0.0, noisy_prior=prior, **options), plain_loss(z, y, **options)
    )


@pytest.mark.parametrize("options", UNCLIPPED)
def test_weights_and_score_matrices(options):
    """A class of weight 0, or with zeros in M, is left out as well."""
    weight, matrix = torch.tensor([1.0, 2.0, 0.0]), torch.tensor([[1.0, 0.0, 0], [1, 1, 0], [0, 0, 0]])
    share = torch.tensor([0.3, 0.3, 0.4], dtype=torch.float64)
    agree(
        lambda z, y: peer_loss(z, y, weight=weight, noisy_prior=PRIOR, **options),
        lambda z, y: peer_loss(z, y, weight=weight[:2], noisy_prior=PRIOR[:2], **options),
    )
    agree(
        lambda z, y: peer_loss(z, y, score_matrix=matrix, noisy_prior=PRIOR, **options),
        lambda z, y: peer_loss(z, y, score_matrix=matrix[:2, :2], noisy_prior=PRIOR[:2], **options),
    )
    z, y = masked()
    assert torch.isfinite(peer_loss(z, y, weight=weight, noisy_prior=share, **options))


@pytest.mark.parametrize("options", UNCLIPPED)
def test_backward_correction(options):
    """An isolated class has zeros in T⁻¹: the loss is that of the others."""
    agree(
        lambda z, y: backward_loss(z, y, T, **options), lambda z, y: backward_loss(z, y, T[:2, :2], **options)
    )
    agree(BackwardLoss(T, **options), BackwardLoss(T[:2, :2], **options))


@pytest.mark.parametrize("divergence", ["total_variation", "jensen_shannon"])
def test_divergences(divergence):
    """They are finite with a masked class, too."""
    agree(
        lambda z, y: f_divergence_loss(z, y, divergence=divergence, noisy_prior=PRIOR),
        lambda z, y: f_divergence_loss(z, y, divergence=divergence, noisy_prior=PRIOR[:2]),
    )


@pytest.mark.parametrize("eps", [0.0, 1e-5])
def test_the_blockwise_kernel(monkeypatch, eps):
    """Blocks of rows, first and second derivatives."""
    monkeypatch.setattr(dispatch, "MIN_BLOCKED_LOGITS", 0)
    monkeypatch.setattr(blocked, "BLOCK", 6)
    options = {"noisy_prior": PRIOR, "eps": eps, "alpha": 0.8, "reduction": "none"}
    z, y = masked()
    rows, gradient = value_and_gradient(lambda t, labels: peer_loss(t, labels, **options), z, y)
    monkeypatch.setattr(dispatch, "MIN_BLOCKED_LOGITS", 1 << 30)
    expected, slope = value_and_gradient(lambda t, labels: peer_loss(t, labels, **options), z, y)
    assert torch.isfinite(rows).all()
    torch.testing.assert_close(rows, expected)
    torch.testing.assert_close(gradient, slope)
    monkeypatch.setattr(dispatch, "MIN_BLOCKED_LOGITS", 0)
    t = z.clone().requires_grad_()
    (first,) = torch.autograd.grad(peer_loss(t, y, **options).sum(), t, create_graph=True)
    (second,) = torch.autograd.grad(first.square().sum(), t)
    assert torch.isfinite(second).all()


def test_unclipped_rows_on_a_gpu():
    """The rows without a clip, as on a GPU."""
    z, y = masked()
    shared = -0.8 * PRIOR
    rows, gradient = value_and_gradient(
        lambda t, labels: blocked._UnclippedRows.apply(t, labels, None, shared), z, y
    )
    torch.testing.assert_close(rows, reference.cross_entropy_rows(z, y, None, shared, 0.0))
    assert torch.isfinite(gradient).all()


@pytest.mark.parametrize("prior", [None, PRIOR])
def test_the_numba_path(prior):
    """The masked class is left out there too, with a counted and a given prior."""
    pytest.importorskip("numba", reason="this path needs numba")
    agree(
        Fast(eps=0.0, noisy_prior=prior),
        InTorch(eps=0.0, noisy_prior=None if prior is None else prior[:2]),
    )
