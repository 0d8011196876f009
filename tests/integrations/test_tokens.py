"""Tokens flattened for the losses."""

import pytest
import torch

from peerloss import DMILoss, PeerLoss
from peerloss.exceptions import InvalidInputError
from peerloss.functional import peer_loss
from peerloss.integrations import flatten_tokens

B, T, V = 3, 6, 5


def tokens(seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(B, T, V, generator=generator, dtype=torch.float64)
    target = torch.randint(V, (B, T), generator=generator)
    target[0, 4:] = target[2, 1:] = -100
    return logits, target


def test_shifting_pairs_each_position_with_the_next_token():
    """As slicing logits and labels would, without a copy of the logits."""
    logits, target = tokens()
    flat, labels = flatten_tokens(logits, target, shift=True)
    assert flat.data_ptr() == logits.data_ptr()
    loss = PeerLoss(alpha=0.7, noisy_prior=torch.full((V,), 1 / V))
    cut = loss(logits[:, :-1].flatten(0, 1), target[:, 1:].flatten())
    assert loss(flat, labels).item() == pytest.approx(cut.item(), abs=1e-14)


@pytest.mark.parametrize("peers", ["expected", "sampled"])
def test_padding_is_excluded_from_rows_peers_and_prior(peers):
    """The logits at padding change neither the loss nor its gradient nor the prior."""
    logits, target = tokens()
    padding = target == -100
    values, gradients = [], []
    for filling in (0.0, 50.0):
        z = logits.masked_fill(padding[..., None], filling).requires_grad_()
        loss = PeerLoss(alpha=0.9, peers=peers, generator=torch.Generator().manual_seed(1))
        value = loss(*flatten_tokens(z, target))
        value.backward()
        values.append(value.item())
        gradients.append(z.grad)
        assert (z.grad[padding] == 0).all()
        if peers == "expected":
            real = target[~padding]
            assert loss.label_counts.tolist() == torch.bincount(real, minlength=V).tolist()
    assert values[0] == values[1]
    assert torch.equal(*gradients)


def test_the_loss_is_that_of_the_real_tokens_alone():
    """Removing the padding first gives the same value."""
    logits, target = tokens()
    real = target != -100
    prior = torch.bincount(target[real], minlength=V).double() / real.sum()
    alone = peer_loss(logits[real], target[real], alpha=0.9, noisy_prior=prior)
    padded = PeerLoss(alpha=0.9)(*flatten_tokens(logits, target))
    assert padded.item() == pytest.approx(alone.item(), abs=1e-14)


def test_one_label_per_row_passes_unchanged():
    """So one integration works for sequence and for token classification."""
    logits, target = torch.zeros(4, 3), torch.arange(4) % 3
    flat, labels = flatten_tokens(logits, target)
    assert torch.equal(flat, logits)
    assert torch.equal(labels, target)
    assert DMILoss()(flat, labels).isfinite()


@pytest.mark.parametrize(
    ("logits", "target", "options", "message"),
    [
        ((2, 3, 4), (2, 4), {}, r"got logits \(2, 3, 4\) and target \(2, 4\)"),
        ((2,), (2,), {}, r"without the last dimension"),
        ((2, 4), (2,), {"shift": True}, r"`shift` is for tokens"),
    ],
)
def test_shapes_that_do_not_fit_are_named(logits, target, options, message):
    """The message shows both shapes and the right ones."""
    with pytest.raises(InvalidInputError, match=message):
        flatten_tokens(torch.zeros(logits), torch.zeros(target, dtype=torch.int64), **options)
