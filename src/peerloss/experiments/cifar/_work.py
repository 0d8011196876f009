"""One run: labels with noise, training in one or two stages, the test set once at the end."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from peerloss.datasets.cifar10 import HUMAN_LABELS, read_human_labels, read_test, read_training
from peerloss.exceptions import InvalidInputError
from peerloss.losses import DMILoss, FDivergenceLoss, PeerLoss, PlainLoss
from peerloss.models import resnet18, resnet34
from peerloss.noise import NoiseModel, flip_labels
from peerloss.training import predict_logits, predict_mirrored, train_deep

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from torch import nn

    from peerloss._validation import IntArray
    from peerloss.datasets.cifar10 import Rows
    from peerloss.experiments.cifar._spec import CifarRun

LOSSES: dict[str, Callable[[], nn.Module]] = {
    "cross_entropy": PlainLoss,
    "peer": PeerLoss,
    "dmi": lambda: DMILoss(eps=0.0),  # log |det J| itself, as in the published results
    "total_variation": lambda: FDivergenceLoss("total_variation"),
    "jensen_shannon": lambda: FDivergenceLoss("jensen_shannon"),
}
#: Ends the name of figures for which each image was also seen mirrored.
MIRRORED = ", mirrored too"
NETWORKS = {"resnet18": resnet18, "resnet34": resnet34}


@dataclass
class Workshop:
    """What runs share: the images, read once, and one network of a kind, so that it is compiled once."""

    data_dir: str | Path | None
    device: torch.device
    _labels: dict[str, IntArray] = field(default_factory=dict)
    _networks: dict[tuple[str, int], nn.Module] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.images, self.clean_labels = read_training(self.data_dir)

    @cached_property
    def test(self) -> Rows:
        """Test images and labels, read when a run asks for them; a closed one does not."""
        return read_test(self.data_dir)

    def noisy_labels(self, run: CifarRun) -> IntArray:
        """Return the training labels of a run; those with made noise follow from its seed."""
        if run.noise not in HUMAN_LABELS:
            noise = NoiseModel.uniform(10, float(run.noise.partition(":")[2]))
            # A generator, not a seed: the published tables were made with the labels that it draws.
            rng = np.random.default_rng(1000 + run.seed)
            return np.asarray(flip_labels(self.clean_labels, noise, random_state=rng))
        if run.noise not in self._labels:
            self._labels[run.noise] = read_human_labels(run.noise, self.clean_labels, self.data_dir)
        return self._labels[run.noise]

    def network(self, run: CifarRun) -> nn.Module:
        """Return the network of a run with the weights it starts from, which follow from its seed."""
        kind = (run.architecture, run.width)
        torch.manual_seed(run.seed)
        fresh = NETWORKS[run.architecture](width=run.width)
        self._networks.setdefault(kind, fresh).load_state_dict(fresh.state_dict())
        return self._networks[kind]


def execute(
    run: CifarRun, workshop: Workshop, checkpoint: Path, *, checkpoint_every: int, progress: bool = False
) -> dict[str, Any]:
    """Train and test once; where checkpoints of this run are found, go on from them.

    Returns
    -------
    Figures for a record. ``test`` is accuracy on clean labels by name of the weights
    (:class:`~peerloss.training.DeepResult`), each also as the mean over the image and its mirror image; a
    closed run has none. ``held_out`` is the same on the held-out noisy labels. Then scores, seconds, the
    history.
    """
    device = workshop.device
    test = None if run.closed else workshop.test  # a broken file is told now, not after the training
    X, noisy = workshop.images[: run.rows], workshop.noisy_labels(run)[: run.rows]
    rows = len(X)
    if run.holdout >= rows:
        raise InvalidInputError(
            f"`holdout` must be less than the number of images, {rows}; got {run.holdout}. "
            "Hold out fewer, or take more `rows`."
        )
    order = np.random.default_rng(2000 + run.seed).permutation(rows)
    held, used = order[: run.holdout], order[run.holdout :]
    labels = noisy.copy()
    labels[held] = -1
    trained = np.concatenate((used, held)) if run.held_out_images else used
    model = workshop.network(run)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    started = time.perf_counter()
    history = []
    for stage, (loss, recipe) in enumerate(run.stages()):
        result = train_deep(
            model,
            LOSSES[loss](),
            X[trained],
            labels[trained],
            recipe=replace(recipe, compile=recipe.compile and device.type == "cuda"),
            validation=(X[held], noisy[held]),
            device=device,
            checkpoint=checkpoint_file(checkpoint, stage),
            checkpoint_every=checkpoint_every,
            progress=progress,
        )
        history += result.history
    seconds = time.perf_counter() - started
    memory = torch.cuda.max_memory_allocated(device) / 2**30 if device.type == "cuda" else None
    sets = {} if test is None else {"test": (test[0][: run.rows], test[1][: run.rows])}
    sets["held_out"] = (X[held], noisy[held])
    epochs = [record["seconds"] for record in history]
    return {
        **{name: _accuracies(model, result.weights, *images, device) for name, images in sets.items()},
        "best_epoch": result.best_epoch,
        "last_score": history[-1]["score"],
        "best_score": max(record["score"] for record in result.history),
        "noise_in_training": round(float((noisy != workshop.clean_labels[:rows]).mean()), 4),
        # A resumed run began before this clock did; its epochs know how long they took.
        "seconds": round(max(seconds, sum(epochs)), 2),
        "median_epoch": round(statistics.median(epochs), 3),
        "memory_gib": None if memory is None else round(memory, 2),
        "history": [{name: round(value, 5) for name, value in record.items()} for record in history],
    }


def checkpoint_file(stem: Path, stage: int) -> Path:
    """Return the file of a stage's checkpoint."""
    return stem.with_name(f"{stem.name}-{stage}.pt")


def _accuracies(
    model: nn.Module, weights: dict[str, Any], images: Any, labels: IntArray, device: torch.device
) -> dict[str, float]:
    """Return the accuracy of each set of weights, as it is and with each image also seen mirrored."""
    inputs = torch.as_tensor(images).to(device)
    accuracies = {}
    for name, state in weights.items():
        model.load_state_dict(state)
        outputs = {name: predict_logits, f"{name}{MIRRORED}": predict_mirrored}
        for label, predict in outputs.items():
            predicted = predict(model, inputs).argmax(dim=1).cpu().numpy()
            accuracies[label] = float((predicted == labels).mean())
    return accuracies
