"""The numba path of PeerLoss gives the results of torch operations."""

import copy
import pickle
import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from peerloss import PeerLoss
from peerloss.exceptions import DivergenceError, DivergenceWarning, InvalidInputError
from peerloss.functional.kernels import numba_cpu
from tests.functional.kernels.paths import (
    PRIOR,
    Fast,
    InTorch,
    declines,
    example,
    started,
    value_and_gradient,
)

pytest.importorskip("numba", reason="this path needs numba")


@given(
    n=st.integers(1, 40),
    k=st.integers(2, 6),
    seed=st.integers(0, 10_000),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    scale=st.sampled_from([0.0, 1.0, 30.0]),
    base=st.sampled_from(["cross_entropy", "logistic"]),
    alpha=st.floats(-3, 3),
    eps=st.sampled_from([0.0, 1e-5, 0.1]),
    reduction=st.sampled_from(["mean", "sum"]),
    given_prior=st.booleans(),
    ignore_index=st.sampled_from([-100, 99]),
)
def test_both_paths_agree(n, k, seed, dtype, scale, base, alpha, eps, reduction, given_prior, ignore_index):
    """Loss, gradient and counted labels over three steps, for every option that the numba path handles."""
    options = {"base": base, "alpha": alpha, "eps": eps, "reduction": reduction, "ignore_index": ignore_index}
    if given_prior:
        options["noisy_prior"] = np.random.default_rng(seed).dirichlet(np.ones(k))
    z, _ = example(n, k, seed, dtype, scale)
    ours, reference = started(Fast, z, **options), started(InTorch, z, **options)
    close = {"rtol": 1e-4, "atol": 1e-4 * n} if dtype == torch.float32 else {"rtol": 1e-9, "atol": 1e-9 * n}
    for step in range(3):
        z, y = example(n, k, seed + step, dtype, scale)
        for actual, expected in zip(
            value_and_gradient(ours, z, y), value_and_gradient(reference, z, y), strict=True
        ):
            assert actual.dtype == dtype
            torch.testing.assert_close(actual, expected, **close)
    assert torch.equal(ours.label_counts, reference.label_counts)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("eps", [0.0, 1e-5])
def test_many_classes_lose_no_digits(dtype, eps):
    """Two rows of 8000 classes agree with float64 to the precision of the dtype."""
    z, y = example(2, 8000)
    prior = torch.softmax(
        torch.randn(8000, generator=torch.Generator().manual_seed(0), dtype=torch.float64), 0
    )
    exact = value_and_gradient(InTorch(alpha=0.7, eps=eps, noisy_prior=prior), z, y)
    ours = value_and_gradient(Fast(alpha=0.7, eps=eps, noisy_prior=prior), z.to(dtype), y)
    for actual, expected in zip(ours, exact, strict=True):
        torch.testing.assert_close(actual.double(), expected, rtol=20 * torch.finfo(dtype).eps, atol=1e-7)


def test_a_module_uses_numba_from_its_first_batch():
    """With its own counts, with none yet, and with a given prior; not with counts of another dtype."""
    z, y = example()
    counted = Fast()
    counted(z, y)
    counted(z, y)
    assert (counted.label_counts == 2 * torch.bincount(y, minlength=3)).all()
    Fast(noisy_prior=PRIOR)(z, y)
    halves = PeerLoss()
    halves.label_counts = torch.zeros(3, dtype=torch.float16)  # as in a checkpoint in half precision
    assert declines(halves, z, y)


def test_a_subclass_may_prepare_batches():
    """``batch`` is public: a subclass that overrides it uses torch operations for every batch."""

    class Doubled(PeerLoss):
        def batch(self, logits, target):
            return super().batch(2.0 * logits, target)

    z, y = example()
    loss, plain = Doubled(noisy_prior=PRIOR), PeerLoss(noisy_prior=PRIOR)
    for _ in range(2):
        torch.testing.assert_close(loss(z, y), plain(2.0 * z, y))


def test_a_reduction_set_later_is_checked():
    """The numba path handles two reductions; torch operations refuse unknown ones."""
    loss = PeerLoss(noisy_prior=PRIOR)
    loss.reduction = "foo"
    with pytest.raises(InvalidInputError, match="`reduction` must be one of"):
        loss(*example())


def with_entry(value):
    z, _ = example()
    z[2, 1] = value
    return z


Z, Y = example()
UNUSUAL = {
    "an ignored label": (Z, torch.tensor([0, 1, -100, 2, 0, 1]), {}),
    "an ignored class": (Z, Y, {"ignore_index": int(Y[0])}),
    "a wrong label": (Z, torch.tensor([0, 1, 3, 2, 0, 1]), {}),
    "a negative label": (Z, torch.tensor([0, 1, -1, 2, 0, 1]), {}),
    "NaN": (with_entry(torch.nan), Y, {}),
    "infinity": (with_entry(torch.inf), Y, {}),
    "an empty batch": (Z[:0], Y[:0], {}),
    "too few labels": (Z, Y[:4], {}),
    "other classes than counted": (example(k=4)[0], Y, {"counts": 3}),
    "other classes than the prior has": (example(k=4)[0], Y, {"noisy_prior": PRIOR}),
    "one column": (Z[:, :1].contiguous(), Y % 2, {"counts": 2}),
    "a vector": (Z[:, 0].contiguous(), Y % 2, {"counts": 2}),
    "three dimensions": (Z[None], Y, {}),
    "strided logits": (Z.repeat(1, 2)[:, ::2], Y, {}),
    "strided labels": (Z, Y.repeat_interleave(2)[::2], {}),
    "small integers": (Z, Y.to(torch.uint8), {}),
    "half precision": (Z.half(), Y, {}),
    "float labels": (Z, Y.double(), {}),
    "a list": (Z, Y.tolist(), {}),
    "labels on another device": (Z, Y.to("meta"), {}),
    "a subclass of Tensor": (torch.nn.Parameter(Z), Y, {}),
    "weights": (Z, Y, {"weight": PRIOR}),
    "a score matrix": (Z, Y, {"score_matrix": torch.eye(3)}),
    "no reduction": (Z, Y, {"reduction": "none"}),
    "another base": (Z, Y, {"base": "sigmoid"}),
    "sampled peers": (Z, Y, {"peers": "sampled"}),
    "a large batch": (*example(numba_cpu.MAX_NUMBA_LOGITS, 3), {}),
}


def outcome(loss, z, y):
    """Return the result of a call or its error message."""
    torch.manual_seed(0)  # sampled peers
    try:
        return loss(z, y)
    except InvalidInputError as error:
        return str(error)


@pytest.mark.parametrize("what", UNUSUAL)
def test_unusual_batches_are_left_to_torch(what):
    """The numba path declines without counting; the module then returns or raises as without it."""
    z, y, options = UNUSUAL[what]
    counts = torch.arange(1, 1 + options.get("counts", 3))
    options = {name: value for name, value in options.items() if name != "counts"}
    ours, reference = PeerLoss(**options), InTorch(**options)
    ours.label_counts, reference.label_counts = counts.clone(), counts.clone()
    assert declines(ours, z, y)
    assert torch.equal(ours.label_counts, counts)
    actual, expected = outcome(ours, z, y), outcome(reference, z, y)
    assert type(actual) is type(expected)
    assert actual == expected if isinstance(actual, str) else torch.equal(actual, expected)
    assert torch.equal(ours.label_counts, reference.label_counts)


def test_evaluation_does_not_count():
    """In evaluation mode the counts are used and not changed."""
    z, y = example()
    ours, reference = (started(kind, z).eval() for kind in (PeerLoss, InTorch))
    torch.testing.assert_close(ours(z, y), reference(z, y))
    assert ours.label_counts.tolist() == [1, 2, 3]


@pytest.mark.parametrize("eps", [0.0, 1e-5])
def test_a_masked_class(eps):
    """−inf logits are legal with the clip; without it the loss is not finite and the module raises."""
    z, y = example()
    z[:, 2] = -torch.inf
    y %= 2
    outcomes = []
    for kind in (Fast, InTorch):
        loss = started(kind, z, eps=eps)
        if eps == 0:
            with pytest.raises(DivergenceError, match="not finite") as caught:
                loss(z, y)
            outcomes.append(str(caught.value))
            assert loss.label_counts.sum() == 12
        else:
            outcomes.append(torch.cat([part.flatten() for part in value_and_gradient(loss, z, y)]))
    ours, reference = outcomes
    assert ours == reference if eps == 0 else torch.allclose(ours, reference)


def test_diverging_logits_warn_at_the_line_of_the_caller():
    """There is one warning until the logits are small again, and it points here."""
    z, y = example()
    loss = started(Fast, z)
    with pytest.warns(DivergenceWarning, match=r"logits have reached 2e\+04") as caught:
        loss(torch.full_like(z, -2e4), y)
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loss(torch.full_like(z, 2e4), y)
        loss(z, y)
    with pytest.warns(DivergenceWarning):
        loss(torch.full_like(z, 2e4), y)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_prior_of_another_precision(dtype):
    """`loss.to(dtype)` casts a given prior; both paths read it in the precision of the logits."""
    z, y = example()
    losses = [kind(noisy_prior=PRIOR).to(dtype) for kind in (Fast, InTorch)]
    torch.testing.assert_close(*(loss(z, y) for loss in losses))


def test_a_copy_has_its_own_counts():
    """Labels counted by a copy do not change the original."""
    z, y = example()
    loss = started(Fast, z)
    other = copy.deepcopy(loss)
    other(z, y)
    assert loss.label_counts.tolist() == [1, 2, 3]
    assert other.label_counts.sum() == 12


@pytest.fixture
def fresh_kernels():
    """Compile again, in this test and afterwards."""
    numba_cpu._compiled_loops.cache_clear()
    yield
    numba_cpu._compiled_loops.cache_clear()


@pytest.mark.usefixtures("fresh_kernels")
@pytest.mark.parametrize("reason", ["not installed", "switched off"])
def test_without_numba_torch_computes_the_loss(monkeypatch, reason):
    """Neither a missing numba nor NUMBA_DISABLE_JIT changes a result."""
    z, y = example()
    expected = value_and_gradient(started(Fast, z), z, y)
    numba_cpu._compiled_loops.cache_clear()
    if reason == "not installed":
        monkeypatch.setitem(sys.modules, "numba", None)
    else:
        monkeypatch.setattr("numba.config.DISABLE_JIT", True)
    loss = started(PeerLoss, z)
    assert declines(loss, z, y)
    for actual, other in zip(value_and_gradient(loss, z, y), expected, strict=True):
        torch.testing.assert_close(actual, other)


@pytest.mark.usefixtures("fresh_kernels")
def test_a_cache_is_not_required(monkeypatch):
    """If numba finds no folder to write to, each process compiles again."""

    def nowhere(*_, **__):
        raise RuntimeError("cannot cache function: no locator available")

    monkeypatch.setattr("numba.core.dispatcher.FunctionCache", nowhere)
    z, y = example()
    torch.testing.assert_close(started(Fast, z)(z, y), started(InTorch, z)(z, y))


@pytest.mark.usefixtures("fresh_kernels")
@pytest.mark.parametrize("damage", [EOFError, OSError, pickle.UnpicklingError])
def test_a_damaged_or_full_cache_is_ignored(monkeypatch, damage):
    """Errors of numba's cache do not stop training."""

    def broken(*_):
        raise damage

    monkeypatch.setattr("numba.core.caching.FunctionCache.load_overload", broken)
    z, y = example()
    torch.testing.assert_close(started(Fast, z)(z, y), started(InTorch, z)(z, y))


def test_numba_is_not_imported_before_it_is_used():
    """Importing the package and creating a loss stay fast."""
    code = "import sys; from peerloss import PeerLoss; PeerLoss(); sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
