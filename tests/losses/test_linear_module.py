"""LinearPeerLoss is PeerLoss of a layer's logits, with the same state."""

import pytest
import torch
from torch import nn

from peerloss import AlphaSchedule, LinearPeerLoss, PeerLoss
from peerloss.exceptions import DivergenceError, DivergenceWarning, InvalidInputError


def example(n=20, d=4, k=6, seed=0):
    generator = torch.Generator().manual_seed(seed)
    layer = nn.Linear(d, k, dtype=torch.float64)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    hidden = torch.randn(n, d, generator=generator, dtype=torch.float64).requires_grad_()
    y = torch.randint(k, (n,), generator=generator)
    y[3] = -100
    return hidden, layer, y


def gradients(loss, hidden, layer):
    return torch.autograd.grad(loss, (hidden, layer.weight, layer.bias))


def test_it_counts_and_computes_as_peer_loss():
    """Over several batches and α, in training and evaluation mode: loss, gradients and counts agree."""
    ours, theirs = LinearPeerLoss(chunk_rows=7), PeerLoss()
    for seed, alpha in enumerate((1.0, 0.3, 0.0)):
        hidden, layer, y = example(seed=seed)
        for training in (True, False):
            for loss in (ours, theirs):
                loss.alpha = alpha
                loss.train(training)
            values = ours(hidden, layer, y), theirs(layer(hidden), y)
            torch.testing.assert_close(*values)
            for one, other in zip(*(gradients(v, hidden, layer) for v in values), strict=True):
                torch.testing.assert_close(one, other)
            assert torch.equal(ours.label_counts, theirs.label_counts)


def test_the_states_of_both_modules_are_the_same():
    """What one has counted can be loaded into the other."""
    hidden, layer, y = example()
    ours, theirs = LinearPeerLoss(), PeerLoss()
    ours(hidden, layer, y)
    theirs.load_state_dict(ours.state_dict())
    assert torch.equal(theirs.current_prior(), ours.current_prior())
    again = LinearPeerLoss()
    again.load_state_dict(theirs.state_dict())
    assert torch.equal(again.label_counts, ours.label_counts)


def test_a_weight_instead_of_a_layer():
    """A tensor (K, d), such as a shared embedding, is a layer without a bias."""
    hidden, layer, y = example()
    with torch.no_grad():
        layer.bias.zero_()
    assert LinearPeerLoss()(hidden, layer.weight, y) == LinearPeerLoss()(hidden, layer, y)


def test_other_layers_are_refused():
    """The message names PeerLoss, which accepts the logits of any layer."""
    hidden, layer, y = example()
    with pytest.raises(InvalidInputError, match=r"`layer` must be an nn.Linear.*got Sequential"):
        LinearPeerLoss()(hidden, nn.Sequential(layer), y)


def test_layers_that_compute_something_else_are_refused():
    """An adapter of a subclass would be left out without a word; a parametrised weight is not."""

    class Adapted(nn.Linear):
        def forward(self, rows):
            return super().forward(rows) + rows.sum(dim=-1, keepdim=True)

    hidden, layer, y = example()
    adapted = Adapted(layer.in_features, layer.out_features).to(layer.weight.dtype)
    with pytest.raises(InvalidInputError, match=r"without a `forward` or .* of its own.* got Adapted"):
        LinearPeerLoss()(hidden, adapted, y)
    nn.utils.parametrizations.weight_norm(layer)
    torch.testing.assert_close(LinearPeerLoss()(hidden, layer, y), PeerLoss()(layer(hidden), y))


def replace_forward(layer):
    """Replace the method of one layer, as adapters do without a subclass."""
    layer.forward = lambda rows: 5.0 * nn.Linear.forward(layer, rows)


@pytest.mark.parametrize(
    "change",
    [
        nn.utils.spectral_norm,  # computes the weight before each call, so without a call it is outdated
        lambda layer: layer.register_forward_hook(lambda _, __, logits: 5.0 * logits),
        replace_forward,
    ],
    ids=["weight", "output", "method"],
)
def test_layers_with_hooks_are_refused(change):
    """A weight that a hook computes would be that of an earlier call; a changed output would be left out."""
    hidden, layer, y = example()
    change(layer)
    with pytest.raises(InvalidInputError, match=r"without a `forward` or forward hooks of its own"):
        LinearPeerLoss()(hidden, layer, y)


def test_it_keeps_its_number_of_classes():
    """Labels that were counted for another layer are refused, as by PeerLoss."""
    loss = LinearPeerLoss()
    hidden, layer, y = example()
    loss(hidden, layer, y)
    with pytest.raises(InvalidInputError, match="number of classes"):
        loss(hidden, nn.Linear(4, 7, dtype=torch.float64), y)


def test_diverging_training_is_detected():
    """Large logits warn, and an infinite loss raises, as in PeerLoss."""
    hidden, layer, y = example()
    with pytest.warns(DivergenceWarning, match="logits have reached") as warned:
        LinearPeerLoss()(1e5 * hidden, layer, y)
    assert warned[0].filename == __file__  # the line that called the loss
    with torch.no_grad():
        layer.bias[y[0]] = -torch.inf  # a masked class that is a label
    with pytest.raises(DivergenceError, match="not finite"):
        LinearPeerLoss(eps=0.0, alpha=0.5)(hidden, layer, y)


def test_schedules_and_shown_options():
    """AlphaSchedule sets α; the representation shows the options."""
    loss = LinearPeerLoss(chunk_rows=64)
    AlphaSchedule(loss, [(0, 0.25), (1, 1.0)])
    expected = "alpha=0.25, eps=1e-05, noisy_prior counted, reduction='mean', chunk_rows=64"
    assert repr(loss) == f"LinearPeerLoss({expected})"


def test_an_exported_program():
    """torch.export stores the logits; the program gives the numbers of the module."""
    hidden, layer, y = example()
    loss = LinearPeerLoss(noisy_prior=[1 / 6] * 6)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.loss = layer, loss

        def forward(self, hidden, y):
            return self.loss(hidden, self.layer, y)

    program = torch.export.export(Model(), (hidden, y), strict=False)
    torch.testing.assert_close(program.module()(hidden, y), loss(hidden, layer, y))


@pytest.mark.cuda
def test_cuda_counts_and_computes_as_the_cpu():
    """Over several batches and α: loss, gradients and counts agree, with a label that is ignored."""
    here, there = LinearPeerLoss(chunk_rows=7), LinearPeerLoss(chunk_rows=7).cuda()
    for seed, alpha in enumerate((1.0, 0.0, 0.3)):
        here.alpha = there.alpha = alpha
        hidden, layer, y = example(seed=seed)
        results = []
        for module, device in ((here, "cpu"), (there, "cuda")):
            rows = hidden.detach().to(device, torch.float32).requires_grad_()
            copy = nn.Linear(layer.in_features, layer.out_features, device=device)
            copy.load_state_dict(layer.state_dict())
            loss = module(rows, copy, y.to(device))
            results.append([loss, *gradients(loss, rows, copy), module.label_counts])
        for one, other in zip(*results, strict=True):
            torch.testing.assert_close(other.cpu(), one, rtol=1e-4, atol=1e-6)
