"""The covariance correction of row-dependent noise, by enumeration of finite distributions."""

import itertools

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck

from peerloss import PeerLoss
from peerloss.exceptions import InvalidInputError
from peerloss.functional import covariance_targets, loss_matrix, peer_loss
from peerloss.theory import noisy_joint, peer_risk


class World:
    """A finite distribution of points, clean labels and noise that depends on the point.

    ``columns`` gives the mean noise the form T̄[i, j] = e_j for i ≠ j.
    """

    def __init__(self, seed, *, k, columns=False, points=4):
        rng = np.random.default_rng(seed)
        self.k, self.points = k, points
        self.joint = rng.dirichlet(np.ones(points * k)).reshape(points, k)
        self.logits = torch.tensor(rng.normal(size=(points, k)))
        self.given_class = self.joint / self.joint.sum(axis=0)
        if columns:
            rates = rng.uniform(0.1, 0.6 / k, size=k)
            self.mean = (1.0 - rates.sum()) * np.eye(k) + rates
            steps = rng.normal(size=(points, k, k))
            steps -= steps.mean(axis=2, keepdims=True)  # rows of T(x) sum to one
            steps -= np.einsum("xi,xij->ij", self.given_class, steps)  # T̄ is the mean given the class
            self.transitions = self.mean + 0.9 * self.mean.min() / np.abs(steps).max() * steps
        else:
            self.transitions = rng.dirichlet(np.ones(k), size=(points, k))
            self.mean = np.einsum("xi,xij->ij", self.given_class, self.transitions)
        self.noisy = np.einsum("xi,xij->xj", self.joint, self.transitions)  # P(x, ỹ)
        self.prior = torch.tensor(self.noisy.sum(axis=0))
        cells = list(itertools.product(range(points), range(k)))
        self.x, self.y = (torch.tensor(column) for column in zip(*cells, strict=True))
        self.weight = torch.tensor(self.noisy).reshape(-1)
        self.posterior = torch.tensor(self.joint / self.joint.sum(axis=1, keepdims=True))
        self.full = np.einsum("xi,xij->xji", self.joint, self.transitions)  # P(x, ỹ, y)

    def risk(self, target, **options):
        """Return the expected peer loss over all (x, ỹ), computed by the library."""
        rows = peer_loss(self.logits[self.x], target, noisy_prior=self.prior, reduction="none", **options)
        return float(rows @ self.weight)

    def corrected(self):
        """Return the targets of all cells from the true T(x) and T̄."""
        transitions = torch.tensor(self.transitions)[self.x]
        options = {"mean_transition": torch.tensor(self.mean)}
        return covariance_targets(self.y, self.posterior[self.x], transitions, **options)

    def corrected_by_labels(self):
        """Return the targets of all cells from P(clean | x, ỹ), without T(x)."""
        clean = torch.tensor(self.full / self.full.sum(axis=2, keepdims=True)).reshape(-1, self.k)
        return covariance_targets(self.y, clean, mean_transition=torch.tensor(self.mean))


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("base", ["cross_entropy", "sigmoid", "hinge"])
def test_the_corrected_risk_is_a_multiple_of_the_clean_one(base, k):
    """In 30 worlds the expected peer loss is (1 − Σe) times the clean one; uncorrected it is not."""
    differ = 0
    for seed in range(30):
        world = World(seed, k=k, columns=True)
        factor = 1.0 - (world.mean.sum(axis=0) - np.diag(world.mean)).sum() / (k - 1)
        assert factor > 0
        clean = factor * peer_risk(loss_matrix(world.logits, base).numpy(), world.joint)
        assert world.risk(world.corrected(), base=base) == pytest.approx(clean, abs=1e-12)
        assert world.risk(world.corrected_by_labels(), base=base) == pytest.approx(clean, abs=1e-12)
        differ += abs(world.risk(world.y, base=base) - clean) > 1e-4
    assert differ > 27


@pytest.mark.parametrize("alpha", [0.0, 0.7, 1.5])
def test_for_any_noise_and_any_alpha_the_risk_is_that_of_the_mean_noise(alpha):
    """In 30 worlds with arbitrary T(x) the corrected risk equals that of class-conditional noise T̄."""
    differ = 0
    for seed in range(30):
        world = World(seed, k=3)
        losses = loss_matrix(world.logits, "squared").numpy()
        expected = peer_risk(losses, noisy_joint(world.joint, world.mean), alpha=alpha)
        options = {"base": "squared", "alpha": alpha}
        assert world.risk(world.corrected(), **options) == pytest.approx(expected, abs=1e-12)
        assert world.risk(world.corrected_by_labels(), **options) == pytest.approx(expected, abs=1e-12)
        differ += abs(world.risk(world.y, **options) - expected) > 1e-4
    assert differ > 27


def test_the_corrected_mean_is_a_covariance():
    """Label minus target, times the loss, is Σ_ij P(i)·Cov(T[i, j], L[j] | i), computed by its definition."""
    world = World(5, k=3)
    losses = loss_matrix(world.logits, "squared").numpy()
    total = 0.0
    for i, j in itertools.product(range(3), repeat=2):
        p, t, loss = world.given_class[:, i], world.transitions[:, i, j], losses[:, j]
        total += world.joint[:, i].sum() * (p @ (t * loss) - (p @ t) * (p @ loss))
    difference = world.risk(world.y, base="squared") - world.risk(world.corrected(), base="squared")
    assert difference == pytest.approx(total, abs=1e-12)


def test_constant_noise_leaves_the_labels_as_they_are():
    """If T(x) is the same for all rows, nothing is corrected, however wrong ``clean`` is."""
    rng = np.random.default_rng(0)
    labels, clean = torch.tensor([0, 2, 1, 2]), torch.tensor(rng.dirichlet(np.ones(3), size=4))
    transition = torch.tensor(rng.dirichlet(np.ones(3), size=3))
    soft = covariance_targets(labels, clean, transition.expand(4, 3, 3))
    torch.testing.assert_close(soft, torch.eye(3, dtype=torch.float64)[labels])


def test_the_mean_noise_is_computed_from_the_rows():
    """Without ``mean_transition`` the mean target is the frequency of the labels expected from T(x)."""
    rng = np.random.default_rng(1)
    labels, clean = torch.tensor(rng.integers(3, size=50)), torch.tensor(rng.dirichlet(np.ones(3), size=50))
    transitions = torch.tensor(rng.dirichlet(np.ones(3), size=(50, 3)))
    naive = np.zeros((3, 3))
    for i, j in itertools.product(range(3), repeat=2):
        naive[i, j] = np.average(transitions[:, i, j], weights=clean[:, i])
    given = covariance_targets(labels, clean, transitions, mean_transition=torch.tensor(naive))
    torch.testing.assert_close(covariance_targets(labels, clean, transitions), given)
    counts = torch.bincount(labels, minlength=3) / 50.0
    torch.testing.assert_close(given.mean(dim=0), counts.double())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_probabilities_may_be_in_half_precision(dtype):
    """Rounded rows are off by their precision, as soft targets of the losses may be."""
    rng = np.random.default_rng(0)
    clean, y = torch.tensor(rng.dirichlet(np.ones(10), size=64)), torch.tensor(rng.integers(10, size=64))
    found = covariance_targets(y, clean.to(dtype))
    assert found.dtype == dtype
    torch.testing.assert_close(found.double(), covariance_targets(y, clean), rtol=0, atol=0.02)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("has_transitions", [False, True])
def test_targets_of_many_rows_sum_to_one(dtype, has_transitions):
    """Sums over 400,000 rows neither overflow nor lose precision: the losses accept the targets."""
    generator = torch.Generator().manual_seed(0)
    clean = torch.softmax(3.0 * torch.randn(400_000, 2, generator=generator), dim=1).to(dtype)
    y = torch.randint(2, (400_000,), generator=generator)
    rates = 0.4 * torch.rand(400_000, 1, 1, generator=generator)
    transitions = (rates + (1.0 - 2.0 * rates) * torch.eye(2)).to(dtype) if has_transitions else None
    found = covariance_targets(y, clean, transitions)
    assert found.dtype == dtype
    tables = [
        None if t is None else t.double() / t.double().sum(-1, keepdim=True) for t in (clean, transitions)
    ]
    exact = covariance_targets(y, *tables)
    torch.testing.assert_close(found.double(), exact, rtol=0, atol=2 * torch.finfo(dtype).eps + 1e-5)
    assert torch.isfinite(PeerLoss("sigmoid")(torch.zeros(400_000, 2), found))


def test_rows_without_a_label_stay_without_one():
    """Their targets are NaN, which the loss ignores, and they do not change those of the others."""
    clean = torch.tensor([[0.9, 0.1], [0.2, 0.8], [0.5, 0.5]], dtype=torch.float64)
    soft = covariance_targets(torch.tensor([0, 1, -100]), clean)
    assert torch.isnan(soft[2]).all()
    torch.testing.assert_close(soft[:2], covariance_targets(torch.tensor([0, 1]), clean[:2]))
    assert torch.isfinite(PeerLoss()(torch.zeros(3, 2, dtype=torch.float64), soft))


def test_gradients_of_the_corrected_loss():
    """Autograd agrees with finite differences, also with respect to T(x)."""
    world = World(3, k=3)
    clean, logits = world.posterior[world.x], world.logits[world.x].clone().requires_grad_()
    transitions = torch.tensor(world.transitions)[world.x]
    soft = covariance_targets(world.y, clean, transitions)
    assert gradcheck(lambda z: peer_loss(z, soft, noisy_prior=world.prior), (logits,))

    def value(scores):
        return covariance_targets(world.y, clean, torch.softmax(scores, dim=2))

    assert gradcheck(value, (transitions.log().requires_grad_(),))


CLEAN = torch.tensor([[0.9, 0.1], [0.2, 0.8]])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: covariance_targets(torch.tensor([0, 1]), torch.tensor([0, 1])), r"`clean` must be .*\(2,\)"),
        (lambda: covariance_targets(torch.tensor([0, 1]), [[1.0, 0.0]]), "`clean` must be .*got list"),
        (lambda: covariance_targets(torch.tensor([0, 1]), 2 * CLEAN), "`clean` must hold probabilities"),
        (lambda: covariance_targets(torch.tensor([0]), CLEAN), r"`target` must be .* shape \(2,\).*\(1,\)"),
        (lambda: covariance_targets(torch.tensor([0, 2]), CLEAN), r"`target` must hold labels in 0\.\.1"),
        (
            lambda: covariance_targets(torch.tensor([0, 1]), CLEAN, torch.eye(2)),
            r"`transitions` must be a floating-point tensor of shape \(2, 2, 2\); got torch.float32 \(2, 2\)",
        ),
        (
            lambda: covariance_targets(
                torch.tensor([0, 1]), CLEAN, mean_transition=torch.eye(2, dtype=torch.int64)
            ),
            "`mean_transition` must be a floating-point tensor .*got torch.int64",
        ),
        (
            lambda: covariance_targets(torch.tensor([0, 1]), CLEAN, mean_transition=torch.ones(2, 2)),
            "`mean_transition` must hold probabilities",
        ),
    ],
)
def test_bad_arguments_are_named(call, message):
    """The message names the argument, what was expected and what was received."""
    with pytest.raises(InvalidInputError, match=message):
        call()
