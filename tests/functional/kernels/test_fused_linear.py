"""The path of linear_peer_loss through the Triton kernels, with kernels that are written in torch.

`test_triton_gpu` tests the kernels themselves, which need Triton. Everything around them is tested here:
which labels are counted, by what the kernel divides, and how many operations are started.
"""

from types import SimpleNamespace

import pytest
import torch
from torch.nn.functional import linear
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from peerloss import LinearPeerLoss, PeerLoss
from peerloss.exceptions import InvalidInputError
from peerloss.functional import linear_peer_loss, peer_loss
from peerloss.functional.kernels import fused_linear, triton_gpu
from peerloss.functional.kernels.reference import cross_entropy_rows

#: Operations that start nothing on a GPU.
WITHOUT_WORK = {"empty", "new_empty", "empty_like", "promote_types"}
WITHOUT_WORK |= {"view", "slice", "t", "permute", "detach", "expand", "unbind"}


def count(y, counts, labelled, n, k, ignore_index, is_counting, labels_per_program):  # noqa: ARG001 (the kernel's)
    """Do what the kernel of this name does."""
    known = y[y != ignore_index]
    labelled += len(known)
    if is_counting:
        counts += torch.bincount(known, minlength=k)


def rows_in_place(
    z, y, shared, labelled, factors, losses, k, eps, ignore_index, has_peers, has_clip, is_mean, has_factors,
    writes_gradient, **_,
):  # fmt: skip
    """Do what the kernel of this name does, by automatic differentiation."""
    valid = y != ignore_index
    scale = 1.0 / labelled.clamp(min=1) if is_mean else 1.0
    with torch.enable_grad():
        leaf = z.detach().clone().requires_grad_()
        coefficients = shared if has_peers else leaf.new_zeros(k)
        rows = cross_entropy_rows(leaf, y * valid, None, coefficients, eps if has_clip else 0.0)
        rows = scale * rows.masked_fill(~valid, 0.0)
        weights = factors if has_factors else torch.ones_like(rows)
        (gradient,) = torch.autograd.grad(rows, leaf, weights)
    losses.copy_(rows.detach())
    if writes_gradient:
        z.copy_(gradient)


@pytest.fixture
def started(monkeypatch):
    """Replace the kernels; return the names of those that were started."""
    names = []

    class Kernel:
        def __init__(self, function):
            self.function = function

        def __getitem__(self, grid):
            names.append(self.function.__name__)
            return self

        def __call__(self, *args, **kwargs):
            with _disable_current_modes():  # what a kernel does is not an operation of torch
                self.function(*args, **kwargs)

    kernels = SimpleNamespace(count=Kernel(count), rows_in_place=Kernel(rows_in_place))
    monkeypatch.setattr(triton_gpu, "has_kernels", lambda *_: True)
    monkeypatch.setattr(triton_gpu, "kernels_for", lambda *_: kernels)
    return names


def example(n=11, d=4, k=6, seed=0):
    """Return inputs, parameters and labels, some of them ignored."""
    generator = torch.Generator().manual_seed(seed)
    shapes = (n, d), (k, d), (k,)
    parts = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]
    y = torch.randint(k, (n,), generator=generator)
    y[::4] = -100
    return [part.requires_grad_() for part in parts], y


def derivatives(loss, layer):
    """Return the loss, its gradients, and those of a function of its gradients."""
    upstream = torch.linspace(0.0, 2.0, loss.numel(), dtype=torch.float64).view(loss.shape) + 0.5
    firsts = [
        torch.autograd.grad(loss, layer, upstream, retain_graph=True, create_graph=c) for c in (False, True)
    ]
    total = sum(first.square().sum() for first in firsts[1])
    return [loss.detach(), *firsts[0], *torch.autograd.grad(total, layer)]


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("alpha", [0.0, 0.7])
@pytest.mark.parametrize("prior", [None, torch.arange(1, 7) / 21])
@pytest.mark.parametrize("chunk", [4, 20])
def test_gradients_agree_with_stored_logits(started, reduction, alpha, prior, chunk):
    """Loss, first and second derivatives in float64, with ignored labels, for a counted and a given prior."""
    layer, y = example()
    options = {"alpha": alpha, "noisy_prior": prior, "eps": 1e-3, "reduction": reduction}
    loss = linear_peer_loss(*layer[:2], y, bias=layer[2], chunk_rows=chunk, **options)
    ours, theirs = derivatives(loss, layer), derivatives(peer_loss(linear(*layer), y, **options), layer)
    assert "rows_in_place" in started
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


@pytest.mark.usefixtures("started")
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("n", [0, 3])
def test_a_batch_without_labels(n, reduction):
    """Empty, or all targets ignored: loss and gradients are 0."""
    layer, _ = example(n)
    y = torch.full((n,), -100)
    loss = linear_peer_loss(*layer[:2], y, bias=layer[2], reduction=reduction)
    for value in (loss, *torch.autograd.grad(loss.sum(), layer)):
        assert (value == 0.0).all()


def test_the_module_counts_as_peer_loss(started):
    """In training mode the kernel counts; in evaluation mode nothing does. An α of 0 changes no counts."""
    ours, theirs = LinearPeerLoss(chunk_rows=4), PeerLoss()
    for seed, alpha in enumerate((1.0, 0.0, 0.3)):
        layer, y = example(seed=seed)
        for training in (True, False):
            for loss in (ours, theirs):
                loss.alpha = alpha
                loss.train(training)
            started.clear()
            torch.testing.assert_close(ours(layer[0], layer[1], y), theirs(linear(*layer[:2]), y))
            assert started.count("count") == training
            assert torch.equal(ours.label_counts, theirs.label_counts)
    with pytest.raises(InvalidInputError, match="number of classes"):
        ours.train()(layer[0], torch.ones(7, 4, dtype=torch.float64), y)


@pytest.mark.usefixtures("started")
def test_counts_that_the_kernel_cannot_change():
    """Counts of soft targets are not integers: torch operations add the labels."""
    loss, (layer, y) = LinearPeerLoss(), example()
    loss.label_counts = torch.full((6,), 0.5, dtype=torch.float64)
    loss(layer[0], layer[1], y)
    assert torch.equal(loss.label_counts, 0.5 + torch.bincount(y[y >= 0], minlength=6))


class Operations(TorchDispatchMode):
    """Record the names of operations that would start something on a GPU."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        self.names += [] if name in WITHOUT_WORK else [name]
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ("kind", "alpha", "most"), [("function", 1.0, 13), ("function", 0.0, 9), ("module", 1.0, 12)]
)
def test_a_call_starts_few_operations(monkeypatch, started, kind, alpha, most):
    """On a GPU the time of a small batch is the number of operations that are started.

    A further chunk adds its three products and its kernel.
    """
    monkeypatch.setattr(fused_linear, "is_tracing", lambda: False)  # the mode that counts is not tracing
    layer, y = example(12)
    hidden, weight = (part.detach().float().requires_grad_() for part in layer[:2])
    module = LinearPeerLoss(alpha=alpha)
    module(hidden, weight, y)  # the first call allocates the counts
    for chunks in (1, 3):
        module.chunk_rows = 12 // chunks
        started.clear()
        with Operations() as record:
            if kind == "module":
                loss = module(hidden, weight, y)
            else:
                loss = linear_peer_loss(hidden, weight, y, alpha=alpha, chunk_rows=12 // chunks)
            torch.autograd.grad(loss, (hidden, weight))
        assert len(record.names) <= most + 3 * (chunks - 1), record.names
        assert started == ["count"] + ["rows_in_place"] * chunks
