"""PeerLoss on several binary labels per example, and on one label per position: their state."""

import copy

import pytest
import torch

from peerloss import PeerLoss, PlainLoss
from peerloss.exceptions import InvalidInputError
from peerloss.functional import peer_loss


def example(n=8, labels=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    z = torch.randn(n, labels, generator=generator, dtype=torch.float64)
    return z, torch.randint(2, (n, labels), generator=generator)


def test_each_label_has_its_own_counts():
    """Counts are those of L separate modules; evaluation uses them and does not change them."""
    loss, separate = PeerLoss(), [PeerLoss() for _ in range(3)]
    for seed in range(3):
        z, y = example(seed=seed)
        y[0, seed] = -100
        expected = (
            sum(
                single(z[:, label], y[:, label]) * (y[:, label] != -100).sum()
                for label, single in enumerate(separate)
            )
            / (y != -100).sum()
        )
        torch.testing.assert_close(loss(z, y), expected)
    assert loss.label_counts.tolist() == [single.label_counts.tolist() for single in separate]
    counted = loss.label_counts.clone()
    z, y = example(seed=9)
    prior = counted / counted.sum(dim=1, keepdim=True)
    torch.testing.assert_close(loss.eval()(z, y), peer_loss(z, y, noisy_prior=prior))
    assert torch.equal(loss.label_counts, counted)
    torch.testing.assert_close(loss.current_prior(), prior.float())


def test_counts_are_saved_and_copied():
    """A new module loads them without knowing the number of labels."""
    loss = PeerLoss()
    z, y = example()
    loss(z, y)
    loaded = PeerLoss()
    loaded.load_state_dict(loss.state_dict())
    for other in (loaded, copy.deepcopy(loss)):
        torch.testing.assert_close(other.eval()(z, y), loss.eval()(z, y))


def test_a_module_is_for_one_task():
    """Counted binary labels do not fit classes, and the other way round; a given prior must fit too."""
    z, y = example()
    loss = PeerLoss()
    loss(z, y)
    with pytest.raises(InvalidInputError, match=r"labels of 3 binary labels .* have 3 classes"):
        loss(z, y.sum(dim=1).clamp(max=2))
    loss.reset_prior()
    loss(z, y.sum(dim=1).clamp(max=2))
    with pytest.raises(InvalidInputError, match=r"labels of 3 classes .* have 3 binary"):
        loss(z, y)
    with pytest.raises(InvalidInputError, match=r"`noisy_prior` must have shape \(3, 2\)"):
        PeerLoss(noisy_prior=[0.5, 0.5])(z, y)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_positions_are_counted_as_rows(reduction):
    """(N, K, d) logits: the module's loss and counts are those of the flattened batch, kernels included."""
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(4, 3, 5, generator=generator)
    y = torch.randint(3, (4, 5), generator=generator)
    loss, flat = PeerLoss(reduction=reduction), PeerLoss(reduction=reduction)
    found, expected = loss(z, y), flat(z.movedim(1, -1).reshape(-1, 3), y.reshape(-1))
    torch.testing.assert_close(found, expected.view(found.shape))
    assert loss.label_counts.tolist() == flat.label_counts.tolist()


def test_plain_loss_of_binary_labels_is_torch_binary_cross_entropy():
    """PlainLoss(eps=0) replaces nn.BCEWithLogitsLoss, with integer targets."""
    z, y = example()
    torch.testing.assert_close(PlainLoss(eps=0.0)(z, y), torch.nn.BCEWithLogitsLoss()(z, y.double()))


def test_training_fits_both_labels_under_different_noise():
    """Two labels with different rates: a linear model recovers the sign of each clean label."""
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(400, 2, generator=generator, dtype=torch.float64)
    clean = (X > 0).long()
    rate = torch.tensor([0.1, 0.3], dtype=torch.float64)
    flip = torch.rand(400, 2, generator=generator, dtype=torch.float64) < rate
    noisy = torch.where(flip, 1 - clean, clean)
    weight = torch.zeros(2, 2, dtype=torch.float64, requires_grad=True)
    loss, optimizer = PeerLoss(alpha=0.5), torch.optim.SGD([weight], lr=1.0)
    for _ in range(60):
        optimizer.zero_grad()
        loss(X @ weight, noisy).backward()
        optimizer.step()
    right = ((X @ weight > 0).long() == clean).double().mean(dim=0)
    assert (right > 0.9).all()
