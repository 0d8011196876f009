"""Peer loss against naive loops, exact enumeration and its closed form."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd import gradcheck

from peerloss import PeerLoss, theory
from peerloss.exceptions import InvalidInputError
from peerloss.functional import BASES, loss_matrix, peer_loss, plain_loss
from peerloss.functional.batch import make_batch
from peerloss.functional.kernels.reference import draw_peers

DIFFERENTIABLE = sorted(set(BASES) - {"zero_one"})


def example(n=6, k=3, seed=0, scale=2.0):
    rng = np.random.default_rng(seed)
    return torch.tensor(rng.normal(size=(n, k)) * scale), torch.tensor(rng.integers(k, size=n))


def naive_expected(losses, y, alpha, prior, weight, matrix):
    """Σ over labels in a loop."""
    n, k = losses.shape
    weighted = [[losses[i, j] * weight[j] for j in range(k)] for i in range(n)]
    scored = [[sum(weighted[i][p] * matrix[p, j] for p in range(k)) for j in range(k)] for i in range(n)]
    return [scored[i][y[i]] - alpha * sum(prior[j] * scored[i][j] for j in range(k)) for i in range(n)]


@pytest.mark.parametrize("base", sorted(BASES))
@given(
    k=st.integers(2, 5),
    seed=st.integers(0, 10_000),
    alpha=st.floats(-3, 3),
    weighted=st.booleans(),
    scored=st.booleans(),
    given_prior=st.booleans(),
)
def test_expected_peers_agree_with_a_naive_loop(base, k, seed, alpha, weighted, scored, given_prior):
    """L[n, ỹ] − α Σ_k π̃_k L[n, k] on the weighted, scored loss matrix, for every base."""
    z, y = example(5, k, seed)
    rng = np.random.default_rng(seed)
    weight = rng.random(k) + 0.1 if weighted else np.ones(k)
    matrix = rng.integers(0, 2, size=(k, k)).astype(float) if scored else np.eye(k)
    prior = rng.dirichlet(np.ones(k)) if given_prior else np.bincount(y, minlength=k) / len(y)
    rows = peer_loss(
        z,
        y,
        base=base,
        alpha=alpha,
        noisy_prior=prior if given_prior else None,
        score_matrix=matrix if scored else None,
        weight=torch.tensor(weight) if weighted else None,
        reduction="none",
    )
    reference = naive_expected(loss_matrix(z, base).numpy(), y.numpy(), alpha, prior, weight, matrix)
    np.testing.assert_allclose(rows, reference, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("base", sorted(BASES))
def test_sampled_peers_agree_with_a_naive_loop(base):
    """L[n, ỹ_n] − α L[n₁, ỹ_{n₂}] for the pairs that the generator draws."""
    z, y = example(7, 3)
    weight = torch.tensor([0.5, 1.0, 2.0], dtype=z.dtype)
    rows = peer_loss(
        z,
        y,
        base=base,
        alpha=0.7,
        peers="sampled",
        weight=weight,
        reduction="none",
        generator=torch.Generator().manual_seed(5),
    )
    first, second = draw_peers(
        make_batch(z, y, ignore_index=-100), generator=torch.Generator().manual_seed(5)
    )
    losses = loss_matrix(z, base) * weight
    for n in range(7):
        reference = losses[n, y[n]] - 0.7 * losses[first[n], y[second[n]]]
        torch.testing.assert_close(rows[n], reference)


@given(st.integers(2, 6), st.integers(0, 1000), st.floats(-2, 2))
def test_expected_and_sampled_agree_over_independent_draws(n, seed, alpha):
    """Averaged over all n² pairs (n₁, n₂), the sampled batch mean is the expected one, exactly."""
    z, y = example(n, 3, seed)
    losses = loss_matrix(z, "logistic")
    label = losses[range(n), y].mean()
    pairs = [losses[i, y[j]] for i, j in itertools.product(range(n), repeat=2)]
    sampled = label - alpha * sum(pairs) / n**2
    expected = peer_loss(z, y, base="logistic", alpha=alpha)
    torch.testing.assert_close(sampled, expected, rtol=1e-12, atol=1e-12)


@given(st.integers(2, 6), st.integers(0, 1000), st.floats(-2, 2))
def test_the_factor_between_them_for_distinct_draws(n, seed, alpha):
    """For n₁ ≠ n₂ the mean is (1 + α/(n−1))·mean L[n, ỹ] − α·n/(n−1)·mean Σ_k π̂_k L[n, k], exactly."""
    z, y = example(n, 3, seed)
    losses = loss_matrix(z, "squared")
    label = losses[range(n), y].mean()
    pairs = [losses[i, y[j]] for i, j in itertools.permutations(range(n), 2)]
    sampled = label - alpha * sum(pairs) / (n * (n - 1))
    shared = label - peer_loss(z, y, base="squared", alpha=1.0)
    expected = (1 + alpha / (n - 1)) * label - alpha * n / (n - 1) * shared
    torch.testing.assert_close(sampled, expected, rtol=1e-12, atol=1e-12)


def test_they_do_not_agree_row_by_row():
    """The sampled peer term of a row averages over all rows, the expected one uses the row itself."""
    z, y = example(5, 3)
    losses = loss_matrix(z, "logistic")
    over_pairs = losses[:, y].mean()
    own = losses @ (torch.bincount(y, minlength=3) / 5).double()
    assert not torch.allclose(own, over_pairs.expand(5))


def test_drawn_peers_are_distinct_uniform_and_repeatable():
    """n₁ ≠ n₂ always; each ordered pair is equally probable; the generator fixes the draws."""
    z, y = example(5, 3)
    batch = make_batch(z.repeat(4000, 1)[:5], y, ignore_index=-100)
    counts = torch.zeros(5, 5)
    generator = torch.Generator().manual_seed(0)
    for _ in range(4000):
        first, second = draw_peers(batch, generator=generator)
        counts.index_put_((first, second), torch.ones(5), accumulate=True)
    assert not counts.diagonal().any()
    off = counts[~torch.eye(5, dtype=torch.bool)]
    # 20 cells of a multinomial with 20,000 draws: five standard deviations of 1000 · (1 − 1/20).
    assert ((off - 1000).abs() < 5 * 950**0.5).all()
    again = [draw_peers(batch, generator=torch.Generator().manual_seed(3)) for _ in range(2)]
    assert torch.equal(torch.stack(again[0]), torch.stack(again[1]))


def test_ignored_rows_are_never_peers():
    """Neither n₁ nor n₂ falls on a row whose target is ignored."""
    z, y = example(9, 3)
    y[::2] = -100
    batch = make_batch(z, y, ignore_index=-100)
    for seed in range(200):
        first, second = draw_peers(batch, generator=torch.Generator().manual_seed(seed))
        assert (first % 2 == 1).all()
        assert (second % 2 == 1).all()
        assert (first != second).all()


def test_alpha_zero_is_the_plain_loss_and_torch_cross_entropy():
    """Without a peer term and a clip the loss is cross entropy."""
    z, y = example(20, 4)
    torch.testing.assert_close(peer_loss(z, y, alpha=0.0, eps=0.0), torch.nn.functional.cross_entropy(z, y))
    for base in BASES:
        torch.testing.assert_close(peer_loss(z, y, base=base, alpha=0.0), plain_loss(z, y, base=base))


@given(k=st.integers(2, 5), seed=st.integers(0, 1000), alpha=st.floats(-2, 3))
def test_the_closed_form_of_the_unclipped_gradient(k, seed, alpha):
    """(1 − α)·p − 1[y] + α·π̃, for each row: convex for α < 1, linear at α = 1."""
    z, y = example(4, k, seed)
    prior = torch.tensor(np.random.default_rng(seed).dirichlet(np.ones(k)))
    z.requires_grad_()
    peer_loss(z, y, alpha=alpha, eps=0.0, noisy_prior=prior, reduction="sum").backward()
    expected = (1 - alpha) * torch.softmax(z, 1) - torch.eye(k, dtype=z.dtype)[y] + alpha * prior
    torch.testing.assert_close(z.grad, expected.detach(), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("peers", ["expected", "sampled"])
@pytest.mark.parametrize(
    "base", ["cross_entropy", "logistic", "sigmoid", "mae", "gce", "unhinged", "squared"]
)
def test_gradients_agree_with_finite_differences(base, peers):
    """For every smooth base, with weights, a score matrix and either kind of peers."""
    z, y = example(5, 3)
    z.requires_grad_()

    def loss(t):
        return peer_loss(
            t,
            y,
            base=base,
            alpha=-0.4,
            peers=peers,
            weight=torch.tensor([1.0, 0.5, 2.0]),
            score_matrix=torch.tensor([[1.0, 0.0, 1.0], [0.0, 1.0, 0.0], [1.0, 0.0, 1.0]]),
            generator=torch.Generator().manual_seed(0),
        )

    assert gradcheck(loss, (z,))


@given(
    classifier=st.lists(st.integers(0, 2), min_size=4, max_size=4),
    seed=st.integers(0, 1000),
    alpha=st.floats(-2, 2),
)
def test_correlated_agreement_is_one_minus_m(classifier, seed, alpha):
    """On 0-1 losses, loss plus M-score is the same number for every classifier, for every M."""
    rng = np.random.default_rng(seed)
    matrix = rng.integers(0, 2, size=(3, 3)).astype(float)
    y = torch.tensor(rng.integers(3, size=4))
    prior = np.bincount(y, minlength=3) / 4

    def loss(predictions):
        z = torch.eye(3, dtype=torch.float64)[list(predictions)] * 9
        return peer_loss(z, y, base="zero_one", alpha=alpha, score_matrix=matrix).item()

    def score(predictions):
        agreement = np.mean([matrix[f, label] for f, label in zip(predictions, y, strict=True)])
        return agreement - alpha * np.mean([matrix[f] @ prior for f in predictions])

    constant = loss([0, 0, 0, 0]) + score([0, 0, 0, 0])
    assert loss(classifier) + score(classifier) == pytest.approx(constant, abs=1e-12)


def test_the_identity_score_matrix_gives_peer_loss_back():
    """M = I is peer loss, for every base and either kind of peers."""
    z, y = example(8, 4)
    for base, peers in itertools.product(BASES, ["expected", "sampled"]):
        losses = [
            peer_loss(
                z, y, base=base, peers=peers, score_matrix=m, generator=torch.Generator().manual_seed(1)
            )
            for m in (None, torch.eye(4))
        ]
        torch.testing.assert_close(losses[0], losses[1])


@given(st.integers(2, 4), st.integers(0, 1000), st.floats(-2, 2))
def test_a_population_written_as_a_batch_has_the_population_risk(k, seed, alpha):
    """On data that enumerate a distribution, the loss is theory.peer_risk up to rounding."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 4, size=(3, k))
    counts[0] += 1
    z = torch.tensor(rng.normal(size=(3, k)))
    rows = [(x, label) for x in range(3) for label in range(k) for _ in range(counts[x, label])]
    points, labels = (torch.tensor(c) for c in zip(*rows, strict=True))
    risk = theory.peer_risk(loss_matrix(z, "hinge").numpy(), counts / counts.sum(), alpha=alpha)
    loss = peer_loss(z[points], labels, base="hinge", alpha=alpha).item()
    assert loss == pytest.approx(risk, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alpha": float("nan")}, r"`alpha` must be a finite number; got nan.*optimal_alpha"),
        ({"alpha": float("inf")}, "`alpha` must be a finite number"),
        ({"alpha": "much"}, "`alpha` must be a finite number; got 'much'"),
        ({"alpha": torch.tensor([1.0, 2.0])}, "`alpha` must be a finite number"),
        ({"peers": "many"}, "`peers` must be one of 'expected', 'sampled'; got 'many'"),
        ({"base": "nonsense"}, "`base` must be one of"),
        ({"eps": 2.0}, "`eps` must lie in"),
        (
            {"noisy_prior": [0.5, 0.4, 0.2]},
            "`noisy_prior` must be probabilities that sum to 1; the sum is 1.1",
        ),
        ({"noisy_prior": [1.5, -0.5, 0.0]}, "`noisy_prior` must be finite and non-negative"),
        ({"noisy_prior": [0.5, 0.5]}, "`noisy_prior` must have one entry for each of the 3 classes"),
        ({"noisy_prior": 0.5}, r"`noisy_prior` must have shape \(K,\)"),
        ({"score_matrix": [[1.0, 0.0], [0.0, 1.0]]}, "`score_matrix` must have one entry for each of the 3"),
        ({"score_matrix": [1.0, 0.0, 0.0]}, r"`score_matrix` must have shape \(K, K\)"),
        ({"score_matrix": [[np.nan] * 3] * 3}, "`score_matrix` must be finite"),
    ],
)
def test_bad_arguments_are_named(options, message):
    """The message names the argument, what was expected and what was received."""
    z, y = example()
    with pytest.raises(InvalidInputError, match=message):
        peer_loss(z, y, **options)


@pytest.mark.parametrize(("n", "ignored"), [(1, 0), (4, 3)])
def test_sampled_peers_need_two_labelled_rows(n, ignored):
    """A batch of one has no peer; the message says how to avoid it."""
    z, y = example(n)
    y[:ignored] = -100
    with pytest.raises(InvalidInputError, match=r"at least 2 labelled rows.*drop_last"):
        peer_loss(z, y, peers="sampled")


@pytest.mark.parametrize("eps", [0.0, 1e-5])
@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("learned", ["alpha", "noisy_prior", "weight"])
def test_gradients_flow_into_settings_for_every_size_of_the_batch(learned, soft, eps):
    """The gradient of a sum over a large batch is the sum of those over small batches."""
    generator = torch.Generator().manual_seed(0)
    n, k = 600, 20  # more logits than the small batches that torch operations compute
    logits = torch.randn(n, k, generator=generator, dtype=torch.float64).requires_grad_()
    target = torch.randint(k, (n,), generator=generator)
    if soft:
        target = torch.softmax(torch.randn(n, k, generator=generator, dtype=torch.float64), dim=1)
    values = {
        "alpha": torch.tensor(0.7, dtype=torch.float64),
        "noisy_prior": torch.full((k,), 1.0 / k, dtype=torch.float64),
        "weight": torch.rand(k, generator=generator, dtype=torch.float64) + 0.5,
    }
    value = values[learned].requires_grad_()

    def gradients(rows):
        loss = peer_loss(logits[rows], target[rows], eps=eps, reduction="sum", **values)
        return torch.autograd.grad(loss, (value, logits))

    small = [gradients(slice(start, start + 100)) for start in range(0, n, 100)]
    found = gradients(slice(n))
    for part, summed in zip(found, (sum(parts) for parts in zip(*small, strict=True)), strict=True):
        torch.testing.assert_close(part, summed)


@pytest.mark.parametrize("name", ["weight", "noisy_prior", "score_matrix"])
@pytest.mark.parametrize(
    "value", ["ab", [[1.0], [1.0, 2.0]], np.array([1j, 0]), torch.tensor([1j, 0]), {1: 2}]
)
def test_settings_must_be_real_numbers(name, value):
    """Text, rows of different length and complex numbers are refused, with the name of the argument."""
    with pytest.raises(InvalidInputError, match=f"`{name}` must be an array of real numbers"):
        peer_loss(torch.zeros(2, 2), torch.tensor([0, 1]), **{name: value})


@pytest.mark.parametrize("value", ["a", None, -1.5, 2**70, True])
def test_the_ignored_label_must_be_an_integer(value):
    """In functions as in modules; integers of NumPy are accepted."""
    logits, target = torch.zeros(2, 2), torch.tensor([0, -1])
    with pytest.raises(InvalidInputError, match="`ignore_index` must be a 64-bit integer"):
        peer_loss(logits, target, ignore_index=value)
    expected = peer_loss(logits, target, ignore_index=-1)
    assert peer_loss(logits, target, ignore_index=np.int64(-1)) == expected
    assert PeerLoss(ignore_index=np.int64(-1))(logits, target) == expected
