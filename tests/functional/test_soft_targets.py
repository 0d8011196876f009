"""Probabilities as targets: every loss is linear in the label where its formula says so."""

import itertools

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from peerloss.functional import (
    BASES,
    forward_loss,
    loss_matrix,
    peer_loss,
    plain_loss,
)
from peerloss.functional.batch import make_batch
from peerloss.functional.kernels.reference import draw_peers
from tests.functional.soft_examples import LINEAR, M3, OTHERS, PRIOR, W3, example, one_hot, with_gradient


@pytest.mark.parametrize("base", sorted(BASES))
@pytest.mark.parametrize("peers", ["expected", "sampled"])
@pytest.mark.parametrize(
    "options", [{}, {"weight": W3}, {"score_matrix": M3}, {"weight": W3, "score_matrix": M3}]
)
def test_one_hot_targets_are_class_codes(base, peers, options):
    """Peer loss and its gradient: all bases, both peers, weights and score matrices, every reduction."""
    z, _, y = example(8)
    for reduction in ("mean", "sum", "none"):

        def loss(t, target, reduction=reduction):
            settings = {"base": base, "alpha": 0.8, "peers": peers, "reduction": reduction} | options
            return peer_loss(t, target, generator=torch.Generator().manual_seed(3), **settings)

        compute = with_gradient if base != "zero_one" else lambda loss, *batch: loss(*batch)
        soft, hard = compute(loss, z, one_hot(y)), compute(loss, z, y)
        torch.testing.assert_close(soft, hard, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("name", [*LINEAR, *OTHERS])
def test_one_hot_targets_are_class_codes_in_every_loss(name):
    """Also with class weights, where the loss has them, and with a masked class."""
    loss, (z, _, y) = (LINEAR | OTHERS)[name], example(8)
    y[:3] = torch.arange(3)
    masked = z.clone()
    masked[4, (y[4] + 1) % 3] = -torch.inf
    for logits, options in ((z, {}), (masked, {}), (z, {"weight": W3})):
        if options and name in OTHERS:
            continue
        soft = with_gradient(lambda t, q, kw=options: loss(t, q, **kw), logits, one_hot(y))
        hard = with_gradient(lambda t, q, kw=options: loss(t, q, **kw), logits, y)
        torch.testing.assert_close(soft, hard, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("k", [2, 3, 100])
@pytest.mark.parametrize("eps", [0.0, 1e-5])
def test_large_batches_are_those_of_class_codes(k, eps):
    """Blocks of rows for two, few and many classes, with and without a clip."""
    z, _, y = example(3000, k)

    def loss(t, target):
        return peer_loss(t, target, alpha=0.8, eps=eps)

    torch.testing.assert_close(with_gradient(loss, z, one_hot(y, k)), with_gradient(loss, z, y))


@pytest.mark.parametrize("name", LINEAR)
@pytest.mark.parametrize("base", ["cross_entropy", "squared"])
def test_the_loss_is_the_mean_over_labels_drawn_from_the_target(name, base):
    """By enumeration: Σ_k q[n, k] times the loss of label k. Negative entries are extrapolated linearly."""
    z, q, _ = example()
    options = {} if name == "forward" else {"base": base}
    n, k = z.shape
    by_label = torch.stack(
        [LINEAR[name](z, torch.full((n,), label), reduction="none", **options) for label in range(k)], dim=1
    )
    for target in (q, 1.4 * one_hot(q.argmax(dim=1)) - 0.4 / 3):
        expected = (target * by_label).sum(dim=1)
        found = LINEAR[name](z, target, reduction="none", **options)
        torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-12)


def test_plain_loss_is_torch_cross_entropy_with_probabilities():
    """Without a clip and without weights, in every reduction, for rows and for positions."""
    z, q, _ = example(12)
    tokens, shares = (t.view(3, 4, 3).movedim(-1, 1) for t in (z, q))
    for logits, target in ((z, q), (tokens, shares)):
        for reduction in ("mean", "sum", "none"):
            expected = torch.nn.functional.cross_entropy(logits, target, reduction=reduction)
            found = plain_loss(logits, target, eps=0.0, reduction=reduction)
            torch.testing.assert_close(found, expected)
            torch.testing.assert_close(
                peer_loss(logits, target, eps=0.0, alpha=0.0, reduction=reduction), expected
            )


def test_the_mean_divides_by_the_weights_of_the_targets():
    """Σ_n Σ_k w_k q[n, k], which is the sum of w[ỹ_n] for class codes; torch divides by n here."""
    z, q, _ = example()
    for loss in LINEAR.values():
        total = loss(z, q, weight=W3, reduction="none").sum()
        torch.testing.assert_close(loss(z, q, weight=W3), total / (q @ W3).sum())


def test_the_counted_prior_is_the_mean_target():
    """Counted peers equal given ones at the mean over rows that have a label."""
    z, q, _ = example()
    q[2] = torch.nan
    kept = torch.arange(6) != 2
    for base in ("cross_entropy", "sigmoid"):
        given = peer_loss(z, q, base=base, noisy_prior=q[kept].mean(dim=0))
        torch.testing.assert_close(peer_loss(z, q, base=base), given)


def test_sampled_peers_agree_with_a_naive_loop():
    """Σ_k q[n, k] L[n, k] − α·Σ_k q[n₂, k] L[n₁, k] for the pairs that the generator draws."""
    z, q, _ = example()
    q[1] = torch.nan
    rows = peer_loss(
        z, q, alpha=0.6, peers="sampled", reduction="none", generator=torch.Generator().manual_seed(1)
    )
    batch = make_batch(z, q, ignore_index=-100)
    first, second = draw_peers(batch, generator=torch.Generator().manual_seed(1))
    losses = loss_matrix(z)
    assert rows[1] == 0
    assert 1 not in [*first.tolist(), *second.tolist()]
    for n in (0, 2, 3, 4, 5):
        expected = q[n] @ losses[n] - 0.6 * q[second[n]] @ losses[first[n]]
        torch.testing.assert_close(rows[n], expected)


@pytest.mark.parametrize("name", [*LINEAR, *OTHERS])
def test_rows_of_nan_have_no_label(name):
    """They change neither the loss nor the gradients of other rows; ``ignore_index`` is not involved."""
    loss, (z, q, _) = (LINEAR | OTHERS)[name], example()
    padded = torch.cat([torch.full((2, 3), 7.0, dtype=z.dtype), z])
    targets = torch.cat([torch.full((2, 3), torch.nan, dtype=q.dtype), q])
    value, gradient = with_gradient(loss, padded, targets)
    expected, short = with_gradient(loss, z, q)
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(gradient[2:], short)
    assert not gradient[:2].any()
    if name != "dmi":
        assert (loss(padded, targets, reduction="none")[:2] == 0).all()
    for nothing in (z[:0], z):
        value, gradient = with_gradient(loss, nothing, torch.full_like(nothing, torch.nan))
        assert value == 0
        assert not gradient.any()


@pytest.mark.parametrize("base", ["cross_entropy", "logistic", "sigmoid", "gce"])
@pytest.mark.parametrize("peers", ["expected", "sampled"])
def test_gradients_agree_with_finite_differences(base, peers):
    """Of peer loss in float64, also with respect to the targets; a row has no label."""
    z, q, _ = example(5)
    missing = torch.zeros(1, 3, dtype=q.dtype)

    def loss(t, q):
        rows = torch.cat([q / q.detach().sum(dim=1, keepdim=True), missing * torch.nan])
        generator = torch.Generator().manual_seed(0)
        options = {"peers": peers, "generator": generator}
        return peer_loss(
            t, rows, base=base, alpha=0.6, **options | ({"noisy_prior": PRIOR} if peers == "expected" else {})
        )

    z = torch.cat([z, z[:1]]).requires_grad_()
    assert gradcheck(lambda t: loss(t, q), (z,))
    rows = q.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(loss(z.detach(), rows), rows)
    step = torch.zeros_like(q)
    step[0, 0], step[0, 1] = 1e-4, -1e-4  # the sum stays one, and the loss is linear
    slope = (loss(z.detach(), q + step) - loss(z.detach(), q - step)) / 2e-4
    torch.testing.assert_close(gradient[0, 0] - gradient[0, 1], slope.detach())


@pytest.mark.parametrize("name", ["backward", "forward", "score matrix"])
def test_gradients_of_the_corrections_agree_with_finite_differences(name):
    """First and second derivatives."""
    z, q, _ = example(4)
    z.requires_grad_()
    assert gradcheck(lambda t: LINEAR[name](t, q), (z,))
    assert gradgradcheck(lambda t: LINEAR[name](t, q), (z,))


@pytest.mark.parametrize("eps", [0.0, 1e-3])
def test_large_batches_have_second_derivatives_and_gradients_of_the_targets(monkeypatch, eps):
    """Blocks are differentiated twice in torch operations, which also compute gradients of the targets."""
    monkeypatch.setattr("peerloss.functional.kernels.dispatch.MIN_BLOCKED_LOGITS", 1)
    z, q, _ = example(4)
    z.requires_grad_()
    assert gradcheck(lambda t: peer_loss(t, q, alpha=0.7, eps=eps), (z,))
    assert gradgradcheck(lambda t: peer_loss(t, q, alpha=0.7, eps=eps), (z,))
    q.requires_grad_()
    (gradient,) = torch.autograd.grad(peer_loss(z, q, eps=eps, noisy_prior=PRIOR, reduction="sum"), q)
    torch.testing.assert_close(gradient, loss_matrix(z, eps=eps))


def test_two_classes_may_have_one_logit():
    """Logits (n,) and (n, 1) mean the columns (0, z), so targets have two columns."""
    rng = np.random.default_rng(0)
    z, ones = torch.tensor(rng.normal(size=5)), torch.tensor(rng.random(5))
    q = torch.stack([1 - ones, ones], dim=1)
    expected = torch.nn.functional.binary_cross_entropy_with_logits(z, ones)
    for logits in (z, z[:, None]):
        torch.testing.assert_close(plain_loss(logits, q, eps=0.0), expected)


def test_floating_targets_are_never_binary_labels():
    """The dtype decides: integers (n, L) are L binary labels, floats (n, K) class probabilities."""
    z, _, y = example()
    torch.testing.assert_close(peer_loss(z, one_hot(y)), peer_loss(z, y))
    assert not torch.isclose(peer_loss(z, one_hot(y).long()), peer_loss(z, y))
    assert peer_loss(z, one_hot(y), reduction="none").shape == (6,)
    assert peer_loss(z, one_hot(y).long(), reduction="none").shape == (6, 3)


def test_positions_are_rows():
    """(N, K, d₁, …) logits and targets, in every reduction; a position without a label is excluded."""
    rng = np.random.default_rng(0)
    z = torch.tensor(rng.normal(size=(2, 3, 4, 5)))
    q = torch.tensor(rng.dirichlet(np.ones(3), size=(2, 4, 5))).movedim(-1, 1).clone()
    q[1, :, 2, 3] = torch.nan
    flat_z, flat_q = (t.movedim(1, -1).reshape(-1, 3) for t in (z, q))
    for reduction in ("mean", "sum", "none"):
        found = peer_loss(z, q, alpha=0.8, reduction=reduction)
        expected = peer_loss(flat_z, flat_q, alpha=0.8, reduction=reduction)
        torch.testing.assert_close(found, expected.view(2, 4, 5) if reduction == "none" else expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_targets_and_logits_may_be_in_half_precision(dtype):
    """Rounded targets are off by their precision and used as they are; arithmetic is in float32."""
    z, q, _ = example(64, 10)
    half, shares = z.to(dtype), q.to(dtype)
    losses, exact = loss_matrix(half.float()), shares.float()
    expected = ((exact - exact.sum(dim=0) / exact.sum()) * losses).sum(dim=1).mean()
    with torch.autocast("cpu", dtype=dtype):
        found = peer_loss(half, shares)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, expected)


def test_forward_correction_does_not_underflow():
    """A class that nothing is mislabelled as, with probability e⁻²⁰⁰ in float32: as for class codes."""
    z = torch.tensor([[0.0, 200.0, 0.0]])
    transition = [[0.7, 0.3, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    soft = with_gradient(lambda t, y: forward_loss(t, y, transition), z, torch.tensor([[1.0, 0.0, 0.0]]))
    hard = with_gradient(lambda t, y: forward_loss(t, y, transition), z, torch.tensor([0]))
    torch.testing.assert_close(soft, hard)


@pytest.mark.parametrize("is_readable", [True, False])
@pytest.mark.parametrize("weight", [None, torch.tensor([1.0, 2.0, 0.5])])
@pytest.mark.parametrize(
    ("transition", "labels"),
    [
        ([[0.9, 0.1, 0.0], [0.1, 0.9, 0.0], [0.0, 1.0, 0.0]], [0, 1]),  # nothing is labelled as class 2
        ([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5], [0.5, 0.0, 0.5]], [0, 1, 2]),
        ([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, 1.0, 0.0]], [0, 1, 2]),  # no diagonal for two classes
    ],
)
def test_forward_correction_with_zeros_in_t(transition, labels, weight, is_readable, monkeypatch):
    """Values and gradients are those of class codes, also where (p T)[k] underflows or is 0."""
    if not is_readable:
        monkeypatch.setattr("peerloss.functional.correction.values_are_checkable", lambda _: False)
    logits = [[-200.0, 0.0, -100.0], [1.0, -150.0, 0.0], [0.3, -0.2, 0.5], [-torch.inf, 1.0, 0.0]]
    for label in labels:
        z = torch.tensor([row for row in logits if not (row[0] == -torch.inf and label == 0)])
        y = torch.full((len(z),), label)

        def loss(t, target):
            return forward_loss(t, target, transition, weight=weight, reduction="sum")

        torch.testing.assert_close(with_gradient(loss, z, one_hot(y).float()), with_gradient(loss, z, y))


def test_transforms_see_differentiable_operations():
    """``vmap`` over rows gives the gradient of each row, as for class codes."""
    z, q, _ = example()

    def row_loss(row, target):
        return peer_loss(row[None], target[None], alpha=0.5, noisy_prior=PRIOR)

    gradients = torch.func.vmap(torch.func.grad(row_loss))(z, q)
    _, expected = with_gradient(
        lambda t, y: peer_loss(t, y, alpha=0.5, noisy_prior=PRIOR, reduction="sum"), z, q
    )
    torch.testing.assert_close(gradients, expected)


def test_inputs_are_not_changed():
    """Neither logits nor targets are written to, on any path."""
    for n, (name, loss) in itertools.product((6, 2000), LINEAR.items()):
        z, q, _ = example(n)
        q[0] = torch.nan
        kept = z.clone(), q.clone()
        with_gradient(loss, z, q)
        assert torch.equal(z, kept[0]), name
        torch.testing.assert_close(q, kept[1], rtol=0.0, atol=0.0, equal_nan=True)
