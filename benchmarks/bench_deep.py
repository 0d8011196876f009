"""What peer loss costs in a ResNet-18 step beside cross entropy, on a GPU: time and memory, in one run.

Run ``python benchmarks/bench_deep.py [--compile] [--batches 256 1024] [--output FILE]``.
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

    losses: dict[str, nn.Module] = {
        "nn.CrossEntropyLoss": nn.CrossEntropyLoss(),
        "PeerLoss": PeerLoss(),
        "PeerLoss, unclipped": PeerLoss(eps=0.0),
    }
    return {
        name: step(torch.compile(loss.to(device), dynamic=False) if compiled else loss.to(device))
        for name, loss in losses.items()
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--batches", nargs="+", type=int, default=[256, 1024])
    parser.add_argument("--rounds", type=int, default=101)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    torch.backends.cudnn.benchmark = True
    lines = [
        f"ResNet-18, bfloat16, {'compiled, ' if options.compile else ''}{provenance(options.device)}.",
        f"Medians of {options.rounds} rounds in turns; goals: time × 1.03, memory × 1.02.",
        "",
        "| batch | loss | step | × | peak memory | × |",
        "|" + "---|" * 6,
    ]
    for batch in options.batches:
        calls = steps(batch, options.device, compiled=options.compile)
        times = median_times(calls, rounds=options.rounds, device=options.device)
        peaks = {name: peak_bytes(call, device=options.device) for name, call in calls.items()}
        for name in calls:
            slower, larger = (f[name] / f["nn.CrossEntropyLoss"] for f in (times, peaks))
            lines.append(
                f"| {batch} | {name} | {times[name] * 1e3:.2f} ms | {slower:.3f} "
                f"| {peaks[name] / 2**20:.0f} MiB | {larger:.3f} |"
            )
    text = "\n".join([*lines, ""])
    print(text)
    if options.output:
        options.output.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
