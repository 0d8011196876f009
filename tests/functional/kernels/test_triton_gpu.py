"""The Triton kernels give the results of torch operations. Without a GPU they run in Triton's interpreter."""

import os

import pytest
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # read when the kernels are defined
pytest.importorskip("triton", reason="torch for CUDA brings Triton, torch for the CPU does not")

from peerloss import PeerLoss
from peerloss.functional import linear_peer_loss, peer_loss, plain_loss
from peerloss.functional.kernels import triton_gpu
from peerloss.functional.kernels.reference import Formula

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def example(n, k, dtype=torch.float32):
    generator = torch.Generator().manual_seed(n + k)
    z = (2.0 * torch.randn(n, k, generator=generator)).to(DEVICE, dtype).requires_grad_()
    y = torch.randint(k, (n,), generator=generator)
    y[n // 2] = -100
    return z, y.to(DEVICE)


def torch_loss(z, y, **options):
    """Return the loss in torch operations: with class weights there is no fast path."""
    return peer_loss(z, y, weight=torch.ones(z.shape[1], device=z.device), **options)


def triton_loss(z, y, *, counts, prior=None, alpha=0.8, eps=1e-5, reduction="mean"):
    formula = Formula(alpha, eps, ignore_index=-100, mean=reduction == "mean")
    return triton_gpu.fast_peer_loss(z, y, formula, prior, counts)[0]


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("eps", [0.0, 1e-5, 0.1])
@pytest.mark.parametrize(
    ("k", "per_program", "small"), [(2, 4096, 16384), (10, 64, 16384), (10, 4096, 0), (100, 32, 0)]
)
def test_loss_and_gradient_agree_with_torch_operations(monkeypatch, k, per_program, small, eps, reduction):
    """In one kernel or row by row, in one block or several, clipped or not, prior counted or given."""
    monkeypatch.setattr(triton_gpu, "LOGITS_PER_PROGRAM", per_program)
    monkeypatch.setattr(triton_gpu, "COLUMNS_PER_PROGRAM", per_program)
    monkeypatch.setattr(triton_gpu, "MAX_ONE_KERNEL_LOGITS", small)
    z, y = example(9, k)
    given = torch.softmax(torch.arange(k, device=DEVICE) / k, 0)
    for prior in (None, given):
        counts = torch.ones(k, dtype=torch.int64, device=DEVICE)
        loss = triton_loss(z, y, counts=counts, prior=prior, eps=eps, reduction=reduction)
        counted = torch.bincount(y[y >= 0], minlength=k) + 1
        assert (counts == (counted if prior is None else 1)).all()
        used = prior if prior is not None else counted / counted.sum()
        expected = torch_loss(z, y, alpha=0.8, eps=eps, noisy_prior=used, reduction=reduction)
        torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-5)
        ours, theirs = (torch.autograd.grad(3.0 * value, z)[0] for value in (loss, expected))
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)


@pytest.fixture(params=[8192, 0], ids=["one kernel", "row by row"])
def path(request, monkeypatch):
    """Choose the kernel for small batches or the kernel for single rows."""
    monkeypatch.setattr(triton_gpu, "MAX_ONE_KERNEL_LOGITS", request.param)


@pytest.mark.usefixtures("path")
def test_second_derivatives():
    """They agree with torch operations and use the prior of the forward pass."""
    z, y = example(6, 4)
    counts = torch.ones(4, dtype=torch.int64, device=DEVICE)
    loss = triton_loss(z, y, counts=counts)
    prior = counts / counts.sum()
    counts.add_(5)
    expected = torch_loss(z, y, alpha=0.8, noisy_prior=prior)
    seconds = []
    for value in (loss, expected):
        (first,) = torch.autograd.grad(value, z, create_graph=True)
        seconds.append(torch.autograd.grad(first.square().sum(), z)[0])
    torch.testing.assert_close(*seconds, rtol=1e-4, atol=1e-7)


@pytest.mark.usefixtures("path")
@pytest.mark.filterwarnings(
    "ignore:invalid value:RuntimeWarning"
)  # the interpreter also computes masked values
def test_a_masked_class_and_a_label_that_does_not_exist():
    """−inf in a column without weight changes nothing; a label outside 0..K-1 makes its own row NaN."""
    z, y = example(6, 4)
    prior = torch.tensor([0.5, 0.5, 0.0, 0.0], device=DEVICE)
    masked = z.detach().clone()
    masked[:, 3] = -float("inf")
    y = y.clamp(max=1)
    counts = torch.zeros(4, dtype=torch.int64, device=DEVICE)
    loss = triton_loss(masked.requires_grad_(), y, counts=counts, prior=prior, eps=0.0)
    expected = torch_loss(masked[:, :3], y, alpha=0.8, eps=0.0, noisy_prior=prior[:3])
    torch.testing.assert_close(loss, expected)
    assert torch.isfinite(torch.autograd.grad(loss, masked)[0]).all()
    for wrong in (4, -1, 2**40):
        y[0] = wrong
        counts.zero_()
        loss = triton_loss(z, y, counts=counts)
        assert torch.isnan(loss)
        assert torch.isfinite(torch.autograd.grad(loss, z)[0]).all(dim=1).tolist() == [False] + [True] * 5
        assert counts.sum() == (y != -100).sum() - 1


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("offset", [-100.0, 3e4])
@pytest.mark.parametrize("eps", [0.0, 1e-5])
def test_only_differences_of_logits_matter(offset, eps):
    """Adding a constant to all logits changes neither loss nor gradient."""
    z, y = example(12, 10)
    z = (32 * z.detach()).round().div(32).requires_grad_()  # exact in float32, also after adding the offset
    prior = torch.full((10,), 0.1, device=DEVICE)
    results = []
    for logits in (z, z + offset):
        loss = triton_loss(logits, y, counts=torch.zeros_like(y[:0]), prior=prior, eps=eps)
        results += [loss, torch.autograd.grad(loss, logits)[0]]
    torch.testing.assert_close(results[2], results[0], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(results[3], results[1], rtol=1e-5, atol=1e-7)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the interpreter also computes masked values
@pytest.mark.parametrize("eps", [0.0, 1e-5])
@pytest.mark.parametrize("first", [-200.0, -float("inf")], ids=["small", "masked"])
def test_the_largest_logit_may_be_in_any_block(monkeypatch, first, eps):
    """Sums relative to the first block of columns overflow or are empty: they are computed again."""
    monkeypatch.setattr(triton_gpu, "MAX_ONE_KERNEL_LOGITS", 0)
    monkeypatch.setattr(triton_gpu, "COLUMNS_PER_PROGRAM", 4)
    z, y = example(6, 12)
    z = z.detach() - 150.0 * (first < -1e3)
    z[:, :4] = first
    z.requires_grad_()
    y = y.clamp(min=4).masked_fill(y == -100, -100)
    prior = torch.tensor([0.0] * 4 + [0.125] * 8, device=DEVICE)
    loss = triton_loss(z, y, counts=torch.zeros_like(y[:0]), prior=prior, eps=eps)
    expected = torch_loss(z, y, alpha=0.8, eps=eps, noisy_prior=prior)
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-5)
    ours, theirs = (torch.autograd.grad(value, z)[0] for value in (loss, expected))
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)


def test_without_a_peer_term(monkeypatch):
    """With α = 0 the coefficients are not read: the plain loss, clipped or not, and its gradient."""
    monkeypatch.setattr(triton_gpu, "MAX_ONE_KERNEL_LOGITS", 0)
    z, y = example(6, 12)
    for eps in (0.0, 0.1):
        loss = triton_loss(z, y, counts=torch.zeros(12, dtype=torch.int64, device=DEVICE), alpha=0.0, eps=eps)
        expected = plain_loss(z, y, eps=eps)
        torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-5)
        ours, theirs = (torch.autograd.grad(value, z)[0] for value in (loss, expected))
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)


@pytest.mark.usefixtures("path")
def test_a_batch_of_ignored_labels():
    """Loss and derivatives are 0 and the counts stay unchanged, with and without earlier labels."""
    z, y = example(6, 4)
    for counted in (0, 3):
        counts = torch.full((4,), counted, device=DEVICE)
        loss = triton_loss(z, torch.full_like(y, -100), counts=counts)
        assert loss == 0.0
        for twice in (False, True):
            assert (torch.autograd.grad(loss, z, create_graph=twice, retain_graph=True)[0] == 0.0).all()
        assert (counts == counted).all()


@pytest.mark.usefixtures("path")
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # as above
def test_an_ignored_row_may_have_any_logits():
    """Its logits, even if not finite, change neither the loss nor any derivative."""
    z, y = example(6, 4)
    z = z.detach().clone()
    z[3] = -float("inf")  # the row that `example` ignores
    counts = torch.ones(4, dtype=torch.int64, device=DEVICE)
    loss = triton_loss(z.requires_grad_(), y, counts=counts)
    for twice in (False, True):
        (gradient,) = torch.autograd.grad(loss, z, create_graph=twice, retain_graph=True)
        assert torch.isfinite(gradient).all()
        assert (gradient[3] == 0.0).all()


@pytest.mark.usefixtures("path")
def test_the_loss_may_be_changed_in_place():
    """As accumulating loops do: ``loss /= 2``, ``loss += penalty``."""
    z, y = example(6, 4)
    (once,) = torch.autograd.grad(
        triton_loss(z, y, counts=torch.zeros(4, dtype=torch.int64, device=DEVICE)), z
    )
    loss = triton_loss(z, y, counts=torch.zeros(4, dtype=torch.int64, device=DEVICE))
    loss /= 2
    loss += 1.0
    torch.testing.assert_close(torch.autograd.grad(loss, z)[0], once / 2)


def test_unusual_priors_are_left_to_torch():
    """Strided, learned, on another device or of another length: ``None``, and counts stay unchanged."""
    z, y = example(6, 4)
    counts = torch.zeros(4, dtype=torch.int64, device=DEVICE)
    strided = torch.rand(4, 2, device=DEVICE)[:, 1]
    learned = torch.full((4,), 0.25, device=DEVICE, requires_grad=True)
    for prior in (strided, learned, torch.full((3,), 1 / 3, device=DEVICE), torch.rand(4, device="meta")):
        assert triton_gpu.fast_peer_loss(z, y, Formula(1.0, 0.0, -100, mean=True), prior, counts) is None
    assert counts.sum() == 0


@pytest.mark.usefixtures("path")
def test_a_given_prior_needs_no_counts():
    """The function passes none; the loss is that of the module."""
    z, y = example(6, 4)
    prior = torch.full((4,), 0.25, device=DEVICE)
    counts = torch.zeros(4, dtype=torch.int64, device=DEVICE)
    assert torch.equal(
        triton_loss(z, y, counts=None, prior=prior), triton_loss(z, y, counts=counts, prior=prior)
    )


@pytest.mark.parametrize("alpha", [0.8, 0.0])
@pytest.mark.parametrize("eps", [0.0, 1e-5])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_logits_that_are_not_stored(monkeypatch, alpha, eps, reduction):
    """The kernel that replaces logits by their gradient gives linear_peer_loss the numbers of torch."""
    monkeypatch.setattr(triton_gpu, "has_kernels", lambda *_: True)
    monkeypatch.setattr(triton_gpu, "COLUMNS_IN_PLACE", 8)
    hidden, y = example(9, 4)
    y[0] = 11
    weight = example(12, 4)[0]
    upstream = torch.linspace(0.0, 2.0, 9, device=DEVICE)
    upstream = upstream if reduction == "none" else upstream.mean()
    options = {"alpha": alpha, "eps": eps, "reduction": reduction}
    losses = (
        linear_peer_loss(hidden, weight, y, chunk_rows=4, **options),
        peer_loss(hidden @ weight.T, y, **options),
    )
    torch.testing.assert_close(*losses, rtol=1e-5, atol=1e-5)
    ours, theirs = (torch.autograd.grad(loss, (hidden, weight), upstream) for loss in losses)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.fixture
def no_kernels(monkeypatch):
    """Make importing the kernels fail, as without a C compiler."""

    def broken(name):
        raise RuntimeError(name)

    monkeypatch.setattr(triton_gpu, "import_module", broken)
    triton_gpu._kernels.cache_clear()
    yield
    triton_gpu._kernels.cache_clear()


@pytest.mark.usefixtures("no_kernels")
def test_kernels_that_cannot_run_are_not_used():
    """Nothing is raised, and torch operations compute the loss."""
    assert triton_gpu._kernels(torch.float32) is None
    z, y = example(6, 4)
    assert not triton_gpu.accepts(z, y)
    assert torch.isfinite(PeerLoss().to(DEVICE)(z, y))


@pytest.mark.cuda
def test_the_module_uses_the_kernels():
    """Loss, gradient and counted labels agree with the module on the CPU, over several batches."""
    here, there = PeerLoss(alpha=0.5), PeerLoss(alpha=0.5).cuda()
    z, y = example(64, 5)
    assert triton_gpu.accepts(z, y)
    for alpha in (0.5, 0.9):
        here.alpha = there.alpha = alpha
        results = []
        for module, device in ((here, "cpu"), (there, "cuda")):
            rows = z.detach().to(device).requires_grad_()
            loss = module(rows, y.to(device))
            results.append((loss.cpu(), torch.autograd.grad(loss, rows)[0].cpu(), module.label_counts.cpu()))
        for ours, theirs in zip(*results, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)


@pytest.mark.cuda
@pytest.mark.parametrize("given", [True, False])
def test_the_function_uses_the_kernels(given):
    """Loss and gradient are those of a new module, bit for bit."""
    z, y = example(64, 5)
    prior = torch.full((5,), 0.2, device=DEVICE) if given else None
    losses = peer_loss(z, y, noisy_prior=prior), PeerLoss(noisy_prior=prior).cuda()(z, y)
    assert torch.equal(*losses)
    assert torch.equal(*(torch.autograd.grad(loss, z)[0] for loss in losses))


@pytest.mark.cuda
def test_half_precision_logits():
    """bfloat16: the loss is float32, the gradient bfloat16. Small gradients would become 0 in float16."""
    z, y = example(64, 10, torch.bfloat16)
    counts = torch.ones(10, dtype=torch.int64, device=DEVICE)
    loss = triton_loss(z, y, counts=counts)
    (gradient,) = torch.autograd.grad(loss, z)
    expected = torch_loss(z, y, alpha=0.8, noisy_prior=counts / counts.sum())
    assert (loss.dtype, gradient.dtype) == (torch.float32, torch.bfloat16)
    torch.testing.assert_close(loss, expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(gradient, torch.autograd.grad(expected, z)[0])
    assert not triton_gpu.accepts(z.detach().half().requires_grad_(), y)


@pytest.mark.cuda
def test_batches_of_every_size():
    """One program, several passes in it, one program per row: the module agrees with the CPU."""
    for n, k in ((1, 2), (256, 10), (500, 10), (512, 16), (1000, 10), (3000, 10), (70, 200), (4096, 1000)):
        z, y = example(n, k)
        here, there = PeerLoss(), PeerLoss().cuda()
        rows = z.detach().cpu().requires_grad_()
        losses = there(z, y), here(rows, y.cpu())
        torch.testing.assert_close(losses[0].cpu(), losses[1], rtol=1e-4, atol=1e-5)
        ours, theirs = torch.autograd.grad(losses[0], z)[0].cpu(), torch.autograd.grad(losses[1], rows)[0]
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-7)
        assert torch.equal(there.label_counts.cpu(), here.label_counts)


@pytest.mark.cuda
def test_fifty_thousand_classes():
    """A row has more logits than a program holds at a time."""
    z, y = example(64, 50_000)
    counts = torch.ones(50_000, dtype=torch.int64, device=DEVICE)
    for eps in (0.0, 1e-5):
        loss = triton_loss(z, y, counts=counts, eps=eps)
        expected = torch_loss(z, y, alpha=0.8, eps=eps, noisy_prior=counts / counts.sum())
        torch.testing.assert_close(loss, expected, rtol=1e-4, atol=1e-5)
        ours, theirs = (torch.autograd.grad(value, z)[0] for value in (loss, expected))
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-8)
