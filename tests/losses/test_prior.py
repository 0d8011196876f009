"""The counted prior, which all losses that need one share."""

import copy

import pytest
import torch

from peerloss import PeerLoss
from peerloss.exceptions import InvalidInputError
from peerloss.functional import f_divergence_loss, peer_loss
from peerloss.losses import FDivergenceLoss

COUNTING = {
    "peer": (PeerLoss, peer_loss),
    "peer_sigmoid": (lambda: PeerLoss("sigmoid"), lambda z, y, **kw: peer_loss(z, y, base="sigmoid", **kw)),
    "f_divergence": (FDivergenceLoss, f_divergence_loss),
}


def example(n=12, k=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    z = torch.randn(n, k, generator=generator, dtype=torch.float64)
    return z, torch.randint(k, (n,), generator=generator)


@pytest.fixture(params=COUNTING)
def pair(request):
    """Return a module that counts, and its function."""
    make, function = COUNTING[request.param]
    return make(), function


def test_labels_are_counted_over_training_batches(pair):
    """Each batch is added before its own loss; evaluation uses the counts and does not change them."""
    loss, function = pair
    seen = torch.zeros(3, dtype=torch.float64)
    for seed in range(3):
        z, y = example(seed=seed)
        seen += torch.bincount(y, minlength=3)
        torch.testing.assert_close(loss(z, y), function(z, y, noisy_prior=seen / seen.sum()))
    assert loss.label_counts.tolist() == seen.tolist()
    torch.testing.assert_close(loss.current_prior(), (seen / seen.sum()).float())
    loss.eval()
    z, y = example(seed=9)
    torch.testing.assert_close(loss(z, y), function(z, y, noisy_prior=seen / seen.sum()))
    assert loss.label_counts.tolist() == seen.tolist()
    loss.reset_prior()
    assert loss.current_prior() is None
    torch.testing.assert_close(loss(z, y), function(z, y))


def test_counts_are_saved_and_copied(pair):
    """A state dict holds them, and a new module loads them without knowing the number of classes."""
    loss, _ = pair
    loss(*example())
    fresh = copy.deepcopy(loss)
    fresh.reset_prior()
    fresh.load_state_dict(loss.state_dict())
    assert torch.equal(fresh.label_counts, loss.label_counts)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_labels_are_counted_with_gradients_only(pair, mode):
    """Validation without `loss.eval()` neither counts labels nor changes the prior."""
    loss, function = pair
    z, y = example()
    with mode():
        torch.testing.assert_close(loss(z, y), function(z, y))
    assert loss.current_prior() is None
    loss(z, y)
    counted = loss.label_counts.clone()
    with mode():
        loss(*example(seed=1))
    assert torch.equal(loss.label_counts, counted)


def test_a_first_batch_under_inference_mode_changes_nothing(pair):
    """Later training has the loss and the gradient of a module without that batch."""
    loss, _ = pair
    other = copy.deepcopy(loss)
    with torch.inference_mode():
        loss(*example())
    for seed in range(3):
        values = []
        for module in (loss, other):
            z, y = example(seed=seed)
            z.requires_grad_()
            value = module(z, y)
            value.backward()
            values.append((value.detach(), z.grad))
        torch.testing.assert_close(*values)


def test_counts_loaded_under_inference_mode_grow_in_training(pair):
    """The buffer is then an inference tensor, which training replaces."""
    loss, _ = pair
    loss(*example())
    fresh = copy.deepcopy(loss)
    fresh.reset_prior()
    with torch.inference_mode():
        fresh.load_state_dict(loss.state_dict())
    fresh(*example(300))
    fresh(*example(300))
    assert int(fresh.label_counts.sum()) == 612


@pytest.mark.parametrize("transform", ["vmap", "grad"])
def test_counting_under_a_transform_is_refused_with_the_remedy(pair, transform):
    """Labels cannot be counted there; a given prior or evaluation mode works."""
    loss, _ = pair
    z, y = example()
    call = {
        "vmap": lambda: torch.vmap(lambda t, label: loss(t[None], label[None]))(z, y),
        "grad": lambda: torch.func.grad(loss)(z, y),
    }[transform]
    with pytest.raises(InvalidInputError, match=r"`noisy_prior` must be given under torch\.func.*loss\.eval"):
        call()
    assert loss.current_prior() is None
    loss(z, y)
    loss.eval()
    assert torch.isfinite(call()).all()


@pytest.mark.parametrize("prior", [None, [0.5, 0.5]])
def test_checkpoints_without_counts_load(prior):
    """A saved loss without counts loads, alone and inside a module, and starts to count."""
    loss = FDivergenceLoss(noisy_prior=prior)
    saved = {name: value for name, value in loss.state_dict().items() if name != "label_counts"}
    loss.load_state_dict(saved)
    together = torch.nn.ModuleDict({"loss": loss})
    together.load_state_dict({f"loss.{name}": value for name, value in saved.items()})
    assert "label_counts" not in saved


def test_a_loss_built_in_inference_mode_takes_another_alpha():
    """What was built under torch.inference_mode() can be changed and trained outside."""
    with torch.inference_mode():
        loss = PeerLoss(alpha=1.0, noisy_prior=[0.5, 0.5])
    loss.alpha = 2.0
    logits = torch.zeros(2, 2, requires_grad=True)
    loss(logits, torch.tensor([0, 1])).backward()
    assert loss.alpha == 2.0
