"""Cost of peer loss on a GPU compared with cross entropy: training ResNet-18, and 50,000 classes.

Run ``python benchmarks/bench_deep.py [--batches 256 1024] [--output FILE]``. Three tables: epochs of
:func:`train_deep` with compilation; single steps of a plain loop with a synchronisation after each; the
losses alone. "Compiled" losses were compiled with ``torch.compile``.
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
from peerloss.training import DeepRecipe
from peerloss.training.deep._deep_run import Run

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

CLASSES = 50_000
STEPS, EPOCH_ROUNDS = 40, 11


def epochs(batch: int, device: str) -> dict[str, Callable[[], None]]:
    """Return an epoch of the deep loop for each loss, all with one network that is compiled once."""
    torch.compiler.reset()
    X = torch.randint(256, (STEPS * batch, 32, 32, 3), dtype=torch.uint8, device=device)
    y = torch.randint(10, (len(X),), device=device)
    recipe = DeepRecipe(epochs=1_000_000, batch_size=batch, learning_rate=1e-3, compile=True)
    net = resnet18()
    candidates = {"nn.CrossEntropyLoss": nn.CrossEntropyLoss(), "PeerLoss": PeerLoss()}
    runs = {name: Run(net, loss, X, y, recipe, torch.device(device)) for name, loss in candidates.items()}

    def epoch(run: Run) -> Callable[[], None]:
        def call() -> None:
            run.train_epoch()

        return call

    return {name: epoch(run) for name, run in runs.items()}


def steps(batch: int, device: str) -> dict[str, Callable[[], None]]:
    """Return a training step for each loss, with one network and one optimizer."""
    model = resnet18().to(device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    X = torch.randn(batch, 3, 32, 32, device=device).contiguous(memory_format=torch.channels_last)
    y = torch.randint(10, (batch,), device=device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, fused=device == "cuda")

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
    """Return the losses by name, plain and compiled, each with its own label counts."""
    kinds: dict[str, Callable[[], nn.Module]] = {
        "nn.CrossEntropyLoss": nn.CrossEntropyLoss,
        "PeerLoss": PeerLoss,
        "PeerLoss, unclipped": lambda: PeerLoss(eps=0.0),
    }
    torch.compiler.reset()  # torch.compile gives up after many objects of one class
    plain = {name: kind().to(device) for name, kind in kinds.items()}
    return plain | {
        f"{name}, compiled": torch.compile(kind().to(device), dynamic=False) for name, kind in kinds.items()
    }


def passes(n: int, device: str) -> dict[str, Callable[[], None]]:
    """Return forward and backward passes of the losses alone."""
    z = torch.randn(n, CLASSES, device=device, requires_grad=True)
    y = torch.randint(CLASSES, (n,), device=device)

    def once(loss: Callable[[Tensor, Tensor], Tensor]) -> Callable[[], None]:
        def call() -> None:
            torch.autograd.grad(loss(z, y), z)

        return call

    return {name: once(loss) for name, loss in losses(device).items()}


def table(
    title: str,
    sizes: list[int],
    candidates: Callable[[int, str], dict[str, Callable[[], None]]],
    rounds: int,
    device: str,
) -> list[str]:
    """Return a Markdown table with times and memory as multiples of plain cross entropy."""
    rows = ["", f"Medians of {rounds} alternating rounds.", ""]
    rows += [f"| {title} | loss | time | × | peak memory | × |", "|" + "---|" * 6]
    for size in sizes:
        calls = candidates(size, device)
        times = median_times(calls, rounds=rounds, device=device)
        peaks = {name: peak_bytes(call, device=device) for name, call in calls.items()}
        for name in calls:
            slower, larger = (costs[name] / costs["nn.CrossEntropyLoss"] for costs in (times, peaks))
            rows.append(
                f"| {size} | {name} | {times[name] * 1e3:.2f} ms | {slower:.3f} "
                f"| {peaks[name] / 2**20:.0f} MiB | {larger:.3f} |"
            )
    return rows


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--batches", nargs="*", type=int, default=[256, 1024])
    parser.add_argument("--rows", nargs="*", type=int, default=[1024, 8192], help="rows for the losses alone")
    parser.add_argument("--rounds", type=int, default=101)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    torch.backends.cudnn.benchmark = True
    device = options.device
    parts = [
        (f"An epoch of train_deep, {STEPS} steps", options.batches, epochs, EPOCH_ROUNDS),
        ("A step of a plain loop", options.batches, steps, options.rounds),
        (f"The loss alone, {CLASSES:,} classes, rows", options.rows, passes, options.rounds),
    ]
    lines = ["# Cost of peer loss on a GPU, compared with cross entropy", "", f"{provenance(device)}."]
    for title, sizes, candidates, rounds in parts:
        if sizes:
            lines += table(title, sizes, candidates, rounds, device)
        text = "\n".join([*lines, ""])
        if options.output:  # after each part, because GPU time may run out
            options.output.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
