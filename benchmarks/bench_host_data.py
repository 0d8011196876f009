"""Cost of inputs in host memory and on disk, compared with inputs on the device, in epochs of ``train_deep``.

Run ``python benchmarks/bench_host_data.py [--rows 50000] [--batch 512] [--output FILE]``. The images are
random, 32 × 32, and the network is ResNet-18 without compilation. The same images lie on the device, in host
memory and in a file that is mapped into memory. Peak memory is that of an epoch on the device, beyond the
memory in use before it.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from measure import paired_ratios, peak_bytes, provenance

from peerloss import PeerLoss
from peerloss.models import ResNet, resnet18
from peerloss.training import DeepRecipe
from peerloss.training.deep._deep_run import Run

if TYPE_CHECKING:
    from collections.abc import Callable

ON_DEVICE = "on the device"


def epochs(
    rows: int, batch: int, device: str, folder: Path, *, small: bool
) -> dict[str, Callable[[], object]]:
    """Return an epoch of training for each place of the inputs."""
    rng = np.random.default_rng(0)
    X = rng.integers(256, size=(rows, 32, 32, 3), dtype=np.uint8)
    np.save(folder / "X.npy", X)
    y = rng.integers(10, size=rows)
    places = {
        ON_DEVICE: (X, True),
        "in host memory": (X, False),
        "in a mapped file": (np.load(folder / "X.npy", mmap_mode="r"), False),
    }
    recipe = DeepRecipe(epochs=1_000_000, batch_size=batch, learning_rate=1e-3)
    made: dict[str, Callable[[], object]] = {}
    for name, (inputs, on_device) in places.items():
        torch.manual_seed(0)
        model = ResNet((1, 1), width=8) if small else resnet18()
        run = Run(model, PeerLoss(), inputs, y, recipe, torch.device(device), data_on_device=on_device)
        made[name] = run.train_epoch
    return made


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--small", action="store_true", help="a small network, for a CPU")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    device = options.device
    with tempfile.TemporaryDirectory() as folder:
        calls = epochs(options.rows, options.batch, device, Path(folder), small=options.small)
        times, ratios = paired_ratios(calls, ON_DEVICE, rounds=options.rounds, device=device)
        peaks = {name: peak_bytes(call, device=device) for name, call in calls.items()}
    network = "a small ResNet" if options.small else "ResNet-18"
    about = f"An epoch of {network} on {options.rows:,} images, batches of {options.batch}; medians of "
    about += f"{options.rounds} alternating rounds."
    lines = [
        "# Inputs in host memory, compared with inputs on the device",
        "",
        f"{provenance(device)}.",
        "",
        about,
        "",
        "| inputs | time | × | peak memory |",
        "|---|---|---|---|",
        *(
            f"| {name} | {times[name]:.2f} s | {ratios[name]:.2f} | {peaks[name] / 2**20:.0f} MiB |"
            for name in calls
        ),
        "",
    ]
    text = "\n".join(lines)
    if options.output:
        options.output.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
