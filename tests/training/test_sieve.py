"""The sample sieve and what is taught instead of labels that fall through."""

import itertools
import math

import pytest
import torch

from peerloss.exceptions import InvalidInputError
from peerloss.functional import loss_matrix, plain_loss
from peerloss.training import Sieve, keep_rows
from peerloss.training._sieve import balanced, mix_pairs, sieve_targets, soft_loss

UNIFORM = torch.full((3,), 1 / 3)


def grid():
    """All probability vectors over three classes in steps of a tenth."""
    tenths = [(a, b, 10 - a - b) for a in range(11) for b in range(11 - a)]
    return torch.tensor(tenths) / 10.0


@pytest.mark.parametrize("prior", [UNIFORM, torch.tensor([0.6, 0.3, 0.1])])
def test_a_label_is_kept_when_its_loss_is_below_the_mean_over_labels(prior):
    """By enumeration: L[n, y] < Σ_k π_k L[n, k], the rule of CORES² for equal priors."""
    probabilities = grid()
    losses = -torch.log(probabilities + 1e-5)
    for label in range(3):
        y = torch.full((len(probabilities),), label)
        expected = [
            float(row[label])
            < sum(float(p) * float(value) for p, value in zip(prior, row, strict=True)) - 1e-6
            for row in losses
        ]
        kept = keep_rows(probabilities, y, prior, threshold=-1e-6)
        assert kept.tolist() == expected


def test_a_sure_teacher_keeps_exactly_what_it_agrees_with():
    """With one-hot probabilities the sieve is agreement."""
    for answer, label in itertools.product(range(3), repeat=2):
        probabilities = torch.eye(3)[[answer]]
        assert bool(keep_rows(probabilities, torch.tensor([label]), UNIFORM)) == (answer == label)


def test_a_teacher_that_knows_nothing_keeps_nothing():
    """Equal probabilities: no label says more than any other."""
    assert not keep_rows(UNIFORM.expand(3, 3), torch.arange(3), UNIFORM, threshold=-1e-6).any()


def test_a_higher_threshold_keeps_more():
    """The kept rows grow with the threshold."""
    y = torch.zeros(len(grid()), dtype=torch.long)
    strict, normal, lax = (keep_rows(grid(), y, UNIFORM, threshold=t) for t in (-2.0, 0.0, 2.0))
    assert int(strict.sum()) < int(normal.sum()) < int(lax.sum())
    assert bool((normal | ~strict).all())
    assert bool((lax | ~normal).all())


@pytest.mark.parametrize("threshold", [-1.0, 0.0, 0.5, 2.0])
def test_the_threshold_decides_where_targets_are_renewed_too(threshold):
    """By enumeration: a label is kept if its log-odds are above −threshold, at 0 above one half."""
    probabilities = grid().double()
    y = torch.zeros(len(probabilities), dtype=torch.long)
    _, kept = sieve_targets(probabilities, y, UNIFORM.double(), Sieve(trust=0.0, threshold=threshold))
    expected = [p > (1 - p) * math.exp(-threshold) for p in probabilities[:, 0].tolist()]
    assert kept.tolist() == expected


def test_targets_are_labels_where_the_teacher_agrees_and_its_answer_elsewhere():
    """One-hot teachers: kept rows teach the label, the others the answer, all with weight one."""
    y = torch.tensor([0, 1, 2, 0, 1, 2])
    answers = torch.tensor([0, 1, 2, 1, 2, 0])
    targets, kept = sieve_targets(torch.eye(3)[answers], y, UNIFORM, Sieve(renew=0))
    assert kept.tolist() == [True] * 3 + [False] * 3
    torch.testing.assert_close(targets, torch.eye(3)[answers])


def test_targets_by_hand():
    """A kept label gives the posterior p_k·T[k, ỹ], T counted from the teacher; the others its answer."""
    probabilities = torch.tensor([[0.5, 0.4, 0.1], [0.1, 0.5, 0.4], [0.4, 0.1, 0.5]])
    y = torch.tensor([0, 2, 1])
    targets, kept = sieve_targets(probabilities, y, UNIFORM, Sieve(renew=0))
    assert kept.tolist() == [True, True, False]
    # T[k, j]: each label occurs once, so its column is that row's probabilities; rows of T sum to 1 already.
    posterior = torch.tensor([0.5 * 0.5, 0.4 * 0.4, 0.1 * 0.1]) / 0.42
    torch.testing.assert_close(targets[0], posterior * posterior.max())
    posterior = torch.tensor([0.1 * 0.1, 0.5 * 0.5, 0.4 * 0.4]) / 0.42
    torch.testing.assert_close(targets[1], posterior * posterior.max())
    torch.testing.assert_close(targets[2], probabilities[2] * 0.5)


def test_the_teacher_decides_evenly_after_the_start():
    """Decisions fall before these epochs."""
    assert Sieve(start=1 / 3, rounds=2).decisions(90) == [30, 60]
    assert Sieve(start=0.25, rounds=3).decisions(8) == [2, 4, 6]


def test_renewed_targets_by_hand():
    """A label is kept as it is above one half; elsewhere the answer teaches, weighted by how sure it is."""
    answers = torch.tensor([[0.6, 0.3, 0.1], [0.6, 0.3, 0.1], [0.5, 0.25, 0.25]])
    targets, kept = sieve_targets(answers, torch.tensor([0, 1, 0]), UNIFORM, Sieve(trust=0.0))
    assert kept.tolist() == [True, False, False]
    torch.testing.assert_close(targets[0], torch.tensor([1.0, 0.0, 0.0]))
    torch.testing.assert_close(targets[1], 0.6 * answers[1])
    torch.testing.assert_close(targets[2], 0.5 * answers[2])


def test_trust_lets_the_label_speak_once_more():
    """The posterior p_k·T[k, ỹ]^trust decides; a label it keeps is taken as it is, else it is the target."""
    answers = torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.55, 0.45], [0.2, 0.8], [0.95, 0.05]])
    y = torch.tensor([0, 0, 1, 1, 1])
    counted = answers.T @ torch.eye(2)[y]
    transition = counted / counted.sum(dim=1, keepdim=True)
    for trust in (0.0, 0.5, 1.0, 2.0):
        targets, kept = sieve_targets(answers, y, UNIFORM[:2], Sieve(trust=trust))
        for n, label in enumerate(y.tolist()):
            posterior = answers[n] * transition[:, label] ** trust
            posterior /= posterior.sum()
            assert bool(kept[n]) == bool(posterior[label] > 0.5)
            expected = torch.eye(2)[label] if kept[n] else posterior * posterior.max()
            torch.testing.assert_close(targets[n], expected)
        assert kept.tolist() == [True, True, trust > 0, True, False]


def test_any_trust_leaves_proper_targets():
    """Powers of small numbers vanish; the rows' weights must not, nor may sure answers give NaN."""
    y = torch.arange(42) % 3
    noise = torch.randn(39, 3, generator=torch.Generator().manual_seed(3))
    answers = torch.cat((torch.softmax(noise + 2 * torch.eye(3)[y[:39]], dim=1), torch.eye(3)))
    for trust in (0.0, 1.0, 200.0):
        targets, kept = sieve_targets(answers, y, UNIFORM, Sieve(trust=trust))
        assert bool((targets.sum(dim=1) > 1 / 3 - 1e-6).all())
        assert bool(kept[-3:].all())


@pytest.mark.parametrize("sieve", [Sieve(renew=0), Sieve(trust=1.0), Sieve(balance=True)])
def test_rows_without_a_label_learn_the_answer_and_change_nothing_else(sieve):
    """They are never kept, T is counted without them, and their target is the answer as it is."""
    answers = torch.softmax(2 * torch.randn(60, 3, generator=torch.Generator().manual_seed(2)), dim=1)
    if sieve.balance:
        answers = torch.cat((balanced(answers[:40]), balanced(answers[40:])))
    y = torch.arange(60) % 3
    y[40:] = -1
    targets, kept = sieve_targets(answers, y, UNIFORM, sieve)
    alone, kept_alone = sieve_targets(answers[:40], y[:40], UNIFORM, sieve)
    torch.testing.assert_close(targets[:40], alone, rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(
        targets[40:], answers[40:] * answers[40:].amax(dim=1, keepdim=True), rtol=1e-3, atol=1e-5
    )
    assert kept.tolist() == [*kept_alone.tolist(), *[False] * 20]
    assert kept.any()


def test_the_student_answers_after_a_quarter_of_each_round():
    """In steps from the decision; never where the teacher decides, never without being asked."""
    assert Sieve(start=0.2, renew=0).renewals(10) == []
    assert Sieve(start=0.2, renew=2).renewals(10) == [4, 6, 8]
    assert Sieve(start=0.2, renew=3).renewals(42) == [17, 20, 23, 26, 29, 32, 35, 38, 41]
    twice = Sieve(start=0.0, rounds=2, renew=1)
    assert twice.renewals(8) == [1, 2, 3, 5, 6, 7]
    assert not set(twice.renewals(8)) & set(twice.decisions(8))


def test_balanced_answers():
    """All classes get one mean, odds between rows stay, and what is balanced already is left alone."""
    rows = torch.softmax(2 * torch.randn(50, 3, generator=torch.Generator().manual_seed(1)), dim=1)
    even = balanced(rows * torch.tensor([0.2, 0.3, 0.5]))
    torch.testing.assert_close(even.mean(dim=0), UNIFORM, rtol=1e-4, atol=0)
    torch.testing.assert_close(even.sum(dim=1), torch.ones(50))
    odds = (even[:, 0] / even[:, 1]) / (rows[:, 0] / rows[:, 1])
    torch.testing.assert_close(odds, odds[:1].expand(50), rtol=1e-4, atol=0)
    torch.testing.assert_close(balanced(even), even, rtol=1e-3, atol=1e-6)
    skewed = balanced(rows, (0.5, 0.3, 0.2))
    torch.testing.assert_close(skewed.mean(dim=0), torch.tensor([0.5, 0.3, 0.2]), rtol=1e-4, atol=0)
    torch.testing.assert_close(balanced(skewed), balanced(rows), rtol=1e-3, atol=1e-5)
    never = balanced(torch.tensor([[0.5, 0.5, 0.0], [0.6, 0.4, 0.0]]))
    assert bool(torch.isfinite(never).all())


def test_balance_changes_what_is_kept():
    """A class that the teacher prefers loses its lead."""
    answers = torch.tensor([[0.9, 0.1], [0.9, 0.1], [0.9, 0.1], [0.6, 0.4]])
    y = torch.ones(4, dtype=torch.long)
    plain, even, known = (
        sieve_targets(answers, y, UNIFORM[:2], Sieve(trust=0.0, balance=balance))[1]
        for balance in (False, True, (0.1, 0.9))
    )
    assert plain.tolist() == [False] * 4
    assert even.tolist() == [False, False, False, True]
    assert known.tolist() == [True] * 4


@pytest.mark.parametrize(
    "wrong",
    [
        {"start": 1.5},
        {"rounds": 0},
        {"renew": -1},
        {"memory": 1.0},
        {"trust": -0.5},
        {"mixup": 1},
        {"threshold": "low"},
        {"augment": None},
        {"balance": (0.5, 0.6)},
    ],
)
def test_settings_are_checked(wrong):
    """A message that names the setting, when it is made and not after half a training."""
    with pytest.raises(InvalidInputError, match=next(iter(wrong))):
        Sieve(**wrong)


def test_shares_are_for_as_many_classes_as_there_are():
    """A message that says how many are wanted."""
    with pytest.raises(InvalidInputError, match=r"`balance` must have 3 entries"):
        sieve_targets(torch.eye(3), torch.arange(3), UNIFORM, Sieve(balance=(0.5, 0.5)))


def test_mixing_keeps_the_majority_share():
    """Each row is at least half itself, inputs and targets share the weights, and totals stay."""
    inputs = torch.arange(6.0)[:, None, None, None].expand(6, 3, 2, 2)
    targets = torch.eye(6)
    mixed, soft = mix_pairs(inputs, targets, generator=torch.Generator().manual_seed(0))
    own = soft.diagonal()
    assert bool((own >= 0.5).all())
    torch.testing.assert_close(soft.sum(dim=1), torch.ones(6))
    torch.testing.assert_close(
        mixed[:, 0, 0, 0], own * torch.arange(6.0) + (1 - own) * torch.arange(6.0).flip(0)
    )


def test_soft_loss_of_labels_is_cross_entropy():
    """One-hot targets give the plain loss; soft ones are linear in it."""
    torch.manual_seed(0)
    logits, y = torch.randn(5, 3), torch.tensor([0, 1, 2, 0, 1])
    torch.testing.assert_close(soft_loss(logits, torch.eye(3)[y]), plain_loss(logits, y, eps=0.0))
    torch.testing.assert_close(
        soft_loss(logits, torch.full((5, 3), 0.5)), 0.5 * loss_matrix(logits, eps=0.0).sum() / 5
    )
