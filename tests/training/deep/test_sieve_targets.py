"""What the two algorithms of the sieve share."""

import pytest
import torch

from peerloss.exceptions import InvalidInputError
from peerloss.functional import loss_matrix, plain_loss
from peerloss.training import Sieve
from peerloss.training.deep._sieve_targets import FixedTargets, RefreshedTargets, balance_classes, soft_loss
from tests.training.deep.toy import first_targets

UNIFORM = torch.full((3,), 1 / 3)


def random_probs(n, seed):
    return torch.softmax(2 * torch.randn(n, 3, generator=torch.Generator().manual_seed(seed)), dim=1)


@pytest.mark.parametrize("settings", [{"refresh_every": 0}, {"trust": 1.0}, {"balance": True}])
def test_rows_without_a_label_get_the_prediction_and_change_nothing_else(settings):
    """They are never kept, T is counted without them, and their target is the prediction."""
    probs = random_probs(60, seed=2)
    if "balance" in settings:
        probs = torch.cat((balance_classes(probs[:40]), balance_classes(probs[40:])))
    y = torch.arange(60) % 3
    y[40:] = -1
    targets, kept = first_targets(probs, y, **settings)
    alone, kept_alone = first_targets(probs[:40], y[:40], **settings)
    torch.testing.assert_close(targets[:40], alone, rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(
        targets[40:], probs[40:] * probs[40:].amax(dim=1, keepdim=True), rtol=1e-3, atol=1e-5
    )
    assert kept.tolist() == [*kept_alone.tolist(), *[False] * 20]
    assert kept.any()


@pytest.mark.parametrize("refresh_every", [0, 1])
def test_there_are_no_targets_before_the_first_round(refresh_every):
    """The labels are the targets until a teacher has predicted."""
    sieve = FixedTargets if refresh_every == 0 else RefreshedTargets
    source = sieve(
        Sieve(start=0.5, refresh_every=refresh_every),
        torch.arange(3),
        epochs=4,
        predict=lambda **_: torch.eye(3),
        mirrored=False,
    )
    assert source.targets_for(0) is None
    assert not source.has_started
    assert source.targets_for(2) is not None
    assert source.has_started


def test_balanced_predictions():
    """Classes get equal means, odds between rows stay, and balanced predictions do not change."""
    rows = random_probs(50, seed=1)
    even = balance_classes(rows * torch.tensor([0.2, 0.3, 0.5]))
    torch.testing.assert_close(even.mean(dim=0), UNIFORM, rtol=1e-4, atol=0)
    torch.testing.assert_close(even.sum(dim=1), torch.ones(50))
    odds = (even[:, 0] / even[:, 1]) / (rows[:, 0] / rows[:, 1])
    torch.testing.assert_close(odds, odds[:1].expand(50), rtol=1e-4, atol=0)
    torch.testing.assert_close(balance_classes(even), even, rtol=1e-3, atol=1e-6)
    skewed = balance_classes(rows, (0.5, 0.3, 0.2))
    torch.testing.assert_close(skewed.mean(dim=0), torch.tensor([0.5, 0.3, 0.2]), rtol=1e-4, atol=0)
    torch.testing.assert_close(balance_classes(skewed), balance_classes(rows), rtol=1e-3, atol=1e-5)
    never = balance_classes(torch.tensor([[0.5, 0.5, 0.0], [0.6, 0.4, 0.0]]))
    assert bool(torch.isfinite(never).all())


def test_balance_changes_which_labels_are_kept():
    """A class that the teacher prefers loses its advantage."""
    probs = torch.tensor([[0.9, 0.1], [0.9, 0.1], [0.9, 0.1], [0.6, 0.4]])
    y = torch.ones(4, dtype=torch.long)
    plain, even, known = (
        first_targets(probs, y, trust=0.0, balance=balance).kept for balance in (False, True, (0.1, 0.9))
    )
    assert plain.tolist() == [False] * 4
    assert even.tolist() == [False, False, False, True]
    assert known.tolist() == [True] * 4


def test_class_shares_must_match_the_number_of_classes():
    """The message gives the expected number of entries."""
    with pytest.raises(InvalidInputError, match=r"`balance` must have 3 entries"):
        first_targets(torch.eye(3), torch.arange(3), balance=(0.5, 0.5))


def test_soft_loss_of_labels_is_cross_entropy():
    """One-hot targets give the plain loss, and the soft loss is linear in the targets."""
    torch.manual_seed(0)
    logits, y = torch.randn(5, 3), torch.tensor([0, 1, 2, 0, 1])
    torch.testing.assert_close(soft_loss(logits, torch.eye(3)[y]), plain_loss(logits, y, eps=0.0))
    torch.testing.assert_close(
        soft_loss(logits, torch.full((5, 3), 0.5)), 0.5 * loss_matrix(logits, eps=0.0).sum() / 5
    )
