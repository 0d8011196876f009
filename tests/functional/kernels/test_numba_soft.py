"""The numba path of PeerLoss with soft targets gives the results of torch operations."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import one_hot

from peerloss import PeerLoss
from tests.functional.kernels.paths import PRIOR, Fast, InTorch, declines, example, value_and_gradient

pytest.importorskip("numba", reason="this path needs numba")


def soft_targets(n=6, k=3, seed=0, dtype=torch.float64):
    """Return rows that sum to one, some of them with negative entries."""
    rows = np.random.default_rng(seed).dirichlet(np.ones(k), size=n)
    rows[::4] = 1.5 * rows[::4] - 0.5 / k
    return torch.tensor(rows, dtype=dtype)


@given(
    n=st.integers(1, 40),
    k=st.integers(2, 6),
    seed=st.integers(0, 10_000),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    scale=st.sampled_from([0.0, 1.0, 30.0]),
    alpha=st.floats(-3, 3),
    eps=st.sampled_from([0.0, 1e-5, 0.1]),
    reduction=st.sampled_from(["mean", "sum"]),
    given_prior=st.booleans(),
)
def test_both_paths_agree(n, k, seed, dtype, scale, alpha, eps, reduction, given_prior):
    """Loss, gradient and counted shares over three steps, for every option that the numba path handles."""
    options = {"alpha": alpha, "eps": eps, "reduction": reduction}
    if given_prior:
        options["noisy_prior"] = np.random.default_rng(seed).dirichlet(np.ones(k))
    ours, reference = Fast(**options), InTorch(**options)
    close = {"rtol": 1e-4, "atol": 1e-4 * n} if dtype == torch.float32 else {"rtol": 1e-9, "atol": 1e-9 * n}
    for step in range(3):
        z, _ = example(n, k, seed + step, dtype, scale)
        q = soft_targets(n, k, seed + step, dtype)
        for actual, expected in zip(
            value_and_gradient(ours, z, q), value_and_gradient(reference, z, q), strict=True
        ):
            assert actual.dtype == dtype
            torch.testing.assert_close(actual, expected, **close)
    torch.testing.assert_close(ours.label_counts, reference.label_counts, rtol=1e-6, atol=1e-6)
    assert ours.label_counts.dtype == reference.label_counts.dtype


def test_one_hot_rows_give_the_numbers_of_class_codes():
    """Loss and gradient agree to rounding, and the counts are equal.

    The terms of loss and gradient are at most 10, so rounding is at most about 1e-15 times their number. It
    is absolute: relative to a gradient near zero, a difference of terms, it has no bound.
    """
    z, y = example()
    ours, hard = Fast(), Fast()
    for actual, expected in zip(
        value_and_gradient(ours, z, one_hot(y, 3).double()), value_and_gradient(hard, z, y), strict=True
    ):
        torch.testing.assert_close(actual, expected, rtol=0.0, atol=1e-14)
    assert ours.label_counts.tolist() == hard.label_counts.tolist()


def test_second_derivatives():
    """They are those of torch operations."""
    z, _ = example()
    z.requires_grad_()
    assert torch.autograd.gradgradcheck(lambda t: Fast(noisy_prior=PRIOR)(t, soft_targets()), (z,))


def test_class_codes_and_soft_targets_in_turn():
    """Counts of class codes are continued by the shares of soft targets, and the other way round."""
    z, y = example()
    ours, reference = PeerLoss(), InTorch()
    for target in (y, soft_targets(), soft_targets(seed=1), y):
        torch.testing.assert_close(ours(z.requires_grad_(), target), reference(z, target))
    torch.testing.assert_close(ours.label_counts, reference.label_counts)


Z, Q = example()[0], soft_targets()
UNUSUAL = {
    "a row without a label": Q.index_fill(0, torch.tensor([2]), torch.nan),
    "another precision": Q.float(),
    "a gradient of the targets": Q.clone().requires_grad_(),
    "strided targets": Q.T.contiguous().T,
}


@pytest.mark.parametrize("what", UNUSUAL)
def test_unusual_targets_are_left_to_torch(what):
    """The numba path declines without counting, and the module returns what torch operations return."""
    target = UNUSUAL[what]
    ours, reference = PeerLoss(), InTorch()
    assert declines(ours, Z, target)
    assert len(ours.label_counts) == 0
    assert torch.equal(ours(Z, target), reference(Z, target))


def test_rows_that_do_not_sum_to_one_are_refused():
    """The error is that of torch operations, and nothing is counted."""
    loss = PeerLoss()
    with pytest.raises(ValueError, match=r"`target` .* row 0 sums to 2"):
        loss(Z, 2 * Q)
    assert len(loss.label_counts) == 0
