"""CIFAR-10 with uniform noise and with human labels (CIFAR-10N): accuracy on the clean test labels, and time.

Run ``python benchmarks/cifar.py --data FOLDER --noise uniform:0.4 worst --method ce peer --seeds 0 1 2``.
Each run appends one line to a file (``--json``); runs found there are skipped. All runs share one process, so
compilation is paid once. 5,000 rows with their *noisy* labels are held out: the best epoch, and every setting
(``--set name=value``), is chosen by the peer score there. Test labels are used once a run, at its end.
``--data synthetic`` takes random images, for timing.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import json
import statistics
import sys
import time
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measure import provenance

from peerloss.losses import BaseLoss, DivergenceLoss, DMILoss, PeerLoss
from peerloss.models import resnet18, resnet34
from peerloss.noise import NoiseModel, flip_labels
from peerloss.training import DeepRecipe, Sieve, predict_logits, predict_mirrored, train_deep

HUMAN = ("worst", "aggregate", "random1", "random2", "random3")
METHODS = ("ce", "dmi", "tv", "js", "peer", "peer+sieve")
#: Losses that need a warm start: share of the epochs with cross entropy, then the highest rate.
WARM_STARTS = {"dmi": (2 / 3, 0.01), "tv": (1 / 3, 0.2), "js": (1 / 3, 0.2)}
ARCHITECTURES = {"resnet18": resnet18, "resnet34": resnet34}


@dataclass(frozen=True)
class Run:
    """What identifies a run; the same identity is never run twice into one file."""

    noise: str
    method: str
    seed: int
    architecture: str = "resnet18"
    holdout: int = 5000
    recipe: DeepRecipe = field(default_factory=DeepRecipe)


def make_recipe(noise: str, method: str, epochs: int | None, overrides: list[str]) -> DeepRecipe:
    """Return the recipe of a method; options of the command line come last."""
    peak = 4.0 if noise in HUMAN else 2.0  # of α
    recipe = DeepRecipe(compile=True, learning_rate=0.4)
    if method == "peer":
        recipe = replace(recipe, alpha=((0.35, 0.0), (1.0, peak)))
    elif method == "peer+sieve":
        recipe = replace(
            recipe,
            epochs=80,
            alpha=((0.35 * 0.375, 0.0), (0.375, peak)),
            sieve=Sieve(start=0.375),
        )
    if epochs is not None:
        recipe = replace(recipe, epochs=epochs)
    for override in overrides:
        name, _, text = override.partition("=")
        recipe = _set(recipe, name.split("."), ast.literal_eval(text))
    return recipe


def _set(record: Any, path: list[str], value: Any) -> Any:
    head, *rest = path
    if head not in {f.name for f in fields(record)}:
        raise SystemExit(f"--set: {type(record).__name__} has no {head!r}; it has {asdict(record)}.")
    inner = getattr(record, head)
    if rest and inner is None:
        return record  # --set sieve.start=… says nothing about methods without a sieve
    return replace(record, **{head: _set(inner, rest, value) if rest else value})


def load_images(data: str) -> Any:
    """Return images and clean labels, and a function from the name of human labels to them."""
    if data == "synthetic":
        random = np.random.default_rng(0)
        images = random.integers(256, size=(60_000, 32, 32, 3), dtype=np.uint8)
        labels = random.integers(10, size=60_000)
        return images[:50_000], labels[:50_000], images[50_000:], labels[50_000:], lambda _: labels[:50_000]
    try:
        from peerloss.datasets import _cifar as reader  # noqa: PLC0415 (see below)
    except ModuleNotFoundError:  # the package reads tables too and needs pandas; the images do not
        path = Path(__file__).parents[1] / "src/peerloss/datasets/_cifar.py"
        spec = importlib.util.spec_from_file_location("cifar_reader", path)
        assert spec is not None  # noqa: S101
        assert spec.loader is not None  # noqa: S101
        reader = importlib.util.module_from_spec(spec)
        sys.modules["cifar_reader"] = reader
        spec.loader.exec_module(reader)
    clean = reader.load_cifar10(data)
    return (
        clean.train_images,
        clean.train_labels,
        clean.test_images,
        clean.test_labels,
        lambda kind: reader.load_cifar10n(kind, data).train_labels,
    )


def noisy_labels(noise: str, seed: int, clean: Any, human: Any) -> Any:
    """Return the training labels of a run."""
    if noise in HUMAN:
        return human(noise)
    kind, _, rate = noise.partition(":")
    if kind != "uniform":
        raise SystemExit(f"--noise must be uniform:RATE or one of {', '.join(HUMAN)}; got {noise!r}.")
    return flip_labels(clean, NoiseModel.uniform(10, float(rate)), random_state=1000 + seed)


def execute(run: Run, model: torch.nn.Module, images: Any, device: str) -> dict[str, Any]:
    """Train and test once."""
    X, clean, X_test, y_test, human = images
    y = noisy_labels(run.noise, run.seed, clean, human)
    order = np.random.default_rng(2000 + run.seed).permutation(len(X))
    held, used = order[: run.holdout], order[run.holdout :]
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    started = time.perf_counter()
    history, weights = [], {}
    for loss, recipe in stages(run):
        result = train_deep(
            model, loss, X[used], y[used], recipe=recipe, validation=(X[held], y[held]), device=device
        )
        history += result.history
        weights = result.weights
    seconds = time.perf_counter() - started
    peak = torch.cuda.max_memory_allocated() / 2**30 if device == "cuda" else None
    inputs = torch.as_tensor(X_test).to(device)
    accuracy = {}
    for name, state in weights.items():
        model.load_state_dict(state)
        predicted = predict_logits(model, inputs).argmax(dim=1).cpu().numpy()
        accuracy[name] = float((predicted == y_test).mean())
        mirrored = predict_mirrored(model, inputs).argmax(dim=1).cpu().numpy()
        accuracy[f"{name}, mirrored too"] = float((mirrored == y_test).mean())
    taken = [record["seconds"] for record in history]
    return {
        "seconds": round(seconds, 2),
        "first_epoch": round(taken[0], 2),
        "median_epoch": round(statistics.median(taken), 3),
        "gib": None if peak is None else round(peak, 2),
        "test": accuracy,
        "best_epoch": result.best_epoch,
        "best_score": max(record["score"] for record in history),
        "last_score": history[-1]["score"],
        "noise_in_training": round(float((y != clean).mean()), 4),
        "history": [{name: round(value, 5) for name, value in record.items()} for record in history],
    }


def stages(run: Run) -> list[tuple[Any, DeepRecipe]]:
    """Return losses and recipes one after another: two for losses that need a warm start."""
    recipe = run.recipe
    if run.method not in WARM_STARTS:
        return [(PeerLoss() if run.method.startswith("peer") else BaseLoss(), recipe)]
    share, rate = WARM_STARTS[run.method]
    first = max(1, round(recipe.epochs * share))
    second = replace(recipe, epochs=max(1, recipe.epochs - first), learning_rate=rate, warm_up=0.0)
    losses = {
        "dmi": DMILoss(eps=0.0),
        "tv": DivergenceLoss("total_variation"),
        "js": DivergenceLoss("jensen_shannon"),
    }
    return [(BaseLoss(), replace(recipe, epochs=first)), (losses[run.method], second)]


def main() -> None:
    """Run what is asked for and not in the file yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True, help="folder of CIFAR-10, or 'synthetic'")
    parser.add_argument("--noise", nargs="+", default=["uniform:0.4"])
    parser.add_argument("--method", nargs="+", default=["ce", "peer"], choices=METHODS)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--holdout", type=int, default=5000)
    parser.add_argument("--architecture", default="resnet18", choices=ARCHITECTURES)
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="change the recipe")
    parser.add_argument("--json", type=Path, default=Path("runs/cifar.jsonl"))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    images = load_images(options.data)
    model = ARCHITECTURES[options.architecture]()
    options.json.parent.mkdir(parents=True, exist_ok=True)
    lines = options.json.read_text(encoding="utf-8").splitlines() if options.json.exists() else []
    done = [json.loads(line)["run"] for line in lines]
    for seed in options.seeds:
        for noise in options.noise:
            for method in options.method:
                recipe = replace(make_recipe(noise, method, options.epochs, options.set), seed=seed)
                run = Run(noise, method, seed, options.architecture, options.holdout, recipe)
                identity = json.loads(json.dumps(asdict(run)))
                if identity in done:
                    continue
                torch.manual_seed(seed)
                model.load_state_dict(ARCHITECTURES[options.architecture]().state_dict())
                outcome = execute(run, model, images, options.device)
                record = {"run": identity, "where": provenance(options.device), **outcome}
                with options.json.open("a", encoding="utf-8") as stream:
                    stream.write(json.dumps(record) + "\n")
                told = ", ".join(f"{name} {100 * value:.2f}" for name, value in outcome["test"].items())
                print(
                    f"{noise} {method} seed {seed}: test {told}; best epoch {outcome['best_epoch']} score "
                    f"{outcome['best_score']:.4f} last {outcome['last_score']:.4f}; {outcome['seconds']} s "
                    f"(first epoch {outcome['first_epoch']}, then {outcome['median_epoch']} each), "
                    f"{outcome['gib']} GiB",
                    flush=True,
                )


if __name__ == "__main__":
    main()
