"""Time and memory of peer loss compared with ``torch.nn.functional.cross_entropy`` (``make bench``).

Run ``python benchmarks/bench.py [--device cuda] [--output FILE]``. Times are medians of alternating
rounds. Memory is the peak of a forward and backward pass beyond its inputs. ``--soft`` measures only the
losses of soft targets, compared with ``cross_entropy`` of probabilities, in rounds that also measure class
codes.
"""

from __future__ import annotations

import argparse
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import torch
from measure import median_times, paired_ratios, peak_bytes, provenance, publish
from torch import Tensor, nn

from peerloss import PeerLoss

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from peerloss.functional.batch import Batch

SHAPES = ((8192, 10, 100), (8192, 1000, 31), (1024, 50_000, 9))
#: Other processes can disturb the measurement of steps, so it is repeated and the range is shown.
STEP_REPEATS, STEP_ROUNDS, FEW_ROUNDS = 5, 101, 5
#: Variant → (α, eps, goals for time and memory as multiples of cross entropy).
VARIANTS = {"unclipped": (1.0, 0.0, 1.5, 1.5), "clipped": (1.0, 1e-5, 2.5, None)}


def loss_rows(device: str) -> list[str]:
    """Compare forward and backward passes of the loss alone."""
    rows = ["| logits | loss | time | × | goal | peak memory | × | goal |", "|" + "---|" * 8]
    for n, k, rounds in SHAPES:
        z = torch.randn(n, k, device=device, requires_grad=True)
        y = torch.randint(k, (n,), device=device)
        losses: dict[str, nn.Module] = {"F.cross_entropy": nn.CrossEntropyLoss()}
        losses |= {f"peer, {name}": PeerLoss(alpha=a, eps=eps) for name, (a, eps, *_) in VARIANTS.items()}
        calls = {name: _pass(loss, z, y) for name, loss in losses.items()}
        times = median_times(calls, rounds=rounds, device=device)
        peaks = {name: peak_bytes(call, device=device) for name, call in calls.items()}
        for name in calls:
            goals = VARIANTS.get(name.removeprefix("peer, "), (0, 0, None, None))[2:]
            time_ratio = times[name] / times["F.cross_entropy"]
            peak_ratio = peaks[name] / peaks["F.cross_entropy"]
            rows.append(
                f"| ({n}, {k}) | {name} | {times[name] * 1e3:.2f} ms | {time_ratio:.2f} | {_goal(goals[0])} "
                f"| {peaks[name] / 2**20:.2f} MiB | {peak_ratio:.2f} | {_goal(goals[1])} |"
            )
    return rows


def soft_rows(device: str) -> list[str]:
    """Compare soft targets: the loss alone, forward and backward, and complete training steps."""
    rows = ["| what | loss | targets | time | × | goal |", "|" + "---|" * 6]
    reference, goals = ("cross entropy", "soft"), {("peer, unclipped", "soft"), ("peer, clipped", "soft")}
    for what, calls, rounds in _soft_cases(device):
        named = {f"{loss}, {kind}": call for (loss, kind), call in calls.items()}
        times, ratios = paired_ratios(named, ", ".join(reference), rounds=rounds, device=device)
        for loss, kind in calls:
            seconds, ratio = (found[f"{loss}, {kind}"] for found in (times, ratios))
            goal = "≤ 1.3" if (loss, kind) in goals else ""
            rows.append(f"| {what} | {loss} | {kind} | {seconds * 1e3:.2f} ms | {ratio:.2f} | {goal} |")
    return rows


def _soft_cases(device: str) -> Iterator[tuple[str, dict[tuple[str, str], Callable[[], None]], int]]:
    """Yield a name, the calls to compare by loss and kind of target, and the number of rounds."""
    losses: dict[str, Callable[[], nn.Module]] = {
        "cross entropy": nn.CrossEntropyLoss,
        "peer, unclipped": lambda: PeerLoss(eps=0.0),
        "peer, clipped": PeerLoss,
    }
    for n, k, rounds in ((256, 10, 5 * STEP_ROUNDS), *SHAPES):
        z = torch.randn(n, k, device=device, requires_grad=True)
        targets = {
            "soft": torch.softmax(torch.randn(n, k, device=device), dim=1),
            "class codes": torch.randint(k, (n,), device=device),
        }
        calls = {
            (name, kind): _pass(make(), z, target)
            for kind, target in targets.items()
            for name, make in losses.items()
        }
        yield f"loss, ({n}, {k})", calls, rounds if k <= 1000 else FEW_ROUNDS
    for name, width, k in (("784-256-256-10", 256, 10), ("784-256-256-1000", 256, 1000)):
        model, X = nn.Sequential(*_mlp(width, k)).to(device), torch.randn(256, 784, device=device)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
        targets = {
            "soft": torch.softmax(torch.randn(256, k, device=device), dim=1),
            "class codes": torch.randint(k, (256,), device=device),
        }
        calls = {
            (loss, kind): _step(optimizer, partial(_model_loss, make(), model, X, target))
            for kind, target in targets.items()
            for loss, make in losses.items()
        }
        yield f"step, MLP {name}, batch 256", calls, STEP_ROUNDS


def _model_loss(loss: nn.Module, model: nn.Module, X: Tensor, y: Tensor) -> Tensor:
    value: Tensor = loss(model(X), y)
    return value


def _step(optimizer: torch.optim.Optimizer, loss: Callable[[], Tensor]) -> Callable[[], None]:
    def call() -> None:
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()

    return call


def _pass(loss: nn.Module, z: Tensor, y: Tensor) -> Callable[[], None]:
    def call() -> None:
        torch.autograd.grad(loss(z, y), z)  # .backward() would reuse the memory of an earlier gradient

    return call


def _goal(value: float | None) -> str:
    return "" if value is None else f"≤ {value:g}"


def step_rows(device: str) -> list[str]:
    """Compare complete training steps of small networks."""
    rows = ["| network | loss | step | × | lowest to highest | goal |", "|" + "---|" * 6]
    networks: dict[str, tuple[list[nn.Module], Tensor, int]] = {
        "MLP 784-256-256-10, batch 256": (_mlp(256), torch.randn(256, 784), 10),
        "MLP 784-512-512-10, batch 256": (_mlp(512), torch.randn(256, 784), 10),
        "CNN 16-32 on 32×32, batch 128": (
            [
                nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
                nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(4),
                nn.Flatten(), nn.Linear(512, 10),
            ],
            torch.randn(128, 3, 32, 32),
            10,
        ),
        "MLP 784-256-256-1000, batch 256": (_mlp(256, 1000), torch.randn(256, 784), 1000),
        "linear 512-50000, batch 256": ([nn.Linear(512, 50_000)], torch.randn(256, 512), 50_000),
    }  # fmt: skip
    for name, (layers, inputs, n_classes) in networks.items():
        calls = _steps(nn.Sequential(*layers).to(device), inputs.to(device), n_classes)
        rounds = STEP_ROUNDS if n_classes <= 1000 else FEW_ROUNDS
        repeats = [median_times(calls, rounds=rounds, device=device) for _ in range(STEP_REPEATS)]
        goals = {"peer, expected": "≤ 1.05", "peer, two forward passes": "(about 1.9)"}
        for loss in calls:
            seconds = median(times[loss] for times in repeats)
            ratios = [times[loss] / times["cross entropy"] for times in repeats]
            rows.append(
                f"| {name} | {loss} | {seconds * 1e3:.2f} ms | {median(ratios):.3f} "
                f"| {min(ratios):.3f} to {max(ratios):.3f} | {goals.get(loss, '')} |"
            )
    return rows


class _InOperations(PeerLoss):
    """As without numba: a subclass that prepares batches has no fast path."""

    def batch(self, logits: Tensor, target: Tensor) -> Batch:
        """Prepare the batch as PeerLoss does."""
        return super().batch(logits, target)


def _mlp(width: int, n_classes: int = 10) -> list[nn.Module]:
    hidden = [nn.Linear(784, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()]
    return [*hidden, nn.Linear(width, n_classes)]


def _steps(model: nn.Module, X: Tensor, n_classes: int) -> dict[str, Callable[[], None]]:
    y = torch.randint(n_classes, (len(X),), device=X.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
    plain, peer, peer_in_operations = nn.CrossEntropyLoss(), PeerLoss(), _InOperations()
    others = torch.randperm(len(X), device=X.device)
    other_labels = torch.randperm(len(X), device=X.device)
    X_peer, y_peer = X[others], y[other_labels]
    return {
        "cross entropy": _step(optimizer, lambda: plain(model(X), y)),
        "peer, expected": _step(optimizer, lambda: peer(model(X), y)),
        "peer, expected, without numba": _step(optimizer, lambda: peer_in_operations(model(X), y)),
        "peer, two forward passes": _step(
            optimizer, lambda: plain(model(X), y) - plain(model(X_peer), y_peer)
        ),
    }


def _numba() -> str:
    try:
        return f"numba {version('numba')}"
    except PackageNotFoundError:
        return "no numba"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--output", type=Path, help="also write the tables here")
    parser.add_argument("--soft", action="store_true", help="measure soft targets only")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    if arguments.soft:
        publish("\n".join(_soft_text(arguments.device)), arguments.output)
        return
    *first, last = (count for *_, count in SHAPES)
    text = "\n".join(
        [
            "# Cost of peer loss, compared with cross entropy",
            "",
            f"Measured with `make bench`: {provenance(arguments.device)}, {_numba()}.",
            f"Medians of alternating rounds: {', '.join(map(str, first))} and {last} rounds for the losses.",
            f"Steps: {STEP_REPEATS} repetitions of {STEP_ROUNDS} rounds ({FEW_ROUNDS} with 50,000 classes).",
            "Time and ratio are medians over the repetitions, with the range of the ratio.",
            "",
            "## Loss alone, forward and backward",
            "",
            *loss_rows(arguments.device),
            "",
            "## A training step",
            "",
            *step_rows(arguments.device),
            "",
            *_soft_text(arguments.device),
        ]
    )
    publish(text, arguments.output)


def _soft_text(device: str) -> list[str]:
    return [
        "## Soft targets",
        "",
        f"Measured with `benchmarks/bench.py --soft`: {provenance(device)}, {_numba()}.",
        "The reference of all ratios is `F.cross_entropy` with probabilities as targets. Calls alternate.",
        "The ratio is the median of the ratios of single rounds, which a busy machine changes little.",
        "",
        *soft_rows(device),
        "",
    ]


if __name__ == "__main__":
    main()
