"""Cost of peer loss for very many classes: a linear layer and its loss, with and without stored logits.

Run ``python benchmarks/bench_linear.py [--classes 50000] [--rows 1024 8192] [--write FILE]``. Times are those
of a forward and a backward pass (medians of CUDA events over alternating rounds), memory is the peak beyond
inputs and parameters. ``--graphs`` adds the time on the GPU alone, without Python: each call is captured once
in a CUDA graph and replayed. ``--sizes`` measures the kernel alone for several sizes of its programs.
``--smoke`` runs everything on the CPU with small sizes, without the graphs.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from fused_cross_entropy import fused_cross_entropy
from measure import median_times, peak_bytes, provenance, publish
from torch.nn import functional as F  # noqa: N812 (torch's own convention)

from peerloss import LinearPeerLoss, PeerLoss
from peerloss.functional import linear_peer_loss
from peerloss.functional.kernels import triton_gpu
from peerloss.functional.kernels.fused_linear import Layer, default_chunk

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor

STORED = "F.cross_entropy"
FUSED = ("fused cross entropy", "linear_peer_loss, alpha=0, eps=0")
#: Calls between two events, so that the time to start the first operation of a call does not count.
CALLS = 3


def candidates(n: int, d: int, k: int, device: str) -> dict[str, Callable[[], None]]:
    """Return forward and backward passes by name."""
    generator = torch.Generator(device).manual_seed(0)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32

    def random(*shape: int) -> Tensor:
        values = torch.randn(shape, generator=generator, device=device, dtype=torch.float32)
        return values.to(dtype).requires_grad_()

    h, w = random(n, d), (random(k, d).detach() / d**0.5).requires_grad_()
    y = torch.randint(k, (n,), generator=generator, device=device)
    chunk = default_chunk(Layer(h, w, None))
    peer, fused_peer = PeerLoss().to(device), LinearPeerLoss().to(device)

    def cross_entropy() -> Tensor:
        return F.cross_entropy(F.linear(h, w), y)

    losses: dict[str, Callable[[], Tensor]] = {
        STORED: cross_entropy,
        "F.cross_entropy, compiled": torch.compile(cross_entropy, dynamic=False),
        "PeerLoss": lambda: peer(F.linear(h, w), y),
        FUSED[0]: lambda: fused_cross_entropy(h, w, y, chunk=chunk),
        FUSED[1]: lambda: linear_peer_loss(h, w, y, alpha=0.0, eps=0.0),
        "linear_peer_loss, eps=0": lambda: linear_peer_loss(h, w, y, eps=0.0),
        "linear_peer_loss": lambda: linear_peer_loss(h, w, y),
        "LinearPeerLoss": lambda: fused_peer(h, w, y),
    }
    if device == "cpu":  # the compiler takes minutes there and is not the question
        del losses["F.cross_entropy, compiled"]

    def both(loss: Callable[[], Tensor]) -> Callable[[], None]:
        def call() -> None:
            torch.autograd.grad(loss(), (h, w))

        return call

    return {name: both(loss) for name, loss in losses.items()}


def event_times(functions: Mapping[str, Callable[[], None]], rounds: int) -> dict[str, float]:
    """Return the median seconds per call on the GPU. The functions alternate, so that drift affects all."""
    for function in functions.values():
        for _ in range(3):
            function()
    times: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(rounds):
        for name, function in functions.items():
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            for _ in range(CALLS):
                function()
            end.record()
            end.synchronize()
            times[name].append(start.elapsed_time(end) / 1e3 / CALLS)
    return {name: statistics.median(values) for name, values in times.items()}


def capture(function: Callable[[], None]) -> Callable[[], None]:
    """Return a function that replays what ``function`` does on the GPU, in one launch."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            function()
            side.synchronize()  # so that nothing is left to be read during the capture
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        function()
    replay: Callable[[], None] = graph.replay
    return replay


def graph_times(functions: Mapping[str, Callable[[], None]], rounds: int) -> dict[str, float]:
    """Return the median seconds per call on the GPU alone. Calls that cannot be captured are left out."""
    replays, stream = {}, torch.cuda.current_stream()
    for name, function in functions.items():
        try:
            replays[name] = capture(function)
        except RuntimeError:
            torch.cuda.set_stream(stream)  # a failed capture leaves its own stream current
    return event_times(replays, rounds)


def faster_fused(times: Mapping[str, float]) -> str:
    """Return the name of the faster fused cross entropy, empty if neither was measured."""
    return min((name for name in FUSED if name in times), key=times.__getitem__, default="")


def cells(values: Mapping[str, float], name: str, fused: str, unit: float, form: str) -> list[str]:
    """Return a value and its ratios to stored logits and to ``fused``; cells not measured are empty."""
    if name not in values:
        return [""] * 3
    ratios = [f"{values[name] / values[other]:.3f}" if other in values else "" for other in (STORED, fused)]
    return [form.format(values[name] / unit), *ratios]


def table(
    classes: list[int], rows: list[int], d: int, rounds: int, device: str, *, graphs: bool
) -> list[str]:
    """Return a Markdown table; ratios are to stored logits and to the faster fused cross entropy."""
    names = ["classes", "rows", "loss", "time", "× stored", "× fused", "peak memory", "× stored", "× fused"]
    names += ["GPU alone", "× stored", "× fused"] if graphs else []
    lines = [f"| {' | '.join(names)} |", "|" + "---|" * len(names)]
    for k in classes:
        for n in rows:
            torch.compiler.reset()
            calls = candidates(n, d, k, device)
            if device == "cuda":
                times = event_times(calls, rounds)
            else:
                times = median_times(calls, rounds=rounds, device=device)
            peaks = {name: float(peak_bytes(call, device=device)) for name, call in calls.items()}
            alone = graph_times(calls, rounds) if graphs else {}  # last, because graphs keep their memory
            fused = faster_fused(times)
            for name in calls:
                row = [f"{k:,}", f"{n:,}", name, *cells(times, name, fused, 1e-3, "{:.2f} ms")]
                row += cells(peaks, name, fused, 2**20, "{:.0f} MiB")
                row += cells(alone, name, faster_fused(alone), 1e-3, "{:.2f} ms") if graphs else []
                lines.append(f"| {' | '.join(row)} |")
    return lines


def kernel_sizes(k: int, n: int, rounds: int) -> list[str]:
    """Return a table of the kernel's time for several numbers of columns and warps of a program."""
    z = torch.randn(n, k, device="cuda").bfloat16()
    y = torch.randint(k, (n,), device="cuda")
    shared, losses = torch.full((k,), -1.0 / k, device="cuda"), torch.empty(n, device="cuda")
    labelled = torch.ones(1, device="cuda")  # the divisor of the mean: 1, so that repeated calls stay alike
    kernels = triton_gpu.kernels_for(z.dtype)

    def call(columns: int, warps: int, coefficients: Tensor | None, eps: float) -> Callable[[], None]:
        def run() -> None:
            kernels.rows_in_place[(n,)](
                z, y, shared, labelled, labelled, losses, k, eps, -100, coefficients is not None, eps > 0,
                True, False, True, columns_at_once=columns, num_warps=warps,
            )  # fmt: skip

        return run

    kinds = {"cross entropy": (None, 0.0), "peer, eps=0": (shared, 0.0), "peer": (shared, 1e-5)}
    lines = ["", f"| kernel, {n:,} rows of {k:,} classes | columns | warps | time |", "|---|---|---|---|"]
    for name, (coefficients, eps) in kinds.items():
        sizes = [(1024, 4), (2048, 4), (2048, 8), (4096, 4), (4096, 8), (4096, 16), (8192, 16)]
        calls = {f"{c} | {w}": call(c, w, coefficients, eps) for c, w in sizes}
        for size, seconds in event_times(calls, rounds).items():
            lines.append(f"| {name} | {size} | {seconds * 1e3:.3f} ms |")
    return lines


def introduction(d: int, rounds: int, device: str, *, graphs: bool) -> list[str]:
    """Return the text above the table."""
    dtype = "bfloat16" if device == "cuda" else "float32"
    text = (
        f"`python benchmarks/bench_linear.py`; {provenance(device)}. A linear layer with {d} inputs "
        f"in {dtype} and its loss, forward and backward; medians of {rounds} alternating rounds. *× stored*: "
        "ratio to `F.cross_entropy(F.linear(...))`. *× fused*: ratio to the faster of two fused cross "
        "entropies, `benchmarks/fused_cross_entropy.py` and ours at α = 0. Goal: × fused ≤ 1.05."
    )
    if graphs:
        text += " *GPU alone*: the same calls, replayed as CUDA graphs."
    return ["# Cost of peer loss for very many classes", "", text, ""]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--classes", nargs="*", type=int, default=[1000, 50_000, 128_000])
    parser.add_argument("--rows", nargs="*", type=int, default=[1024, 8192])
    parser.add_argument("--width", type=int, default=1024, help="d, the inputs of the layer")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--graphs", action="store_true", help="also measure the time on the GPU alone")
    parser.add_argument("--sizes", action="store_true", help="also measure sizes of the kernel's programs")
    parser.add_argument("--smoke", action="store_true", help="small sizes on the CPU")
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    if options.smoke:
        options.device, options.classes, options.rows, options.width = "cpu", [500], [600], 8
        options.rounds, options.graphs = 1, False
    shape = options.width, options.rounds, options.device
    lines = introduction(*shape, graphs=options.graphs)
    lines += table(options.classes, options.rows, *shape, graphs=options.graphs)
    if options.sizes:
        lines += kernel_sizes(max(options.classes), 1024, options.rounds)
    publish("\n".join([*lines, ""]), options.write)


if __name__ == "__main__":
    main()
