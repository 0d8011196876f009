"""linear_peer_loss gives the numbers of peer_loss on stored logits, without storing them."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd import forward_ad, gradcheck, gradgradcheck
from torch.nn.functional import linear
from torch.utils._python_dispatch import TorchDispatchMode

from peerloss.exceptions import InvalidInputError
from peerloss.functional import linear_peer_loss, peer_loss


def example(n=7, d=4, k=5, seed=0, dtype=torch.float64, device="cpu"):
    """Return inputs, parameters and labels, one of them ignored if there are several."""
    generator = torch.Generator().manual_seed(seed)
    layer = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in ((n, d), (k, d), (k,))]
    y = torch.randint(k, (n,), generator=generator)
    if n > 1:
        y[n // 2] = -100
    return *(part.to(device, dtype).requires_grad_() for part in layer), y.to(device)


def rising_prior(k):
    """Return a prior that is not counted: a counted one, at α = 1, makes the gradient of the bias near 0."""
    return torch.softmax(torch.arange(k, dtype=torch.float64) / k, 0)


def stored(hidden, weight, y, *, bias=None, chunk_rows=None, **options):  # noqa: ARG001 (one signature for both)
    """Return the loss from stored logits."""
    return peer_loss(linear(hidden, weight, bias), y, **options)


def results(function, layer, y, upstream=3.0, **options):
    """Return the loss and the gradients of the layer."""
    hidden, weight, bias = layer
    loss = function(hidden, weight, y, bias=bias, **options)
    grad = torch.full_like(loss, upstream) * torch.linspace(0.5, 1.5, loss.numel()).view(loss.shape).to(loss)
    parts = [part for part in layer if part is not None]
    return [loss.detach(), *torch.autograd.grad(loss, parts, grad)]


def assert_same(layer, y, *, rtol=1e-10, atol=1e-12, **options):
    ours, theirs = (results(function, layer, y, **options) for function in (linear_peer_loss, stored))
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=rtol, atol=atol)


@given(
    n=st.integers(1, 12),
    d=st.integers(1, 5),
    k=st.integers(2, 70),
    chunk=st.integers(1, 13),
    alpha=st.sampled_from([0.0, 0.7, 1.0, -2.0]),
    eps=st.sampled_from([0.0, 1e-5, 0.1]),
    reduction=st.sampled_from(["mean", "sum", "none"]),
    has_bias=st.booleans(),
    has_prior=st.booleans(),
    seed=st.integers(0, 100),
)
def test_losses_and_gradients_agree_with_stored_logits(
    n, d, k, chunk, alpha, eps, reduction, has_bias, has_prior, seed
):
    """In float64, for every size of chunk, α, clip, prior and reduction, with an ignored target."""
    hidden, weight, bias, y = example(n, d, k, seed)
    prior = rising_prior(k) if has_prior else None
    options = {"alpha": alpha, "eps": eps, "reduction": reduction, "noisy_prior": prior}
    assert_same((hidden, weight, bias if has_bias else None), y, chunk_rows=chunk, **options)


@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize("eps", [0.0, 1e-3])
def test_derivatives_agree_with_finite_differences(reduction, eps):
    """First and second derivatives with respect to the inputs and parameters."""
    hidden, weight, bias, y = example(4, 2, 3)

    def loss(*layer):
        options = {"alpha": 0.6, "eps": eps, "reduction": reduction, "chunk_rows": 3}
        return linear_peer_loss(*layer[:2], y, bias=layer[2], **options)

    assert gradcheck(loss, (hidden, weight, bias))
    assert gradgradcheck(loss, (hidden, weight, bias))


def test_tokens_have_one_row_per_position():
    """Inputs (N, T, d) and targets (N, T), also strided, and rows of the shape of the targets."""
    hidden, weight, bias, y = example(12)
    tokens, labels = hidden.detach().view(4, 3, 4).transpose(0, 1), y.view(4, 3).T
    assert not tokens.is_contiguous()
    strided = weight.detach().T.contiguous().T.requires_grad_()
    rows = linear_peer_loss(tokens, strided, labels, bias=bias, reduction="none", chunk_rows=5)
    expected = peer_loss(linear(tokens, strided, bias).movedim(-1, 1), labels, reduction="none")
    assert rows.shape == labels.shape
    torch.testing.assert_close(rows, expected)
    layer = tokens.requires_grad_(), strided, bias
    theirs = torch.autograd.grad(peer_loss(linear(*layer).movedim(-1, 1), labels), layer)
    ours = torch.autograd.grad(linear_peer_loss(*layer[:2], labels, bias=bias, chunk_rows=5), layer)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("n", [0, 3])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_a_batch_without_labels(n, reduction):
    """Empty, or all targets ignored: loss and gradients are 0."""
    hidden, weight, bias, _ = example(n)
    y = torch.full((n,), -100)
    for value in results(linear_peer_loss, (hidden, weight, bias), y, reduction=reduction):
        assert (value == 0.0).all()


def test_only_what_needs_a_gradient_gets_one():
    """Parameters that are frozen have none, and without gradients the loss is the same."""
    hidden, weight, bias, y = example()
    loss = linear_peer_loss(hidden, weight.detach(), y, bias=bias, chunk_rows=3)
    loss.backward()
    assert (hidden.grad is not None, weight.grad is not None, bias.grad is not None) == (True, False, True)
    with torch.no_grad():
        assert linear_peer_loss(hidden, weight, y, bias=bias, chunk_rows=3) == loss


def test_a_graph_can_be_used_twice():
    """With ``retain_graph`` a second backward pass gives the same gradient, even if the first was changed."""
    hidden, weight, bias, y = example()
    for reduction in ("mean", "none"):
        loss = linear_peer_loss(hidden, weight, y, bias=bias, chunk_rows=3, reduction=reduction).sum()
        (first,) = torch.autograd.grad(loss, weight, retain_graph=True)
        kept = first.clone()
        first.zero_()
        torch.testing.assert_close(torch.autograd.grad(loss, weight)[0], kept)


@pytest.mark.parametrize("eps", [0.0, 1e-5])
def test_a_masked_class(eps):
    """A bias of −inf masks a class; the mask changes no other gradient."""
    hidden, weight, bias, y = example()
    y = y.masked_fill(y == 4, 0)
    bias = bias.detach().clone()
    bias[4] = -torch.inf
    prior = torch.tensor([0.25] * 4 + [0.0])
    assert_same((hidden, weight, bias.requires_grad_()), y, eps=eps, noisy_prior=prior, chunk_rows=3)


class LargestStorage(TorchDispatchMode):
    """Record the largest storage, in bytes, of a tensor that an operation returns."""

    largest = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else [result]:
            if isinstance(tensor, torch.Tensor):
                self.largest = max(self.largest, tensor.untyped_storage().nbytes())
        return result


@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_no_tensor_has_the_size_of_the_logits(reduction):
    """In the forward and backward pass, nothing is larger than the logits of one chunk."""
    layer, n, k, chunk = example(64, 2, 50), 64, 50, 4
    sizes = []
    for function in (linear_peer_loss, stored):
        with LargestStorage() as record:
            results(function, layer[:3], layer[3], reduction=reduction, chunk_rows=chunk)
        sizes.append(record.largest)
    assert sizes[0] <= 8 * max(chunk * k, n * 2)
    assert sizes[1] >= 8 * n * k


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(dtype):
    """Inputs in half precision or autocast: a float32 loss, gradients close to those of float64."""
    hidden, weight, bias, y = example(300, 8, 40)
    options = {"upstream": 1.0, "noisy_prior": rising_prior(40)}
    exact = results(stored, (hidden, weight, bias), y, **options)
    halves = [part.detach().to(dtype).requires_grad_() for part in (hidden, weight, bias)]
    singles = [part.detach().float().requires_grad_() for part in (hidden, weight, bias)]
    for layer, enabled in ((halves, False), (singles, True)):
        with torch.autocast("cpu", dtype=dtype, enabled=enabled):
            found = results(linear_peer_loss, layer, y, chunk_rows=64, **options)
        assert [value.dtype for value in found] == [torch.float32] + [layer[0].dtype] * 3
        for one, other in zip(found, exact, strict=True):
            error = (one.double() - other).norm() / other.norm()
            assert error < (0.02 if dtype == torch.bfloat16 else 0.003)


@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize("forward", [False, True])
def test_the_backward_pass_may_run_inside_autocast(reduction, forward):
    """Gradients have the precision of the forward pass, wherever ``backward`` is called."""
    *layer, y = example(9, 4, 6, dtype=torch.float32)
    hidden, weight, bias = layer
    found = []
    for backward in (False, True):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=forward):
            loss = linear_peer_loss(hidden, weight, y, bias=bias, reduction=reduction, chunk_rows=4)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=backward):
            found.append(torch.autograd.grad(loss.sum(), layer))
    for outside, inside in zip(*found, strict=True):
        assert torch.equal(inside, outside)


def test_chunks_lose_no_precision_in_bfloat16():
    """Sums over many chunks are kept in float32: as precise as one chunk, not worse."""
    hidden, weight, bias, y = example(512, 8, 40)
    halves = [part.detach().bfloat16().requires_grad_() for part in (hidden, weight, bias)]
    exact = results(stored, [part.detach().double().requires_grad_() for part in halves], y)[2]
    errors = [
        (results(linear_peer_loss, halves, y, chunk_rows=chunk)[2].double() - exact).norm() / exact.norm()
        for chunk in (2, 512)
    ]
    assert errors[0] < 1.1 * errors[1]


def test_transforms_and_forward_mode_store_the_logits():
    """torch.func and forward mode give the usual derivatives."""
    hidden, weight, bias, y = (t.detach() for t in example())
    options = {"bias": bias, "reduction": "mean"}

    def loss(w):
        return linear_peer_loss(hidden, w, y, **options)

    learned = weight.clone().requires_grad_()
    (expected,) = torch.autograd.grad(loss(learned), learned)
    torch.testing.assert_close(torch.func.grad(loss)(weight), expected)
    with forward_ad.dual_level():
        slope = forward_ad.unpack_dual(loss(forward_ad.make_dual(weight, torch.ones_like(weight)))).tangent
    torch.testing.assert_close(slope, expected.sum())


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")  # the compiler reads it
def test_a_compiled_caller_gets_the_same_numbers():
    """torch.compile leaves the function out of its graph."""
    torch.compiler.reset()
    hidden, weight, bias, y = example()
    compiled = torch.compile(lambda h: linear_peer_loss(2 * h, weight, y, bias=bias) + 1, backend="aot_eager")
    expected = linear_peer_loss(2 * hidden, weight, y, bias=bias) + 1
    value = compiled(hidden)
    torch.testing.assert_close(value, expected)
    ours, theirs = (torch.autograd.grad(loss, hidden)[0] for loss in (value, expected))
    torch.testing.assert_close(ours, theirs)


WRONG = {
    "`hidden` must be a floating-point tensor; got torch.int64": {"hidden": torch.ones(7, 4).long()},
    "`weight` must be a floating-point tensor; got list": {"weight": [[1.0]]},
    r"`weight` must have shape \(K, d\), .* got \(1, 4\)": {"weight": torch.ones(1, 4)},
    r"`hidden` must have shape \(n, 4\) or \(N, T, 4\) .* got \(7, 3\)": {"hidden": torch.ones(7, 3)},
    r"`bias` must have shape \(5,\), one per class; got \(4,\)": {"bias": torch.ones(4)},
    "`target` must be an integer tensor .* For soft targets use peer_loss": {"target": torch.ones(7, 5)},
    r"`target` must have shape \(7,\) .* got \(6,\)": {"target": torch.zeros(6).long()},
    r"`target` must hold labels in 0\.\.4; found 5": {"target": torch.full((7,), 5)},
    r"`weight` must be on the device of `hidden` \(cpu\); got meta": {
        "weight": torch.ones(5, 4, device="meta")
    },
    "`weight` must have the dtype of `hidden`": {"weight": torch.ones(5, 4, dtype=torch.float64)},
    r"`hidden` @ `weight`.T \(the logits\) must not hold NaN or \+inf; row 6": {
        "hidden": torch.ones(7, 4).index_fill(0, torch.tensor([6]), torch.nan)
    },
    "`alpha` must not require a gradient": {"alpha": torch.tensor(1.0, requires_grad=True)},
    "`noisy_prior` must not require a gradient": {"noisy_prior": torch.full((5,), 0.2, requires_grad=True)},
    "`noisy_prior` must have one entry for each of the 5 classes": {"noisy_prior": [0.5, 0.5]},
    "`chunk_rows` must be an integer of at least 1; got 0": {"chunk_rows": 0},
    "`reduction` must be": {"reduction": "average"},
}


@pytest.mark.parametrize("message", WRONG)
def test_invalid_arguments_are_explained(message):
    """Errors name the argument, what was expected, what was received; rows count over all chunks."""
    given = {"hidden": torch.ones(7, 4), "weight": torch.ones(5, 4), "target": torch.zeros(7).long()}
    given |= {"chunk_rows": 2} | WRONG[message]
    with pytest.raises(InvalidInputError, match=message):
        linear_peer_loss(given.pop("hidden"), given.pop("weight"), given.pop("target"), **given)


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("eps", [0.0, 1e-5])
def test_cuda_agrees_with_float64_on_the_cpu(dtype, reduction, eps):
    """With the Triton kernel (float32, bfloat16) and without, in one chunk and in several."""
    *parts, y = example(600, 64, 5000)
    halves = [(0.3 * part.detach()).to(dtype) for part in parts]  # small logits: half precision rounds them
    rounded = [part.double().requires_grad_() for part in halves]
    layer = [part.cuda().requires_grad_() for part in halves]
    for alpha in (1.0, 0.0):
        options = {"reduction": reduction, "eps": eps, "alpha": alpha, "noisy_prior": rising_prior(5000)}
        exact = results(stored, rounded, y, **options)
        for chunk in (None, 600, 128):
            found = results(linear_peer_loss, layer, y.cuda(), chunk_rows=chunk, **options)
            for one, other in zip(found, exact, strict=True):
                error = (one.cpu().double() - other).norm() / other.norm()
                assert error < {torch.float32: 1e-4, torch.float64: 1e-9}.get(dtype, 0.01)


@pytest.mark.cuda
def test_nothing_synchronises_on_cuda():
    """Neither the forward nor the backward pass waits for the device."""
    hidden, weight, bias, y = example(600, 64, 5000, dtype=torch.bfloat16, device="cuda")
    layer = hidden, weight, bias
    results(linear_peer_loss, layer, y)  # the first call compiles
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        loss = linear_peer_loss(hidden, weight, y, bias=bias)
        torch.autograd.grad(loss, layer)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.cuda
def test_a_label_that_does_not_exist_on_cuda():
    """Its row has the loss NaN, and other rows are unchanged."""
    hidden, weight, bias, y = example(8, 4, 50, dtype=torch.float32, device="cuda")
    y[0] = 50
    rows = linear_peer_loss(hidden, weight, y, bias=bias, noisy_prior=[0.02] * 50, reduction="none")
    assert torch.isnan(rows).tolist() == [True] + [False] * 7
