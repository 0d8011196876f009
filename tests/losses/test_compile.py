"""torch.compile and CUDA."""

import shutil

import pytest
import torch

from peerloss import BackwardLoss, DMILoss, ForwardLoss, PeerLoss, PlainLoss

T3 = [[0.8, 0.1, 0.1], [0.2, 0.7, 0.1], [0.0, 0.1, 0.9]]
LOSSES = {
    "base": lambda: PlainLoss("gce"),
    "peer_gce": lambda: PeerLoss("gce:0.5", alpha=0.8),
    "peer": lambda: PeerLoss(alpha=0.8),
    "peer_unclipped": lambda: PeerLoss(alpha=0.8, eps=0.0),
    "peer_ramp": lambda: PeerLoss("ramp", noisy_prior=[0.2, 0.3, 0.5]),
    "backward": lambda: BackwardLoss(T3),
    "forward": lambda: ForwardLoss(T3),
    "dmi": DMILoss,
}


def example(n=16, device="cpu"):
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(n, 3, generator=generator)
    y = torch.randint(3, (n,), generator=generator)
    y[2] = -100
    return z.to(device).requires_grad_(), y.to(device)


def value_and_gradient(loss, z, y):
    value = loss(z, y)
    (gradient,) = torch.autograd.grad(value, z)
    return value.detach(), gradient


@pytest.mark.parametrize("name", LOSSES)
def test_compiled_losses_are_one_graph_and_agree(name):
    """fullgraph=True finds no break, and the numbers are those of eager mode."""
    z, y = example()
    eager = value_and_gradient(LOSSES[name](), z, y)
    torch.compiler.reset()
    compiled = torch.compile(LOSSES[name](), backend="aot_eager", fullgraph=True)
    for ours, reference in zip(value_and_gradient(compiled, z, y), eager, strict=True):
        torch.testing.assert_close(ours, reference)


def test_sampled_peers_compile():
    """Inside a compiled graph peers are drawn by the graph's own generator."""
    torch.compiler.reset()
    z, y = example()
    compiled = torch.compile(PeerLoss(peers="sampled"), backend="aot_eager")
    assert torch.isfinite(compiled(z, y))


def test_changing_alpha_does_not_recompile():
    """α enters the graph as an input, so a schedule costs nothing."""
    torch.compiler.reset()
    compilations = []

    def counting_backend(graph, _):
        compilations.append(graph)
        return graph.forward

    z, y = example()
    loss = PeerLoss(alpha=0.0, noisy_prior=[0.2, 0.3, 0.5])
    compiled = torch.compile(loss, backend=counting_backend, fullgraph=True)
    for alpha in (0.0, 0.5, 1.0, 2.0):
        loss.alpha = alpha
        expected = PeerLoss(alpha=alpha, noisy_prior=[0.2, 0.3, 0.5])(z, y)
        torch.testing.assert_close(compiled(z, y), expected)
    assert len(compilations) == 1


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="the inductor backend needs a C++ compiler")
def test_the_default_compiler_agrees():
    """Generated code gives the numbers of eager mode."""
    torch.compiler.reset()
    z, y = example()
    eager = value_and_gradient(PeerLoss(alpha=0.8), z, y)
    compiled = value_and_gradient(torch.compile(PeerLoss(alpha=0.8)), z, y)
    for ours, reference in zip(compiled, eager, strict=True):
        torch.testing.assert_close(ours, reference)


@pytest.mark.cuda
@pytest.mark.parametrize("name", LOSSES)
def test_cuda_agrees_with_the_cpu_and_never_synchronises(name):
    """Values and gradients on the GPU, with ignored targets, while synchronising is forbidden."""
    reference = value_and_gradient(LOSSES[name](), *example())
    z, y = example(device="cuda")
    loss = LOSSES[name]().cuda()
    loss(z, y)  # first call allocates
    fresh = LOSSES[name]().cuda()
    torch.cuda.synchronize()
    if name != "dmi":  # the determinant itself synchronises
        torch.cuda.set_sync_debug_mode("error")
    try:
        ours = value_and_gradient(fresh, z, y)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    for value, wanted in zip(ours, reference, strict=True):
        torch.testing.assert_close(value.cpu(), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.cuda
@pytest.mark.parametrize("eps", [0.0, 1e-5])
def test_large_batches_on_cuda(eps):
    """Large batches of float64 agree with the CPU."""
    z, y = torch.randn(512, 300), torch.randint(300, (512,))
    results = []
    for device in ("cpu", "cuda"):
        t = z.to(device, torch.float64).requires_grad_()
        results.append(value_and_gradient(PeerLoss(alpha=0.7, eps=eps), t, y.to(device)))
    for cpu, cuda in zip(*results, strict=True):
        torch.testing.assert_close(cuda.cpu(), cpu)


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast_on_cuda(dtype):
    """Half-precision logits give a float32 loss and half-precision gradients upstream."""
    model = torch.nn.Linear(8, 3).cuda()
    X, y = torch.randn(32, 8, device="cuda"), torch.randint(3, (32,), device="cuda")
    with torch.autocast("cuda", dtype=dtype):
        logits = model(X)
        loss = PeerLoss()(logits, y)
    assert logits.dtype == dtype
    assert loss.dtype == torch.float32
    loss.backward()
    assert torch.isfinite(model.weight.grad).all()


@pytest.mark.cuda
def test_sampled_peers_on_cuda_with_a_generator():
    """A generator on the device repeats its draws."""
    z, y = example(device="cuda")
    values = [
        PeerLoss(peers="sampled", generator=torch.Generator("cuda").manual_seed(0))(z, y) for _ in range(2)
    ]
    assert values[0] == values[1]
