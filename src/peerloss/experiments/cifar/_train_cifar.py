"""Train runs on images: noisy labels, one or two stages of training, one test at the end."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from peerloss._deprecation import warn_renamed
from peerloss._device import resolve_device
from peerloss._validation import check_choice
from peerloss._version import __version__
from peerloss.exceptions import InvalidInputError
from peerloss.experiments._image_noise import IMAGES, parse_noise
from peerloss.experiments._record import FORMAT, Record, commit, machine, versions
from peerloss.experiments.cifar._noisy_labels import draw_noise
from peerloss.losses import DMILoss, FDivergenceLoss, PeerLoss, PlainLoss
from peerloss.models import Ensemble, pooled_resnet, resnet18, resnet34
from peerloss.training import predict_logits, predict_mirrored, train_deep

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from torch import nn

    from peerloss._validation import IntArray
    from peerloss.datasets.cifar_files import CifarFiles, Rows
    from peerloss.experiments.cifar._cifar_experiment import CifarRun

LOSSES: dict[str, Callable[[], nn.Module]] = {
    "cross_entropy": PlainLoss,
    "peer": PeerLoss,
    "dmi": lambda: DMILoss(eps=0.0),  # log |det J| itself, as in the published results
    "total_variation": lambda: FDivergenceLoss("total_variation"),
    "jensen_shannon": lambda: FDivergenceLoss("jensen_shannon"),
}
NETWORKS = {"pooled_resnet": pooled_resnet, "resnet18": resnet18, "resnet34": resnet34}
#: Suffix of the names of accuracies for which the outputs for an image and its mirror image are averaged.
MIRRORED = ", mirrored too"


@dataclass
class SharedResources:
    """The images, read once, and one model of each kind, so that it is compiled once.

    Everything is loaded when a run needs it. Experiments in one process can use the same object.

    Parameters
    ----------
    data_dir
        Folder of the images, as in :func:`~peerloss.datasets.load_cifar10`.
    device
        ``None`` uses a GPU if there is one.
    checkpoint_every
        Epochs between checkpoints.
    progress
        Whether to show a progress bar for each run.
    images
        ``"cifar10"`` or ``"cifar100"``.
    """

    data_dir: str | Path | None = None
    device: str | torch.device | None = None
    checkpoint_every: int = 1
    progress: bool = False
    images: str = "cifar10"
    _noisy_rows: dict[tuple[str, int | None], tuple[IntArray, IntArray]] = field(
        default_factory=dict, init=False, repr=False
    )
    _models: dict[tuple[str, int, int], nn.Module] = field(default_factory=dict, init=False, repr=False)

    def load(self, *, test: bool) -> None:
        """Check the device and read the training images now, and with ``test`` the test images."""
        _ = self.torch_device, self.training, test and self.test

    @property
    def files(self) -> CifarFiles:
        """The files of the images."""
        return IMAGES[check_choice(self.images, "images", tuple(IMAGES))]

    @cached_property
    def torch_device(self) -> torch.device:
        """The device to train on, after a check that it works."""
        return resolve_device(self.device)

    @cached_property
    def training(self) -> Rows:
        """Training images and clean labels."""
        return self.files.read_training(self.data_dir)

    @cached_property
    def test(self) -> Rows:
        """Test images and labels. Closed runs do not read them."""
        return self.files.read_test(self.data_dir)

    def noisy_rows(self, run: CifarRun) -> tuple[IntArray, IntArray]:
        """Return the training rows of a run and their noisy labels; synthetic noise depends on its seed."""
        is_human = run.noise in self.files.human_labels
        key = (run.noise, None if is_human else run.seed)
        if key not in self._noisy_rows:
            clean = self.training[1]
            if is_human:
                labels = self.files.read_human_labels(run.noise, clean, self.data_dir)
                drawn = np.arange(len(clean)), labels
            else:
                drawn = draw_noise(parse_noise(run.noise), self.training, run.seed, images=self.images)
            self._noisy_rows[key] = drawn
        rows, labels = self._noisy_rows[key]
        return rows[: run.rows], labels[: run.rows]

    def noisy_labels(self, run: CifarRun) -> IntArray:
        """Return the labels of :meth:`noisy_rows`, under a deprecated name."""
        warn_renamed("SharedResources.noisy_labels", "SharedResources.noisy_rows")
        return self.noisy_rows(run)[1]

    def network(self, run: CifarRun) -> nn.Module:
        """Return the network of a run, or its members, with initial weights that depend on its seed."""
        kind = (run.architecture, run.width, run.members)
        torch.manual_seed(run.seed)
        members = [
            NETWORKS[run.architecture](len(self.files.classes), width=run.width) for _ in range(run.members)
        ]
        fresh = Ensemble(members) if run.members > 1 else members[0]
        self._models.setdefault(kind, fresh).load_state_dict(fresh.state_dict())
        return self._models[kind]


def train_cifar(run: CifarRun, resources: SharedResources, checkpoint: Path) -> dict[str, Any]:
    """Train and test once, from the checkpoints of this run if there are any; return results for a record."""
    device = resources.torch_device
    test = None if run.closed else resources.test  # an unreadable file fails now, not after the training
    images, clean = resources.training
    rows, noisy = resources.noisy_rows(run)
    if run.holdout >= len(rows):
        raise InvalidInputError(
            f"`holdout` must be less than the number of images, {len(rows)}; got {run.holdout}. "
            "Hold out fewer, or use more `rows`."
        )
    X = images[rows]
    order = np.random.default_rng(2000 + run.seed).permutation(len(rows))
    held, used = order[: run.holdout], order[run.holdout :]
    labels = noisy.copy()
    labels[held] = -1
    trained = np.concatenate((used, held)) if run.held_out_images else used
    model = resources.network(run)
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
            checkpoint_every=resources.checkpoint_every,
            progress=resources.progress,
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
        "noise_in_training": round(float((noisy != clean[rows]).mean()), 4),
        # A resumed run was started before this clock; the history has the duration of every epoch.
        "seconds": round(max(seconds, sum(epochs)), 2),
        "median_epoch": round(statistics.median(epochs), 3),
        "memory_gib": None if memory is None else round(memory, 2),
        "history": [{name: round(value, 5) for name, value in record.items()} for record in history],
    }


def checkpoint_file(stem: Path, stage: int) -> Path:
    """Return the path of the checkpoint of a stage."""
    return stem.with_name(f"{stem.name}-{stage}.pt")


def make_record(run: CifarRun, results: dict[str, Any], device: torch.device) -> Record:
    """Return the record of a run: its settings, its results, and where it was trained."""
    return Record(
        {
            "format": FORMAT,
            "key": run.key,
            **{name: getattr(run, name) for name in ("experiment", "noise", "method", "seed")},
            "run": run.settings(),
            **results,
            "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU",
            "versions": versions() | {"peerloss": __version__},  # a checkout may not be installed
            "machine": machine(),
            "commit": commit(),
            "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        }
    )


def _accuracies(
    model: nn.Module, weights: dict[str, Any], images: Any, labels: IntArray, device: torch.device
) -> dict[str, float]:
    """Return the accuracy of each set of weights, on images alone and with their mirror images."""
    inputs = torch.as_tensor(images).to(device)
    accuracies = {}
    for name, state in weights.items():
        model.load_state_dict(state)
        for label, predict in ((name, predict_logits), (f"{name}{MIRRORED}", predict_mirrored)):
            predicted = predict(model, inputs).argmax(dim=1).cpu().numpy()
            accuracies[label] = float((predicted == labels).mean())
    return accuracies
