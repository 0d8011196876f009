"""torch.func, the meta device and torch.export."""

import pytest
import torch

from peerloss import BackwardLoss, DMILoss, ForwardLoss, PeerLoss, PlainLoss
from peerloss.functional import BASES, peer_loss, plain_loss
from peerloss.losses import FDivergenceLoss

T3 = [[0.8, 0.1, 0.1], [0.2, 0.7, 0.1], [0.0, 0.1, 0.9]]
PRIOR = [0.2, 0.3, 0.5]


def example(n=8, k=3, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, k, generator=generator, dtype=dtype), torch.randint(k, (n,), generator=generator)


def counted(loss):
    """Return a module in evaluation mode, with labels counted before."""
    loss(*example(30))
    return loss.eval()


BY_ROW = {
    "base": lambda: PlainLoss("hinge"),
    "peer": lambda: PeerLoss(alpha=0.7, noisy_prior=PRIOR),
    "peer_unclipped": lambda: PeerLoss(eps=0.0, noisy_prior=PRIOR),
    "peer_ramp": lambda: PeerLoss("ramp", noisy_prior=PRIOR, weight=[1.0, 2.0, 0.5]),
    "peer_scored": lambda: PeerLoss("sigmoid", noisy_prior=PRIOR, score_matrix=torch.eye(3)),
    "peer_counted": lambda: counted(PeerLoss()),
    "peer_uncounted": lambda: PeerLoss().eval(),
    "backward": lambda: BackwardLoss(T3),
    "forward": lambda: ForwardLoss(T3),
    "f_divergence": lambda: FDivergenceLoss(noisy_prior=PRIOR),
    "f_divergence_counted": lambda: counted(FDivergenceLoss("jensen_shannon")),
}
LOSSES = {**BY_ROW, "dmi": DMILoss}


@pytest.mark.parametrize("name", BY_ROW)
def test_gradients_per_sample(name):
    """With vmap over grad each row has the gradient of a batch of one."""
    loss, (z, y) = BY_ROW[name](), example()

    def of_row(weight, x, label):
        return loss((weight @ x)[None], label[None])

    weight = torch.randn(3, 3, generator=torch.Generator().manual_seed(1), dtype=z.dtype)
    gradients = torch.vmap(torch.func.grad(of_row), in_dims=(None, 0, 0))(weight, z, y)
    for x, label, gradient in zip(z, y, gradients, strict=True):
        w = weight.clone().requires_grad_()
        (expected,) = torch.autograd.grad(of_row(w, x, label), w)
        torch.testing.assert_close(gradient, expected)


@pytest.mark.parametrize("name", LOSSES)
def test_a_stack_of_batches(name):
    """Under vmap each batch of a stack, some targets ignored, has its own loss."""
    loss = LOSSES[name]()
    z, y = (
        torch.stack([example(seed=s)[0] for s in range(4)]),
        torch.stack([example(seed=s)[1] for s in range(4)]),
    )
    y[1, 3] = -100
    expected = torch.stack([loss(*batch) for batch in zip(z, y, strict=True)])
    torch.testing.assert_close(torch.vmap(loss)(z, y), expected)


@pytest.mark.parametrize("base", sorted(BASES))
def test_every_base_under_vmap(base):
    """The functions too, with the prior counted in each batch and with sampled peers."""
    z, y = example(12)
    z, y = z.view(3, 4, 3), y.view(3, 4)
    for function in (plain_loss, peer_loss):
        expected = torch.stack([function(*batch, base=base) for batch in zip(z, y, strict=True)])
        torch.testing.assert_close(
            torch.vmap(lambda t, labels: function(t, labels, base=base))(z, y), expected
        )
    sampled = torch.vmap(
        lambda t, labels: peer_loss(t, labels, base=base, peers="sampled"), randomness="different"
    )
    assert torch.isfinite(sampled(z, y)).all()


@pytest.mark.parametrize("name", LOSSES)
def test_functional_gradients_and_hessians(name):
    """torch.func.grad is the ordinary gradient; forward over reverse mode works."""
    loss, (z, y) = LOSSES[name](), example()
    t = z.clone().requires_grad_()
    (expected,) = torch.autograd.grad(loss(t, y), t)
    torch.testing.assert_close(torch.func.grad(loss)(z, y), expected)
    product = torch.func.jvp(torch.func.grad(lambda z: loss(z, y)), (z,), (torch.ones_like(z),))[1]
    assert torch.isfinite(product).all()


@pytest.mark.parametrize("name", [*LOSSES, "peer_training", "peer_sampled", "f_divergence_training"])
def test_the_meta_device(name):
    """Shapes without values: a scalar on the meta device and a gradient of the right shape."""
    training = {
        "peer_training": PeerLoss,
        "peer_sampled": lambda: PeerLoss(peers="sampled"),
        "f_divergence_training": FDivergenceLoss,
    }
    loss = (LOSSES | training)[name]().to("meta")
    z = torch.empty(6, 3, device="meta", requires_grad=True)
    y = torch.empty(6, dtype=torch.long, device="meta")
    for _ in range(2):
        value = loss(z, y)
        value.backward()
        assert value.shape == ()
        assert value.is_meta
        assert z.grad.shape == (6, 3)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("strict", [False, True])
def test_exported_programs(name, strict):
    """torch.export with a batch of any size; the program gives the numbers of the module."""
    loss = LOSSES[name]()
    n = torch.export.Dim("n", min=2, max=1000)
    program = torch.export.export(loss, example(), dynamic_shapes=({0: n}, {0: n}), strict=strict)
    for size in (8, 30):
        z, y = example(size, seed=1)
        y[2] = -100
        torch.testing.assert_close(program.module()(z, y), loss(z, y))
