"""Noise that depends on the image: peer loss at constant α and the methods made for such noise, on CIFAR-10.

Run ``PYTHONPATH=src python benchmarks/row_noise_cifar.py --data FOLDER [--seeds 0] [--output FOLDER]``. It
needs torch, NumPy, SciPy and scikit-learn. Records and the table are written to OUTPUT; runs that are
recorded there are skipped. With ``--seconds 280`` no run is started that would probably end later.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cifar  # noqa: F401 (first: it makes the modules for images importable without pandas)
import numpy as np
import torch
from measure import provenance, publish
from torch.nn.functional import one_hot

from peerloss.datasets.cifar10 import CIFAR10
from peerloss.experiments.cifar import SharedResources
from peerloss.functional import covariance_targets
from peerloss.losses import PeerLoss, PlainLoss, cores_loss
from peerloss.models import resnet18
from peerloss.noise import InstanceNoise, flip_labels
from peerloss.training import Augment, DeepRecipe, predict_logits, train_deep

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor, nn

    Labels = np.ndarray[Any, Any]

K, HOLDOUT, POOL = 10, 5000, 4
#: CAL needs predictions of the clean class; they come from the network of this method, as its authors do it.
FIRST_STAGE = "CORES²"
RECIPE = DeepRecipe(learning_rate=0.4, compile=True)
#: The authors' schedule for 100 epochs as shares: β is 0 in the first tenth and 2 after four tenths.
CORES_KNOTS = ((0.1, 0.0), (0.4, 2.0))
#: The rising α of `peerloss reproduce cifar10n`.
RISING_KNOTS = ((0.35, 0.0), (1.0, 4.0))
SMOKE = replace(RECIPE, epochs=10, batch_size=32, learning_rate=0.1, augment=Augment(crop=0, flip=False))
SMOKE_ROWS, SMOKE_HOLDOUT = 250, 50
METHODS: dict[str, Callable[[Tensor], nn.Module]] = {
    "cross entropy": lambda _: PlainLoss(),
    "bi-tempered": lambda _: PlainLoss("bi_tempered"),
    "peer": lambda prior: PeerLoss(noisy_prior=prior),
    "CORES²": lambda prior: cores_loss(noisy_prior=prior, sieve_from=1.4),
    "CAL": lambda prior: PeerLoss(noisy_prior=prior),
    "peer, rising α": lambda prior: PeerLoss(noisy_prior=prior),
}
KNOTS = {"CORES²": CORES_KNOTS, "peer, rising α": RISING_KNOTS}
HEADER = """# Noise that depends on the image: CIFAR-10

Measured with `benchmarks/row_noise_cifar.py`: {versions}; seeds {seeds}; {minutes:.1f} minutes of training.
Accuracy in per cent on the clean test labels, mean ± standard error over the seeds (one seed has none).

**Data.** CIFAR-10 with the labels *worst* of CIFAR-10N, or with *instance* noise, mean rate .4:
`InstanceNoise.from_features` on the mean colours of 4 × 4 pixels. {holdout:,} noisy labels are held out.

**Methods.** ResNet-18, {epochs} epochs, the same optimiser and augmentation for all; no setting was chosen
on these labels, except the schedule of *rising α* (with another split).
*peer*: α = 1 in all epochs. *rising α*: 0 in the first 35 % of the epochs, then up to 4, as
in `peerloss reproduce cifar10n`. *bi-tempered*: t1 = .8, t2 = 1.2, without peers. *CORES²*: its loss,
schedule and sieve (`cores_loss(sieve_from=1.4)`): β is 0 in the first tenth of the epochs and 2 after 40 %.
*CAL*: peer loss at α = 1 on `covariance_targets`, without T(x); the clean class is the one that the network
of CORES² predicts. *averaged*: moving average of the weights after the last epoch. *best*: the averaged
weights of the epoch with the best peer score on the held-out noisy labels.

{table}
"""


@dataclass
class Images:
    """Images and labels, and one network, so that it is compiled once."""

    resources: SharedResources
    rows: int | None
    width: int
    network: nn.Module | None = None

    def noisy_labels(self, noise: str, seed: int) -> Labels:
        """Return the training labels under human noise, or under noise that depends on the image."""
        images, clean = (part[: self.rows] for part in self.resources.training)
        if noise in CIFAR10.human_labels:
            everything = self.resources.training[1]
            return CIFAR10.read_human_labels(noise, everything, self.resources.data_dir)[: self.rows]
        side = images.shape[1] // POOL
        blocks = images.reshape(len(images), side, POOL, side, POOL, 3).mean(axis=(2, 4))
        rate = float(noise.partition(":")[2])
        features = blocks.reshape(len(images), -1)
        made = InstanceNoise.from_features(features, clean, rate=rate, n_classes=K, random_state=seed)
        return flip_labels(clean, made, random_state=seed)

    def new_network(self, seed: int) -> nn.Module:
        """Return the network with new initial weights."""
        torch.manual_seed(seed)
        fresh = resnet18(width=self.width)
        if self.network is None:
            self.network = fresh
        self.network.load_state_dict(fresh.state_dict())
        return self.network


def corrected(labels: Labels, guesses: Tensor) -> Labels:
    """Return the soft targets of CAL: predicted classes take the place of the unknown clean ones."""
    clean = one_hot(guesses, K).double()
    return covariance_targets(torch.as_tensor(labels), clean).float().numpy()


def run_one(
    images: Images, method: str, labels: Labels, *, seed: int, recipe: DeepRecipe, holdout: int, guesses: Any
) -> tuple[dict[str, Any], Tensor]:
    """Train once. Return the results, and the classes predicted for all training images."""
    device = images.resources.torch_device
    X = images.resources.training[0][: images.rows]
    order = np.random.default_rng(2000 + seed).permutation(len(X))
    held, used = order[:holdout], order[holdout:]
    model = images.new_network(seed)
    targets = corrected(labels[used], guesses[used]) if method == "CAL" else labels[used]
    prior = torch.as_tensor(np.bincount(labels[used], minlength=K) / len(used))
    started = time.perf_counter()
    result = train_deep(
        model,
        METHODS[method](prior),
        X[used],
        targets,
        recipe=replace(
            recipe,
            alpha=KNOTS.get(method, ()),
            random_state=seed,
            compile=recipe.compile and device.type == "cuda",
        ),
        validation=(X[held], labels[held]),
        device=device,
    )
    seconds = time.perf_counter() - started
    test_images, truth = (part[: images.rows] for part in images.resources.test)
    found: dict[str, Any] = {"seconds": round(seconds, 1), "best_epoch": result.best_epoch}
    inputs = torch.as_tensor(test_images).to(device)
    for name in ("best", "average"):  # the last one also predicts the training images
        model.load_state_dict(result.weights[name])
        model.eval()
        guessed = predict_logits(model, inputs).argmax(dim=1).cpu().numpy()
        found[name] = round(100.0 * float((guessed == truth).mean()), 3)
    found["held_out_score"] = max(record["score"] for record in result.history)
    return found, predict_logits(model, torch.as_tensor(X).to(device)).argmax(dim=1).cpu()


def make_table(records: list[dict[str, Any]]) -> str:
    """Return the Markdown table: one line per noise and method."""
    lines = [
        "| noise | method | seeds | averaged | best | difference from peer | seconds |",
        "|" + "---|" * 7,
    ]
    for noise, method in product(dict.fromkeys(r["noise"] for r in records), METHODS):
        runs = {r["seed"]: r for r in records if (r["noise"], r["method"]) == (noise, method)}
        peer = {r["seed"]: r for r in records if (r["noise"], r["method"]) == (noise, "peer")}
        if not runs:
            continue
        gains = [runs[seed]["best"] - peer[seed]["best"] for seed in runs if seed in peer]
        cells = [_mean([run[name] for run in runs.values()]) for name in ("average", "best")]
        gain = _mean(gains, sign="+") if gains and method != "peer" else ""
        seconds = statistics.median(run["seconds"] for run in runs.values())
        lines.append(f"| {noise} | {method} | {len(runs)} | {' | '.join(cells)} | {gain} | {seconds:.0f} |")
    return "\n".join(lines)


def _mean(values: list[float], sign: str = "") -> str:
    mean = f"{statistics.fmean(values):{sign}.2f}"
    if len(values) < 2:
        return mean
    return f"{mean} ± {statistics.stdev(values) / len(values) ** 0.5:.2f}"


def pending(wanted: list[str], done: set[str]) -> list[str]:
    """Return the methods to train, in order. CAL needs a network of its first stage, even if that is done."""
    missing = {method for method in wanted if method not in done}
    return [method for method in METHODS if method in missing or ("CAL" in missing and method == FIRST_STAGE)]


def run_missing(
    images: Images, records: list[dict[str, Any]], store: Path, options: argparse.Namespace, started: float
) -> None:
    """Execute the runs that are not recorded, as long as there is time, and record them."""
    recipe, holdout = (SMOKE, SMOKE_HOLDOUT) if options.smoke else (RECIPE, HOLDOUT)
    here, longest = provenance(images.resources.torch_device.type), 0.0
    for seed, noise in product(options.seeds, options.noise):
        labels, guesses = images.noisy_labels(noise, seed), None
        done = {r["method"] for r in records if (r["noise"], r["seed"]) == (noise, seed)}
        rate = float((labels != images.resources.training[1][: images.rows]).mean())
        for method in pending(options.method, done):
            began = time.perf_counter()
            if began - started + longest > options.seconds:
                return
            found, classes = run_one(
                images, method, labels, seed=seed, recipe=recipe, holdout=holdout, guesses=guesses
            )
            longest = max(longest, time.perf_counter() - began)
            guesses = classes if method == FIRST_STAGE else guesses
            if method in done:
                continue
            record = {"noise": noise, "method": method, "seed": seed, "noise_rate": round(rate, 4), **found}
            records.append(record | {"provenance": here})
            print(record, flush=True)
            with store.open("a", encoding="utf-8") as file:
                file.write(json.dumps(records[-1], ensure_ascii=False) + "\n")


def main() -> None:
    """Execute the runs that are missing and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", help="folder of CIFAR-10; default: PEERLOSS_DATA")
    parser.add_argument("--noise", nargs="+", default=["worst", "instance:0.4"])
    parser.add_argument("--method", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--output", type=Path, default=Path("runs"))
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--device", help="default: a GPU if there is one")
    parser.add_argument("--smoke", action="store_true", help="few images and epochs, a narrow network")
    options = parser.parse_args()
    started = time.perf_counter()
    options.output.mkdir(parents=True, exist_ok=True)
    name = "row_noise_cifar_smoke" if options.smoke else "row_noise_cifar"  # else real runs would be skipped
    store = options.output / f"{name}.jsonl"
    text = store.read_text(encoding="utf-8") if store.exists() else ""
    records: list[dict[str, Any]] = [json.loads(line) for line in text.splitlines()]
    resources = SharedResources(options.data, options.device)
    images = Images(resources, *((SMOKE_ROWS, 4) if options.smoke else (None, 64)))
    run_missing(images, records, store, options, started)
    page = HEADER.format(
        versions="; ".join(dict.fromkeys(r["provenance"] for r in records)),
        seeds=", ".join(str(s) for s in sorted({r["seed"] for r in records})),
        minutes=sum(r["seconds"] for r in records) / 60.0,
        holdout=SMOKE_HOLDOUT if options.smoke else HOLDOUT,
        epochs=(SMOKE if options.smoke else RECIPE).epochs,
        table=make_table(records),
    )
    publish(page, options.output / f"{name}.md")


if __name__ == "__main__":
    main()
