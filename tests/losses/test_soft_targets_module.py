"""Loss modules with probabilities as targets: twins of the functions, and the counted prior."""

import copy

import numpy as np
import pytest
import torch

from peerloss import BackwardLoss, DMILoss, ForwardLoss, PeerLoss, PlainLoss, functional
from peerloss.exceptions import DivergenceError, InvalidInputError
from peerloss.losses import FDivergenceLoss

T3 = [[0.8, 0.1, 0.1], [0.2, 0.7, 0.1], [0.0, 0.1, 0.9]]
W3 = [0.5, 2.0, 1.0]
LOSSES = {
    "plain": lambda: PlainLoss("gce"),
    "peer": lambda: PeerLoss(alpha=0.8),
    "peer, unclipped": lambda: PeerLoss(alpha=0.8, eps=0.0),
    "peer, ramp": lambda: PeerLoss("ramp", noisy_prior=[0.2, 0.3, 0.5]),
    "peer, weighted": lambda: PeerLoss(weight=W3),
    "backward": lambda: BackwardLoss(T3),
    "forward": lambda: ForwardLoss(T3),
    "dmi": DMILoss,
    "f-divergence": FDivergenceLoss,
}


def example(n=16, k=3, seed=0, device="cpu", dtype=torch.float32):
    rng = np.random.default_rng(seed)
    z, q = (torch.tensor(rng.normal(size=(n, k)), dtype=dtype) for _ in range(2))
    q = torch.softmax(q, dim=1)
    q[2] = torch.nan
    return z.to(device).requires_grad_(), q.to(device)


def value_and_gradient(loss, z, q):
    value = loss(z, q)
    (gradient,) = torch.autograd.grad(value, z)
    return value.detach(), gradient


def test_modules_are_twins_of_the_functions():
    """Each module computes the loss of the function with the same options."""
    z, q = example(dtype=torch.float64)
    weight = torch.tensor(W3, dtype=torch.float64)
    pairs = [
        (PlainLoss("sigmoid", weight=W3), functional.plain_loss(z, q, base="sigmoid", weight=weight)),
        (PeerLoss(alpha=0.6, weight=W3), functional.peer_loss(z, q, alpha=0.6, weight=weight)),
        (BackwardLoss(T3, weight=W3), functional.backward_loss(z, q, T3, weight=weight)),
        (ForwardLoss(T3, weight=W3), functional.forward_loss(z, q, T3, weight=weight)),
        (DMILoss(), functional.dmi_loss(z, q)),
        (FDivergenceLoss(), functional.f_divergence_loss(z, q)),
    ]
    for module, expected in pairs:
        torch.testing.assert_close(module(z, q), expected)


@pytest.mark.parametrize("kind", [PeerLoss, FDivergenceLoss])
def test_the_counted_prior_is_the_mean_of_all_targets_so_far(kind):
    """Over batches in training mode; rows without a label are not counted, evaluation counts nothing."""
    loss, rows = kind(), []
    for seed in range(3):
        z, q = example(seed=seed)
        value = loss(z, q)
        rows.append(q[~torch.isnan(q).any(dim=1)])
        prior = torch.cat(rows).mean(dim=0)
        torch.testing.assert_close(loss.current_prior(), prior)
        torch.testing.assert_close(value, kind(noisy_prior=prior)(z, q))
    loss.eval()
    loss(*example(seed=9))
    torch.testing.assert_close(loss.current_prior(), torch.cat(rows).mean(dim=0))


def test_one_loss_counts_class_codes_and_soft_targets():
    """In any order, as in a training run that changes from labels to mixed labels."""
    codes = torch.tensor([0, 0, 1, 2])
    for first in ("codes", "soft"):
        loss = PeerLoss()
        batches = [(torch.zeros(4, 3, requires_grad=True), codes), example()]
        for z, target in batches if first == "codes" else batches[::-1]:
            loss(z, target).backward()
        known = batches[1][1].nan_to_num()
        expected = torch.bincount(codes) + known.double().sum(dim=0)
        torch.testing.assert_close(loss.label_counts, expected)
        loss(*batches[0]).backward()  # counts that are not integers are continued, not truncated
        torch.testing.assert_close(loss.label_counts, expected + torch.bincount(codes))


def test_counts_of_soft_targets_are_saved_and_reset():
    """A state dict holds fractions; loading replaces integer counts, and a reset counts class codes again."""
    loss = PeerLoss()
    loss(*example())
    for other in (PeerLoss(), copy.deepcopy(loss)):
        if len(other.label_counts) == 0:
            other(torch.zeros(3, 3), torch.tensor([0, 1, 2]))
        other.load_state_dict(loss.state_dict())
        torch.testing.assert_close(other.label_counts, loss.label_counts)
    back = copy.deepcopy(loss)
    integers = PeerLoss()
    integers(torch.zeros(3, 3), torch.tensor([0, 1, 2]))
    back.load_state_dict(integers.state_dict())
    assert back.label_counts.tolist() == [1, 1, 1]
    loss.reset_prior()
    assert loss.current_prior() is None
    loss(torch.zeros(3, 3, requires_grad=True), torch.tensor([0, 1, 1]))
    assert loss.label_counts.tolist() == [1, 2, 0]
    assert loss.label_counts.dtype == torch.int64


@pytest.mark.parametrize("cast", ["half", "bfloat16", "float", "double"])
def test_a_cast_does_not_change_the_counts(cast):
    """Half precision would round them, and more than 65,504 would become infinite."""
    loss = PeerLoss()
    logits, targets = example()
    loss(logits.repeat(50_000, 1), targets.repeat(50_000, 1))
    counts = loss.label_counts.clone()
    assert counts.max() > 65_504
    getattr(loss, cast)()
    assert loss.label_counts.dtype == torch.float64
    assert torch.equal(loss.label_counts, counts)
    loss(logits, targets)
    expected = counts + targets.nan_to_num().double().sum(dim=0)
    torch.testing.assert_close(loss.label_counts, expected, rtol=1e-6, atol=0.0)


def test_binary_labels_and_soft_targets_do_not_mix():
    """A loss that has counted L binary labels refuses class probabilities of the same shape."""
    loss = PeerLoss()
    loss(torch.zeros(4, 3), torch.ones(4, 3, dtype=torch.int64))
    with pytest.raises(
        InvalidInputError, match=r"3 binary labels have been counted, these logits have 3 classes"
    ):
        loss(*example())


@pytest.mark.parametrize("name", LOSSES)
def test_compiled_losses_are_one_graph_and_agree(name):
    """fullgraph=True finds no break, and the numbers are those of eager mode."""
    z, q = example()
    eager = value_and_gradient(LOSSES[name](), z, q)
    torch.compiler.reset()
    compiled = torch.compile(LOSSES[name](), backend="aot_eager", fullgraph=True)
    for ours, reference in zip(value_and_gradient(compiled, z, q), eager, strict=True):
        torch.testing.assert_close(ours, reference)


def test_diverging_training_is_detected():
    """The watch reads losses of soft targets too."""
    z, q = example()
    with torch.no_grad():
        z[0, 0] = -torch.inf
    with pytest.raises(DivergenceError, match="the loss is not finite"):
        PlainAsPeer()(z, q)


class PlainAsPeer(PeerLoss):
    """Peer loss without a clip, which is infinite for a masked class with a positive probability."""

    def __init__(self):
        super().__init__(alpha=0.0, eps=0.0)


@pytest.mark.cuda
@pytest.mark.parametrize("name", LOSSES)
def test_cuda_agrees_with_the_cpu_and_never_synchronises(name):
    """Values and gradients on the GPU, with rows without a label, while synchronising is forbidden."""
    reference = value_and_gradient(LOSSES[name](), *example(n=4096))
    z, q = example(n=4096, device="cuda")
    LOSSES[name]().cuda()(z, q)  # first call allocates
    fresh = LOSSES[name]().cuda()
    torch.cuda.synchronize()
    if name != "dmi":  # the determinant itself synchronises
        torch.cuda.set_sync_debug_mode("error")
    try:
        ours = value_and_gradient(fresh, z, q)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    for value, wanted in zip(ours, reference, strict=True):
        torch.testing.assert_close(value.cpu(), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.cuda
def test_wrong_rows_on_cuda_are_nan_and_counts_continue():
    """A row that does not sum to one makes the loss NaN; Triton declines counts that are not integers."""
    z, q = example(device="cuda")
    codes = torch.zeros(16, dtype=torch.int64, device="cuda")
    loss = PeerLoss().cuda()
    loss(z, q)
    loss(z, codes)
    expected = q.nan_to_num().double().sum(dim=0) + torch.bincount(codes, minlength=3)
    torch.testing.assert_close(loss.label_counts, expected)
    assert torch.isnan(PeerLoss().cuda()(z, 2.0 * q))
