"""Peer loss of several binary labels per example, and of one label per position."""

import itertools

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck

from peerloss import theory
from peerloss.exceptions import InvalidInputError
from peerloss.functional import BASES, backward_loss, dmi_loss, loss_matrix, peer_loss, plain_loss
from peerloss.functional.batch import make_batch
from peerloss.functional.kernels.reference import draw_peers

MATRIX = torch.tensor([[1.0, 0.5], [0.0, 1.0]], dtype=torch.float64)


def binary_example(n=7, labels=4, seed=0):
    rng = np.random.default_rng(seed)
    shares = rng.uniform(0.1, 0.9, size=labels)
    return torch.tensor(rng.normal(size=(n, labels)) * 2), torch.tensor(
        rng.random((n, labels)) < shares
    ).long()


def position_example(n=3, k=4, shape=(5,), seed=0):
    rng = np.random.default_rng(seed)
    return torch.tensor(rng.normal(size=(n, k, *shape))), torch.tensor(rng.integers(k, size=(n, *shape)))


@pytest.mark.parametrize("base", sorted(BASES))
@pytest.mark.parametrize("options", [{}, {"weight": torch.tensor([0.5, 2.0])}, {"score_matrix": MATRIX}])
def test_binary_labels_are_separate_problems_of_two_classes(base, options):
    """The loss of (n, L) logits is that of each column alone, with the prior of that column."""
    z, y = binary_example()
    options = {"base": base, "alpha": 0.7, "reduction": "none"} | options
    rows = peer_loss(z, y, **options)
    assert rows.shape == y.shape
    for label in range(y.shape[1]):
        alone = peer_loss(z[:, label], y[:, label], **options)
        torch.testing.assert_close(rows[:, label], alone, rtol=1e-12, atol=1e-12)


def test_a_given_prior_has_one_row_per_label():
    """(L, 2): P(0) and P(1) of each label; the other labels do not enter."""
    z, y = binary_example()
    ones = torch.tensor([0.1, 0.3, 0.5, 0.8], dtype=torch.float64)
    prior = torch.stack([1 - ones, ones], dim=1)
    rows = peer_loss(z, y, noisy_prior=prior, reduction="none")
    for label in range(4):
        alone = peer_loss(z[:, label], y[:, label], noisy_prior=prior[label], reduction="none")
        torch.testing.assert_close(rows[:, label], alone)


def test_reductions_are_those_of_binary_cross_entropy():
    """At α = 0 without a clip, every reduction is that of torch, which averages over all n·L entries."""
    z, y = binary_example()
    for reduction in ("none", "mean", "sum"):
        expected = torch.nn.functional.binary_cross_entropy_with_logits(z, y.double(), reduction=reduction)
        torch.testing.assert_close(peer_loss(z, y, alpha=0.0, eps=0.0, reduction=reduction), expected)
        torch.testing.assert_close(plain_loss(z, y, eps=0.0, reduction=reduction), expected)


def test_single_entries_are_ignored():
    """An ignored entry leaves the loss, the mean and the prior of its own label only."""
    z, y = binary_example(n=9)
    y[[0, 3, 4], [1, 1, 2]] = -100
    rows = peer_loss(z, y, reduction="none")
    for label in range(4):
        kept = y[:, label] != -100
        alone = peer_loss(z[kept, label], y[kept, label], reduction="none")
        torch.testing.assert_close(rows[kept, label], alone)
    assert (rows[y == -100] == 0).all()
    torch.testing.assert_close(peer_loss(z, y), rows.sum() / (y != -100).sum())


def test_sampled_peers_stay_within_a_label():
    """n₁ ≠ n₂ are examples with the same label, and never ignored entries."""
    z, y = binary_example(n=6, labels=3)
    y[[0, 1], [0, 2]] = -100
    batch = make_batch(z, y, ignore_index=-100, binary_labels=True)
    for seed in range(100):
        first, second = draw_peers(batch, generator=torch.Generator().manual_seed(seed))
        own = torch.arange(18) % 3
        assert torch.equal(first % 3, own)
        assert torch.equal(second % 3, own)
        assert (first != second).all()
        assert (y.view(-1)[first] != -100).all()
        assert (y.view(-1)[second] != -100).all()


def test_sampled_peers_agree_with_a_naive_loop():
    """L[n, l, ỹ] − α·L[n₁, l, ỹ_{n₂, l}] for the pairs that the generator draws."""
    z, y = binary_example(n=5, labels=3)
    rows = peer_loss(
        z, y, alpha=0.6, peers="sampled", reduction="none", generator=torch.Generator().manual_seed(1)
    )
    batch = make_batch(z, y, ignore_index=-100, binary_labels=True)
    first, second = draw_peers(batch, generator=torch.Generator().manual_seed(1))
    losses = [loss_matrix(z[:, label]) for label in range(3)]
    for n, label in itertools.product(range(5), range(3)):
        place = 3 * n + label
        peer = losses[label][first[place] // 3, y[second[place] // 3, label]]
        torch.testing.assert_close(rows[n, label], losses[label][n, y[n, label]] - 0.6 * peer)


@pytest.mark.parametrize("eps", [0.0, 1e-3])
@pytest.mark.parametrize("n", [3, 1500])
def test_gradients_of_binary_labels_agree_with_each_label_alone(n, eps):
    """Small batches (torch operations) and large ones (blocks) have the gradient of separate problems."""
    z, y = binary_example(n=n)
    z.requires_grad_()
    (joint,) = torch.autograd.grad(peer_loss(z, y, alpha=0.8, eps=eps), z)
    columns = [peer_loss(z[:, label], y[:, label], alpha=0.8, eps=eps, reduction="sum") for label in range(4)]
    (alone,) = torch.autograd.grad(sum(columns) / y.numel(), z)
    torch.testing.assert_close(joint, alone, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("base", ["cross_entropy", "logistic", "sigmoid", "squared"])
@pytest.mark.parametrize("peers", ["expected", "sampled"])
def test_gradients_agree_with_finite_differences(base, peers):
    """In float64, for binary labels and for positions, with ignored entries."""
    for z, y in (binary_example(n=4, labels=3), position_example(n=2, k=3, shape=(4,))):
        y[1, 1] = -100
        z.requires_grad_()

        def loss(t, y=y):
            generator = torch.Generator().manual_seed(0)
            return peer_loss(t, y, base=base, alpha=0.6, peers=peers, generator=generator)

        assert gradcheck(loss, (z,))


def test_second_derivatives_of_binary_labels():
    """The blocked path differentiates twice like the plain operations."""
    z, y = binary_example(n=3, labels=2)
    z.requires_grad_()
    assert torch.autograd.gradgradcheck(lambda t: peer_loss(t, y, alpha=0.5), (z,))


@pytest.mark.parametrize("shape", [(5,), (2, 3)])
@pytest.mark.parametrize("base", ["cross_entropy", "sigmoid"])
def test_positions_are_rows(shape, base):
    """(N, K, d₁, …) logits have the loss of (N·d₁·…, K) logits, in every reduction."""
    z, y = position_example(shape=shape)
    y[0, 1] = -100
    flat_z, flat_y = z.movedim(1, -1).reshape(-1, 4), y.reshape(-1)
    for reduction in ("mean", "sum", "none"):
        found = peer_loss(z, y, base=base, alpha=0.8, reduction=reduction)
        expected = peer_loss(flat_z, flat_y, base=base, alpha=0.8, reduction=reduction)
        torch.testing.assert_close(found, expected.view(y.shape) if reduction == "none" else expected)


def test_positions_without_peers_are_torch_cross_entropy():
    """At α = 0 without a clip: the convention of torch for shapes, ignored positions and reductions."""
    z, y = position_example(shape=(2, 3))
    y[0, 0, :2] = -100
    for reduction in ("mean", "sum", "none"):
        expected = torch.nn.functional.cross_entropy(z, y, reduction=reduction)
        torch.testing.assert_close(peer_loss(z, y, alpha=0.0, eps=0.0, reduction=reduction), expected)
        torch.testing.assert_close(plain_loss(z, y, eps=0.0, reduction=reduction), expected)


def test_other_losses_accept_positions():
    """Losses that read batches in the same way flatten positions too."""
    z, y = position_example(n=6, k=3)
    flat_z, flat_y = z.movedim(1, -1).reshape(-1, 3), y.reshape(-1)
    T = np.eye(3) * 0.7 + 0.1
    torch.testing.assert_close(backward_loss(z, y, T), backward_loss(flat_z, flat_y, T))
    torch.testing.assert_close(dmi_loss(z, y), dmi_loss(flat_z, flat_y))


def test_the_expectation_over_noise_is_affine_in_the_clean_risk_label_by_label():
    """By enumeration: at α*, each label's expected peer loss is (1 − Σe)·(clean risk) plus a constant.

    The joint distribution of two labels that depend on each other is written as a batch. Every label has its
    own rates; the constant is the same for all classifiers.
    """
    rng = np.random.default_rng(0)
    rates = [(0.1, 0.3), (0.25, 0.05)]
    clean = rng.dirichlet(np.ones(12)).reshape(3, 2, 2)  # P(x, y₁, y₂)
    flips = [np.array([[1 - n, n], [p, 1 - p]]) for n, p in rates]
    noisy = np.einsum("xab,ac,bd->xcd", clean, *flips)
    marginals = [clean.sum(axis=2), clean.sum(axis=1)]
    noisy_marginals = [noisy.sum(axis=2), noisy.sum(axis=1)]
    prior = torch.tensor(np.array([m.sum(axis=0) for m in noisy_marginals]))
    alphas = [
        theory.optimal_alpha_from_noisy_prior(flip, marginal.sum(axis=0))
        for flip, marginal in zip(flips, noisy_marginals, strict=True)
    ]
    cells = list(itertools.product(range(3), range(2), range(2)))
    y = torch.tensor([cell[1:] for cell in cells])
    probability = torch.tensor([noisy[cell] for cell in cells])
    constants = [[], []]
    for predicted in itertools.product(itertools.product((-1.0, 1.0), repeat=2), repeat=3):
        z = torch.tensor([predicted[cell[0]] for cell in cells], dtype=torch.float64)
        for label, (alpha, (e_neg, e_pos)) in enumerate(zip(alphas, rates, strict=True)):
            rows = peer_loss(z, y, base="zero_one", alpha=alpha, noisy_prior=prior, reduction="none")
            expected = float(probability @ rows[:, label])
            risk = sum(marginals[label][x, int(predicted[x][label] < 0)] for x in range(3))
            constants[label].append(expected - (1 - e_neg - e_pos) * risk)
    np.testing.assert_allclose([np.ptp(found) for found in constants], 0.0, atol=1e-12)


@pytest.mark.parametrize(
    ("logits", "target", "options", "message"),
    [
        ((4, 3), (4, 3), {"noisy_prior": [0.2, 0.3, 0.5]}, r"`noisy_prior` must have shape \(3, 2\).*P\(0\)"),
        ((4, 3), (4,), {"noisy_prior": [[0.5, 0.5]] * 3}, r"`noisy_prior` must have shape \(3,\)"),
        ((4, 3), (4, 3), {"noisy_prior": [[0.5, 0.4]] * 3}, "sum to 1; the sum is 0.9"),
        ((4, 3), (4, 2), {}, r"`target` must have shape \(4,\)"),
        ((4, 5, 3), (4, 5), {}, r"movedim\(-1, 1\) if the classes are last"),
        ((1, 2), (1, 2), {"peers": "sampled"}, "at least 2 labelled rows"),
    ],
)
def test_shapes_that_do_not_fit_are_named(logits, target, options, message):
    """The message names the argument, the expected shape and what to do."""
    with pytest.raises(InvalidInputError, match=message):
        peer_loss(torch.zeros(logits), torch.zeros(target, dtype=torch.int64), **options)


def test_bad_values_are_located():
    """A label other than 0 and 1, a NaN at a position, and labels given as floats."""
    z, y = binary_example()
    with pytest.raises(InvalidInputError, match=r"labels in 0\.\.1; found 2"):
        peer_loss(z, y + 1)
    with pytest.raises(InvalidInputError, match=r"integer tensor.*`target\.long\(\)`"):
        peer_loss(z, y.double())
    z[2, 3] = torch.nan
    with pytest.raises(InvalidInputError, match=r"position \(2, 3\) is"):
        peer_loss(z, y)
    with pytest.raises(InvalidInputError, match="`target` must have shape"):
        backward_loss(z, y, [[0.9, 0.1], [0.1, 0.9]])
