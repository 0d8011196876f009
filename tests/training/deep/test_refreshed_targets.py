"""The sieve with targets that follow the model."""

import math

import pytest
import torch

from tests.training.deep.toy import first_targets


@pytest.mark.parametrize("threshold", [-1.0, 0.0, 0.5, 2.0])
def test_the_threshold_is_a_bound_on_the_log_odds(threshold):
    """By enumeration: a label is kept if its log-odds are above −threshold, at 0 above one half."""
    tenths = [(a, b, 10 - a - b) for a in range(11) for b in range(11 - a)]
    probabilities = (torch.tensor(tenths) / 10.0).double()
    y = torch.zeros(len(probabilities), dtype=torch.long)
    kept = first_targets(probabilities, y, trust=0.0, threshold=threshold).kept
    expected = [p > (1 - p) * math.exp(-threshold) for p in probabilities[:, 0].tolist()]
    assert kept.tolist() == expected


def test_targets_by_hand():
    """A label above one half becomes a one-hot target; other rows get the prediction times its maximum."""
    probs = torch.tensor([[0.6, 0.3, 0.1], [0.6, 0.3, 0.1], [0.5, 0.25, 0.25]])
    targets, kept = first_targets(probs, torch.tensor([0, 1, 0]), trust=0.0)
    assert kept.tolist() == [True, False, False]
    torch.testing.assert_close(targets[0], torch.tensor([1.0, 0.0, 0.0]))
    torch.testing.assert_close(targets[1], 0.6 * probs[1])
    torch.testing.assert_close(targets[2], 0.5 * probs[2])


def test_trust_counts_the_label_as_evidence():
    """The posterior p_k·T[k, ỹ]^trust decides, and is the target of rows whose label is not kept."""
    probs = torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.55, 0.45], [0.2, 0.8], [0.95, 0.05]])
    y = torch.tensor([0, 0, 1, 1, 1])
    counted = probs.T @ torch.eye(2)[y]
    transition = counted / counted.sum(dim=1, keepdim=True)
    for trust in (0.0, 0.5, 1.0, 2.0):
        targets, kept = first_targets(probs, y, trust=trust)
        for n, label in enumerate(y.tolist()):
            posterior = probs[n] * transition[:, label] ** trust
            posterior /= posterior.sum()
            assert bool(kept[n]) == bool(posterior[label] > 0.5)
            expected = torch.eye(2)[label] if kept[n] else posterior * posterior.max()
            torch.testing.assert_close(targets[n], expected)
        assert kept.tolist() == [True, True, trust > 0, True, False]


def test_targets_are_valid_for_any_trust():
    """High powers of small numbers underflow, but the weights of rows do not, and there is no NaN."""
    y = torch.arange(42) % 3
    noise = torch.randn(39, 3, generator=torch.Generator().manual_seed(3))
    probs = torch.cat((torch.softmax(noise + 2 * torch.eye(3)[y[:39]], dim=1), torch.eye(3)))
    for trust in (0.0, 1.0, 200.0):
        targets, kept = first_targets(probs, y, trust=trust)
        assert bool((targets.sum(dim=1) > 1 / 3 - 1e-6).all())
        assert bool(kept[-3:].all())
