"""The sieve with fixed targets."""

import itertools

import pytest
import torch

from peerloss.training import keep_rows
from peerloss.training.deep import _sieve_targets
from tests.training.deep.toy import first_targets

UNIFORM = torch.full((3,), 1 / 3)


def grid():
    """Return all probability vectors over three classes in steps of a tenth."""
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


def test_a_confident_teacher_keeps_the_labels_that_it_predicts():
    """With one-hot probabilities a label is kept if it is the prediction."""
    for prediction, label in itertools.product(range(3), repeat=2):
        probabilities = torch.eye(3)[[prediction]]
        assert bool(keep_rows(probabilities, torch.tensor([label]), UNIFORM)) == (prediction == label)


def test_uniform_predictions_keep_nothing():
    """With equal probabilities no label is better supported than another."""
    assert not keep_rows(UNIFORM.expand(3, 3), torch.arange(3), UNIFORM, threshold=-1e-6).any()


def test_a_higher_threshold_keeps_more():
    """The set of kept rows grows with the threshold."""
    y = torch.zeros(len(grid()), dtype=torch.long)
    strict, normal, lax = (keep_rows(grid(), y, UNIFORM, threshold=t) for t in (-2.0, 0.0, 2.0))
    assert int(strict.sum()) < int(normal.sum()) < int(lax.sum())
    assert bool((normal | ~strict).all())
    assert bool((lax | ~normal).all())


def test_targets_of_a_confident_teacher_are_its_predictions():
    """One-hot teachers: the posterior of a kept label is the label, all rows have weight one."""
    y = torch.tensor([0, 1, 2, 0, 1, 2])
    predictions = torch.tensor([0, 1, 2, 1, 2, 0])
    targets, kept = first_targets(torch.eye(3)[predictions], y, refresh_every=0)
    assert kept.tolist() == [True] * 3 + [False] * 3
    torch.testing.assert_close(targets, torch.eye(3)[predictions])


def test_targets_by_hand():
    """A kept label gives the posterior p_k·T[k, ỹ], T counted from the teacher; other rows get p."""
    probabilities = torch.tensor([[0.5, 0.4, 0.1], [0.1, 0.5, 0.4], [0.4, 0.1, 0.5]])
    y = torch.tensor([0, 2, 1])
    targets, kept = first_targets(probabilities, y, refresh_every=0)
    assert kept.tolist() == [True, True, False]
    # T[k, j]: each label occurs once, so its column is that row's probabilities; rows of T sum to 1 already.
    posterior = torch.tensor([0.5 * 0.5, 0.4 * 0.4, 0.1 * 0.1]) / 0.42
    torch.testing.assert_close(targets[0], posterior * posterior.max())
    posterior = torch.tensor([0.1 * 0.1, 0.5 * 0.5, 0.4 * 0.4]) / 0.42
    torch.testing.assert_close(targets[1], posterior * posterior.max())
    torch.testing.assert_close(targets[2], probabilities[2] * 0.5)


def test_the_prior_is_counted_over_labelled_rows_only(monkeypatch):
    """Rows without a label do not count, neither in the shares nor in their sum."""
    seen = []

    def watched(probs, y, noisy_prior, *, threshold):
        seen.append(noisy_prior)
        return keep_rows(probs, y, noisy_prior, threshold=threshold)

    monkeypatch.setattr(_sieve_targets, "keep_rows", watched)
    y = torch.tensor([0, 0, 0, 1, 2, -1, -1, -1])
    first_targets(UNIFORM.expand(8, 3), y, refresh_every=0)
    assert seen[0].tolist() == pytest.approx([0.6, 0.2, 0.2])
