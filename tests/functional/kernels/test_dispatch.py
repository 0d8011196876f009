"""The function and the module compute a peer loss by one entry point and the same paths."""

import itertools

import pytest
import torch
from torch.autograd import forward_ad

from peerloss import PeerLoss
from peerloss.functional import peer_loss
from peerloss.functional.kernels import dispatch
from tests.functional.kernels.paths import PRIOR, declines, example, value_and_gradient

pytest.importorskip("numba", reason="the fast path on the CPU needs numba")


@pytest.mark.parametrize("prior", [None, PRIOR], ids=["counted", "given"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("eps", [0.0, 1e-5])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("base", ["cross_entropy", "logistic"])
def test_both_twins_take_the_fast_path(prior, dtype, eps, reduction, base):
    """Loss and gradient of the function and of a new module are equal bit for bit."""
    z, y = example(dtype=dtype)
    options = {"base": base, "alpha": 0.7, "eps": eps, "reduction": reduction, "noisy_prior": prior}

    def function(logits, target):
        return peer_loss(logits, target, **options)

    assert not declines(function, z, y)
    assert not declines(PeerLoss(**options), z, y)
    module = value_and_gradient(PeerLoss(**options), z, y)
    assert all(map(torch.equal, value_and_gradient(function, z, y), module))


def test_the_function_keeps_no_counts():
    """Every call without a prior counts the labels of its own batch only."""
    z, y = example()
    first = peer_loss(z, y)
    peer_loss(z, torch.zeros_like(y))
    assert peer_loss(z, y) == first


class OtherTensor(torch.Tensor):
    """A subclass, whose operations may be overridden."""


UNUSUAL = {
    "alpha as a tensor": {"alpha": torch.tensor(0.5)},
    "a prior with a gradient": {"noisy_prior": PRIOR.clone().requires_grad_()},
    "a prior of a subclass of Tensor": {"noisy_prior": PRIOR.as_subclass(OtherTensor)},
    "a prior on another device": {"noisy_prior": PRIOR.to("meta")},
    "an ignore_index of more than 64 bits": {"ignore_index": 2**70},
    "a boolean ignore_index": {"ignore_index": True},
    "class weights": {"weight": torch.ones(3)},
    "a score matrix": {"score_matrix": torch.eye(3)},
    "no reduction": {"reduction": "none"},
    "sampled peers": {"peers": "sampled"},
    "another base": {"base": "gce:0.5"},
}


@pytest.mark.parametrize("what", UNUSUAL)
def test_the_function_leaves_unusual_settings_to_torch(what):
    """The fast paths decline them, as they do for the module."""
    assert declines(lambda z, y: peer_loss(z, y, **UNUSUAL[what]), *example())


def test_gradients_flow_into_alpha_and_the_prior():
    """A prior or an α that is learned, by backward or by forward mode, gets its derivative."""
    z, y = example()
    prior, alpha = PRIOR.clone().requires_grad_(), torch.tensor(0.5, dtype=z.dtype, requires_grad=True)
    for_prior, for_alpha = torch.autograd.grad(
        peer_loss(z, y, noisy_prior=prior, alpha=alpha), (prior, alpha)
    )
    assert for_prior.any()
    assert for_alpha != 0
    tangent = torch.tensor([0.1, -0.2, 0.1], dtype=z.dtype)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(PRIOR, tangent)
        slope = forward_ad.unpack_dual(peer_loss(z, y, noisy_prior=dual, alpha=0.5)).tangent
    torch.testing.assert_close(slope, for_prior @ tangent)


def test_every_path_of_cross_entropy_agrees(monkeypatch):
    """numba, plain operations and blocks give one loss and one gradient."""
    z, y = example(20)
    results = [value_and_gradient(lambda t, labels: peer_loss(t, labels, alpha=0.7), z, y)]
    monkeypatch.setattr(dispatch.numba_cpu, "accepts", lambda *_: False)
    for smallest in (1 << 30, 0):
        monkeypatch.setattr(dispatch, "MIN_BLOCKED_LOGITS", smallest)
        results.append(value_and_gradient(lambda t, labels: peer_loss(t, labels, alpha=0.7), z, y))
    for one, other in itertools.pairwise(results):
        for ours, theirs in zip(one, other, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
