"""What peer loss costs on a GPU beside cross entropy: in a ResNet-18 step, and alone with 50,000 classes.

Run ``python benchmarks/bench_deep.py [--compile] [--batches 256 1024] [--output FILE]``. "Compiled" losses
went through ``torch.compile``; with ``--compile`` the network goes through it too.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from measure import median_times, peak_bytes, provenance
from torch import nn

from peerloss import PeerLoss
from peerloss.models import resnet18

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

CLASSES = 50_000


def steps(batch: int, device: str, *, compiled: bool) -> dict[str, Callable[[], None]]:
    """Return a training step for each loss, on one network with one optimizer."""
    net = resnet18().to(device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    model = torch.compile(net, dynamic=False) if compiled else net
    X = torch.randn(batch, 3, 32, 32, device=device).contiguous(memory_format=torch.channels_last)
    y = torch.randint(10, (batch,), device=device)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9, fused=device == "cuda")

    def step(loss: Callable[[Tensor, Tensor], Tensor]) -> Callable[[], None]:
        def call() -> None:
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast(device, dtype=torch.bfloat16):
                logits = model(X)
            loss(logits.float(), y).backward()
            optimizer.step()

        return call

    return {name: step(loss) for name, loss in losses(device).items()}


def losses(device: str) -> dict[str, Callable[[Tensor, Tensor], Tensor]]:
    """Return the candidates by name, as they are and compiled, each with its own count of labels."""
    kinds: dict[str, Callable[[], nn.Module]] = {
        "nn.CrossEntropyLoss": nn.CrossEntropyLoss,
        "PeerLoss": PeerLoss,
        "PeerLoss, unclipped": lambda: PeerLoss(eps=0.0),
    }
    plain = {name: kind().to(device) for name, kind in kinds.items()}
    return plain | {
        f"{name}, compiled": torch.compile(kind().to(device), dynamic=False) for name, kind in kinds.items()
    }


def passes(n: int, k: int, device: str) -> dict[str, Callable[[], None]]:
    """Return forward and backward passes of the losses alone."""
    z = torch.randn(n, k, device=device, requires_grad=True)
    y = torch.randint(k, (n,), device=device)

    def once(loss: Callable[[Tensor, Tensor], Tensor]) -> Callable[[], None]:
        return lambda: torch.autograd.grad(loss(z, y), z) and None

    return {name: once(loss) for name, loss in losses(device).items()}


def compare(place: str, calls: dict[str, Callable[[], None]], *, rounds: int, device: str) -> list[str]:
    """Return rows of the table: everything as a multiple of plain cross entropy."""
    times = median_times(calls, rounds=rounds, device=device)
    peaks = {name: peak_bytes(call, device=device) for name, call in calls.items()}
    rows = []
    for name in calls:
        slower, larger = (figures[name] / figures["nn.CrossEntropyLoss"] for figures in (times, peaks))
        rows.append(
            f"| {place} | {name} | {times[name] * 1e3:.2f} ms | {slower:.3f} "
            f"| {peaks[name] / 2**20:.0f} MiB | {larger:.3f} |"
        )
    return rows


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--batches", nargs="+", type=int, default=[256, 1024])
    parser.add_argument("--rows", nargs="+", type=int, default=[1024, 8192], help="of the losses alone")
    parser.add_argument("--rounds", type=int, default=101)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    torch.backends.cudnn.benchmark = True
    lines = [
        f"ResNet-18, bfloat16{', compiled' if options.compile else ''}: {provenance(options.device)}.",
        f"Medians of {options.rounds} rounds in turns; goals: step × 1.03, memory × 1.02, loss alone × 1.3.",
        "",
        "| batch | loss | step | × | peak memory | × |",
        "|" + "---|" * 6,
    ]
    for batch in options.batches:
        calls = steps(batch, options.device, compiled=options.compile)
        lines += compare(str(batch), calls, rounds=options.rounds, device=options.device)
    lines += ["", "| logits | loss alone | time | × | peak memory | × |", "|" + "---|" * 6]
    for n in options.rows:
        calls = passes(n, CLASSES, options.device)
        lines += compare(f"({n}, {CLASSES})", calls, rounds=options.rounds, device=options.device)
    text = "\n".join([*lines, ""])
    print(text)
    if options.output:
        options.output.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
