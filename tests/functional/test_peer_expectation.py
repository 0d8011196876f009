"""The expectations of sampled and expected peers, by enumerating every batch."""

import itertools

import numpy as np
import pytest
import torch

from peerloss import PeerLoss
from peerloss.functional import loss_matrix, peer_loss

#: Two inputs, two labels.
CELLS = list(itertools.product(range(2), range(2)))


def world(seed):
    """Return P(x, ỹ), logits at the two inputs, α and the size of a batch."""
    rng = np.random.default_rng(seed)
    joint = rng.dirichlet(np.ones(4)).reshape(2, 2)
    return joint, torch.tensor(rng.normal(size=(2, 2))), float(rng.uniform(-1, 2)), 2 if seed % 8 else 3


def batches(joint, n):
    """Every batch of n independent rows with its probability."""
    for rows in itertools.product(CELLS, repeat=n):
        points, labels = (torch.tensor(column) for column in zip(*rows, strict=True))
        yield float(np.prod([joint[row] for row in rows])), points, labels


def own_and_peers(joint, losses):
    """Return A = E L[x, ỹ] and B = E L[x, ỹ'] for independent x and ỹ'."""
    product = np.outer(joint.sum(axis=1), joint.sum(axis=0))
    return float((joint * losses).sum()), float((product * losses).sum())


def over_pairs(losses, labels, alpha):
    """Return the batch mean of sampled peers, averaged over all pairs n₁ ≠ n₂."""
    n = len(labels)
    pairs = [losses[i, labels[j]] for i, j in itertools.permutations(range(n), 2)]
    return float(losses[range(n), labels].mean() - alpha * sum(pairs) / (n * (n - 1)))


def test_the_expectation_of_sampled_and_expected_peers():
    """In 200 worlds: A − α·B for sampled peers and for the true prior, not for the prior of the batch."""
    differ = 0
    for seed in range(200):
        joint, z, alpha, n = world(seed)
        losses = loss_matrix(z, "squared")
        own, peers = own_and_peers(joint, losses.numpy())
        prior = torch.tensor(joint.sum(axis=0))
        sampled = with_true = with_counted = 0.0
        for probability, points, labels in batches(joint, n):
            options = {"base": "squared", "alpha": alpha}
            sampled += probability * over_pairs(losses.numpy()[points], labels.tolist(), alpha)
            with_true += probability * float(peer_loss(z[points], labels, noisy_prior=prior, **options))
            with_counted += probability * float(peer_loss(z[points], labels, **options))
        assert sampled == pytest.approx(own - alpha * peers, abs=1e-12)
        assert with_true == pytest.approx(own - alpha * peers, abs=1e-12)
        expected = (1 - alpha / n) * own - alpha * (1 - 1 / n) * peers
        assert with_counted == pytest.approx(expected, abs=1e-12)
        differ += abs(with_counted - sampled) > 1e-6
    assert differ > 190


def test_at_alpha_one_the_counted_prior_gives_a_factor():
    """In 200 worlds the expectation over batches is (1 − 1/n)·(A − B)."""
    for seed in range(200):
        joint, z, _, n = world(seed)
        own, peers = own_and_peers(joint, loss_matrix(z, "sigmoid").numpy())
        mean = sum(
            probability * float(peer_loss(z[points], labels, base="sigmoid"))
            for probability, points, labels in batches(joint, n)
        )
        assert mean == pytest.approx((1 - 1 / n) * (own - peers), abs=1e-12)


def test_counting_over_batches_reduces_the_difference():
    """The second batch of a module has N = 4 labels counted: the factor at α = 1 is 1 − 1/4."""
    for seed in range(5):
        joint, z, _, _ = world(seed)
        own, peers = own_and_peers(joint, loss_matrix(z, "sigmoid").numpy())
        mean = 0.0
        for first, second in itertools.product(list(batches(joint, 2)), repeat=2):
            loss = PeerLoss("sigmoid")
            loss(z[first[1]], first[2])
            mean += first[0] * second[0] * float(loss(z[second[1]], second[2]))
        assert mean == pytest.approx((1 - 1 / 4) * (own - peers), abs=1e-12)
