"""Base losses against naive references."""

import functools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq
from torch.autograd import gradcheck, gradgradcheck

from peerloss import theory
from peerloss.exceptions import InvalidInputError
from peerloss.functional import (
    BASES,
    Base,
    bi_tempered_matrix,
    gce_matrix,
    loss_matrix,
    margins,
    plain_loss,
    tempered_log_softmax,
)
from peerloss.functional.base import as_base, check_trainable_base, trainable_bases

SMOOTH = ["cross_entropy", "logistic", "sigmoid", "mae", "gce", "unhinged", "squared", "bi_tempered"]
KINKED = ["ramp", "hinge"]
BOUNDED = {"cross_entropy", "sigmoid", "mae", "gce", "ramp", "squared", "zero_one", "bi_tempered"}


def naive_tempered_softmax(row, t):
    """λ by bracketing, in plain Python numbers."""
    if t == 1:
        return [math.exp(v - max(row)) / sum(math.exp(u - max(row)) for u in row) for v in row]

    def probabilities(shift):
        return [(1 + (t - 1) * (shift - v)) ** (-1 / (t - 1)) for v in row]

    low, high = max(row), max(row) + (len(row) ** (t - 1) - 1) / (t - 1)
    return probabilities(brentq(lambda at: sum(probabilities(at)) - 1, low, high + 1e-9, xtol=1e-14))


def naive_bi_tempered(row, k, t1=0.8, t2=1.2):
    """Bregman divergence of Amid et al. (2019) between the one-hot label and p, term by term."""
    p = naive_tempered_softmax(list(row), t2)
    total = 0.0
    for j, v in enumerate(p):
        y = float(j == k)
        total += y * (tempered_log(1.0, t1) - tempered_log(v, t1)) - (y ** (2 - t1) - v ** (2 - t1)) / (
            2 - t1
        )
    return total


def tempered_log(u, t):
    return math.log(u) if t == 1 else (u ** (1 - t) - 1) / (1 - t)


def naive(z, base, eps=1e-5, q=0.7):
    """Each entry by itself, in plain Python numbers."""
    losses = np.empty_like(z)
    for n, row in enumerate(z):
        p = [math.exp(v - max(row)) for v in row]
        p = [v / sum(p) for v in p]
        for k in range(len(row)):
            others = [row[j] for j in range(len(row)) if j != k]
            m = row[k] - (max(others) + math.log(sum(math.exp(v - max(others)) for v in others)))
            losses[n, k] = {
                "cross_entropy": lambda: -math.log(p[k] + eps),
                "logistic": lambda: math.log1p(math.exp(-m)) if m > -500 else -m,
                "sigmoid": lambda: 1 / (1 + math.exp(m)),
                "mae": lambda: sum(abs(p[j] - (j == k)) for j in range(len(row))),
                "gce": lambda: (1 - p[k] ** q) / q,
                "unhinged": lambda: 1 - m,
                "ramp": lambda: min(max((1 - m) / 2, 0), 1),
                "hinge": lambda: max(0, 1 - m),
                "squared": lambda: sum((p[j] - (j == k)) ** 2 for j in range(len(row))),
                "bi_tempered": lambda: naive_bi_tempered(row, k),
                "zero_one": lambda: float(int(np.argmax(row)) != k),
            }[base]()
    return losses


def random_logits(n, k, seed=0, scale=3.0):
    return torch.tensor(np.random.default_rng(seed).normal(size=(n, k)) * scale)


@pytest.mark.parametrize("base", sorted(BASES))
@given(k=st.integers(2, 6), seed=st.integers(0, 10_000), scale=st.sampled_from([0.1, 1.0, 10.0]))
def test_every_base_agrees_with_a_naive_reference(base, k, seed, scale):
    """Column k is the loss if the label is k, computed entry by entry."""
    z = random_logits(4, k, seed, scale)
    np.testing.assert_allclose(loss_matrix(z, base), naive(z.numpy(), base), rtol=1e-9, atol=1e-11)


def test_the_reference_covers_every_registered_base():
    """A base loss cannot be added without a reference."""
    assert set(SMOOTH) | set(KINKED) | {"zero_one"} == set(BASES)


@pytest.mark.parametrize("base", sorted(BASES))
@pytest.mark.parametrize("shape", [(5,), (5, 1)])
def test_binary_logits_mean_the_columns_zero_and_z(base, shape):
    """(n,) and (n, 1) are the two-class logits (0, z)."""
    z = random_logits(5, 1).reshape(5)
    two = torch.stack([torch.zeros(5, dtype=z.dtype), z], dim=1)
    torch.testing.assert_close(loss_matrix(z.reshape(shape), base), loss_matrix(two, base))


@pytest.mark.parametrize("base", SMOOTH)
@pytest.mark.parametrize("k", [2, 4])
def test_gradients_of_smooth_bases(base, k):
    """Autograd agrees with finite differences."""
    z = random_logits(3, k).requires_grad_()
    assert gradcheck(lambda t: loss_matrix(t, base), (z,))


@pytest.mark.parametrize("base", KINKED)
@pytest.mark.parametrize("k", [2, 4])
def test_gradients_of_kinked_bases_away_from_their_kinks(base, k):
    """Autograd agrees with finite differences if the loss is differentiable."""
    z = random_logits(200, k, seed=3)
    smooth_rows = (margins(z).abs() - 1).abs().min(dim=1).values > 0.01
    assert gradcheck(lambda t: loss_matrix(t, base), (z[smooth_rows][:5].clone().requires_grad_(),))


@pytest.mark.parametrize("base", sorted(BASES))
def test_single_precision_agrees_with_double(base):
    """float32 in, float32 out, the same numbers."""
    z = random_logits(6, 4)
    single = loss_matrix(z.float(), base)
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), loss_matrix(z, base), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("base", sorted(BASES))
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_single(base, dtype):
    """Logs of half-precision probabilities would lose everything: the arithmetic is float32."""
    z = random_logits(6, 4).to(dtype)
    assert loss_matrix(z, base).dtype == torch.float32
    torch.testing.assert_close(loss_matrix(z, base), loss_matrix(z.float(), base))


@pytest.mark.parametrize("base", sorted(BASES))
def test_extreme_logits_stay_finite(base):
    """Confident networks give neither NaN losses nor NaN gradients."""
    z = torch.tensor([[800.0, -800.0, 0.0], [0.0, 0.0, 0.0], [-1e4, 1e4, 1e4]], requires_grad=True)
    losses = loss_matrix(z, base)
    assert torch.isfinite(losses).all()
    if base != "zero_one":
        losses.sum().backward()
        assert torch.isfinite(z.grad).all()


@given(k=st.integers(2, 6), seed=st.integers(0, 1000), scale=st.sampled_from([0.5, 5.0, 30.0]))
def test_margins_are_log_odds(k, seed, scale):
    """σ(m_k) = p_k, also if p_k is one up to rounding."""
    z = random_logits(5, k, seed, scale)
    torch.testing.assert_close(torch.sigmoid(margins(z)), torch.softmax(z, 1), rtol=1e-9, atol=1e-300)


@pytest.mark.parametrize("t1", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("t2", [1.0, 1.001, 1.5, 2.0, 5.0])
def test_temperatures_of_the_bi_tempered_loss(t1, t2):
    """All pairs of temperatures agree with the naive reference, with confident and unsure logits."""
    z = torch.cat([random_logits(4, 5, scale=scale) for scale in (0.1, 3.0, 30.0)])
    naive_losses = [[naive_bi_tempered(row, k, t1, t2) for k in range(5)] for row in z.numpy()]
    np.testing.assert_allclose(bi_tempered_matrix(z, t1=t1, t2=t2), naive_losses, rtol=1e-8, atol=1e-10)


def test_temperatures_of_one_give_cross_entropy():
    """The bi-tempered loss at t1 = t2 = 1 is −log p."""
    z = random_logits(6, 4)
    torch.testing.assert_close(bi_tempered_matrix(z, t1=1.0, t2=1.0), -torch.log_softmax(z, dim=1))


@given(k=st.integers(2, 200), seed=st.integers(0, 1000), scale=st.sampled_from([0.0, 1.0, 100.0, 1e4]))
def test_tempered_probabilities_sum_to_one(k, seed, scale):
    """The fixed number of Newton steps suffices, for many classes and for logits of 10⁴."""
    for t2 in (1.0, 1.01, 1.2, 3.0, 5.0):
        totals = tempered_log_softmax(random_logits(3, k, seed, scale), t2=t2).exp().sum(dim=1)
        torch.testing.assert_close(totals, torch.ones_like(totals), rtol=1e-9, atol=0.0)


@pytest.mark.parametrize("t2", [1.0 + 1e-6, 1.0 + 1e-5, 1.0001, 1.001, 1.01])
def test_tempered_probabilities_sum_to_one_in_single_precision(t2):
    """Also for a t2 slightly above 1, where 1 + (t2 − 1)·d has few digits of d."""
    z = random_logits(50, 10, 0, 3.0)
    log_p = tempered_log_softmax(z.float(), t2=t2)
    torch.testing.assert_close(log_p.exp().sum(dim=1), torch.ones(50), rtol=0, atol=1e-5)
    torch.testing.assert_close(log_p.double(), tempered_log_softmax(z, t2=t2), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("t2", [1.01, 1.2, 3.0])
def test_derivatives_through_the_newton_steps(t2):
    """First and second derivatives of the tempered softmax agree with finite differences."""
    z = random_logits(2, 3).requires_grad_()
    assert gradcheck(lambda t: tempered_log_softmax(t, t2=t2), (z,))
    assert gradgradcheck(lambda t: tempered_log_softmax(t, t2=t2), (z,))


def test_a_callable_is_a_base():
    """Any function from (n, K) to (n, K) is accepted, for instance ``gce_matrix`` with another q."""
    z = random_logits(4, 3)
    other = functools.partial(gce_matrix, q=0.3)
    np.testing.assert_allclose(loss_matrix(z, other), naive(z.numpy(), "gce", q=0.3), rtol=1e-9)


def test_inputs_are_not_changed():
    """No base writes into the logits."""
    z = random_logits(4, 3)
    kept = z.clone()
    for base in BASES:
        loss_matrix(z, base)
    assert torch.equal(z, kept)


def test_symmetric_bases_sum_to_a_constant():
    """Over labels, sigmoid and MAE sum to K − 1 and 2(K − 1): why they resist symmetric noise."""
    z = random_logits(7, 4)
    torch.testing.assert_close(loss_matrix(z, "sigmoid").sum(1), torch.full((7,), 3.0, dtype=z.dtype))
    torch.testing.assert_close(loss_matrix(z, "mae").sum(1), torch.full((7,), 6.0, dtype=z.dtype))


@pytest.mark.parametrize("base", sorted(BASES))
def test_which_bases_are_bounded(base):
    """At logits of 10⁴ the losses of bounded bases stay below 12, the others grow with the logits."""
    z = 1e4 * random_logits(50, 3)
    assert bool(loss_matrix(z, base).abs().max() < 12) == (base in BOUNDED)


@pytest.mark.parametrize("base", sorted(BASES))
def test_records_say_which_bases_are_symmetric(base):
    """With two classes the losses of both labels add up to the same number for every row."""
    sums = loss_matrix(random_logits(50, 2), base).sum(dim=1)
    assert bool((sums - sums[0]).abs().max() < 1e-12) == as_base(base).symmetric


@pytest.mark.parametrize("base", sorted(BASES))
def test_records_say_which_bases_clip(base):
    """``eps`` changes the losses of those and of no others."""
    z = random_logits(5, 3)
    assert torch.equal(loss_matrix(z, base, eps=0.1), loss_matrix(z, base, eps=0.2)) != as_base(base).clips
    assert as_base(base).clip(0.1) == (0.1 if as_base(base).clips else 0.0)


def test_the_theory_agrees_with_the_records():
    """Its list of bounded bases with ℓ(f, −y) = C − ℓ(f, y) is that of the symmetric records."""
    records = {name: as_base(name) for name in BASES}
    both = {name for name, record in records.items() if record.symmetric and name in BOUNDED}
    assert set(theory.FLIP_SYMMETRIC_BASES) == both
    assert set(theory.SYMMETRIC_CURVATURE_BASES) - {"margin_square"} <= set(BASES)


def test_q_of_generalised_cross_entropy_is_part_of_the_name():
    """``"gce:0.3"`` has q = 0.3, ``"gce"`` has 0.7; any loss accepts both."""
    z, y = random_logits(4, 3), torch.tensor([0, 2, 1, 0])
    np.testing.assert_allclose(loss_matrix(z, "gce:0.3"), naive(z.numpy(), "gce", q=0.3), rtol=1e-9)
    assert torch.equal(loss_matrix(z, "gce:0.7"), loss_matrix(z, "gce"))
    assert plain_loss(z, y, base="gce:0.3") != plain_loss(z, y, base="gce")
    record = as_base("gce:0.3")
    assert (record.name, record.clips, record.log_loss) == ("gce:0.3", False, False)


def test_names_that_networks_can_train_with():
    """All registered bases with a gradient, and generalised cross entropy with any q."""
    assert set(trainable_bases()) == set(BASES) - {"zero_one"}
    assert check_trainable_base("gce:0.5", "base") == "gce:0.5"
    with pytest.raises(InvalidInputError, match=r"`net\.base` must be one of .*; got 'zero_one'"):
        check_trainable_base("zero_one", "net.base")


def test_a_registered_base_is_a_function_or_a_record(monkeypatch):
    """Losses find it by its name; a record may say more about it."""
    z = random_logits(4, 3)
    monkeypatch.setitem(BASES, "mine", lambda t: 2.0 * t)
    assert torch.equal(loss_matrix(z, "mine"), 2.0 * z)
    assert not as_base("mine").symmetric
    monkeypatch.setitem(BASES, "mine", Base("mine", torch.sigmoid, symmetric=True))
    assert torch.equal(loss_matrix(z, "mine"), torch.sigmoid(z))
    assert as_base("mine").symmetric
    assert torch.equal(BASES["mine"](z), torch.sigmoid(z))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: loss_matrix(torch.zeros(2, 3), "gce:1.5"),
            r"`q in base='gce:q'` must lie in \(0, 1\]; got 1.5",
        ),
        (lambda: loss_matrix(torch.zeros(2, 3), "gce:half"), "`q in base='gce:q'` must be a finite number"),
        (lambda: loss_matrix(torch.zeros(2, 3), "mae:0.5"), "`base` must be one of .*'mae:0.5'"),
        (
            lambda: loss_matrix(torch.zeros(2, 3), "nonsense"),
            r"`base` must be one of bi_tempered, cross_entropy, gce.*'nonsense'",
        ),
        (lambda: loss_matrix(torch.zeros(2, 3), 7), "`base` must be one of"),
        (lambda: loss_matrix(torch.zeros(2, 3), lambda z: z[:, 0]), r"`base` must return .*\(2, 3\)"),
        (lambda: loss_matrix(torch.zeros(2, 3), lambda _: 0.0), "`base` must return .*float"),
        (lambda: loss_matrix(torch.zeros(2, 3), eps=-1.0), "`eps` must lie in"),
        (lambda: loss_matrix(torch.zeros(2, 3, 4)), r"`logits` must have shape .*flatten"),
        (lambda: loss_matrix(torch.zeros(2, 3, dtype=torch.int64)), "`logits` must be a floating-point"),
        (lambda: loss_matrix([[0.0, 1.0]]), "`logits` must be a floating-point tensor; got list"),
        (lambda: gce_matrix(torch.zeros(2, 3), q=0.0), r"`q` must lie in \(0, 1\]"),
        (lambda: bi_tempered_matrix(torch.zeros(2, 3), t1=1.1), r"`t1` must lie in \[0, 1\]; got 1.1"),
        (lambda: bi_tempered_matrix(torch.zeros(2, 3), t2=0.9), r"`t2` must lie in \[1, 5\]; got 0.9"),
    ],
)
def test_bad_arguments_are_named(call, message):
    """The message names the argument, what was expected and what was received."""
    with pytest.raises(InvalidInputError, match=message):
        call()


def test_a_record_shows_no_memory_address():
    """Its repr is the same in every process: names and the options that differ from their defaults."""
    assert (
        repr(as_base("cross_entropy"))
        == "Base('cross_entropy', cross_entropy_matrix, clips=True, log_loss=True)"
    )
    assert repr(as_base("gce:0.5")) == "Base('gce:0.5', partial)"
    assert repr(as_base(random_logits)) == "Base(None, random_logits)"


def test_records_accept_the_options_of_their_matrix():
    """A record of ``BASES`` can be called as the function of its loss matrix."""
    z = torch.randn(4, 3, dtype=torch.float64)
    torch.testing.assert_close(BASES["gce"](z, q=0.5), gce_matrix(z, q=0.5))
    torch.testing.assert_close(BASES["cross_entropy"](z, eps=0.0), -torch.log_softmax(z, dim=1))
