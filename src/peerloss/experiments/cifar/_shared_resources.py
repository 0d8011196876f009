"""What runs on images share: the images, the device and the compiled networks."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch

from peerloss._device import resolve_device
from peerloss.datasets.cifar10 import HUMAN_LABELS, read_human_labels, read_test, read_training
from peerloss.models import resnet18, resnet34
from peerloss.noise import NoiseModel, flip_labels

if TYPE_CHECKING:
    from pathlib import Path

    from torch import nn

    from peerloss._validation import IntArray
    from peerloss.datasets.cifar10 import Rows
    from peerloss.experiments.cifar._cifar_experiment import CifarRun

NETWORKS = {"resnet18": resnet18, "resnet34": resnet34}
#: On a fast GPU an epoch takes half a second and its checkpoint a tenth, so this interval costs little.
CHECKPOINT_EVERY = 10


@dataclass
class SharedResources:
    """The images, read once, and one network of each kind, so that it is compiled once.

    Everything is loaded when a run needs it. Experiments in one process can use the same object.

    Parameters
    ----------
    data_dir
        Folder of CIFAR-10, as in :func:`~peerloss.datasets.load_cifar10`.
    device
        ``None`` uses a GPU if there is one.
    checkpoint_every
        Epochs between checkpoints.
    progress
        Whether to show a progress bar for each run.
    """

    data_dir: str | Path | None = None
    device: str | torch.device | None = None
    checkpoint_every: int = CHECKPOINT_EVERY
    progress: bool = False
    _labels: dict[str, IntArray] = field(default_factory=dict, init=False, repr=False)
    _networks: dict[tuple[str, int], nn.Module] = field(default_factory=dict, init=False, repr=False)

    def load(self, *, test: bool) -> None:
        """Check the device and read the images now, those for the ``test`` too, instead of later."""
        _ = self.torch_device, self.training, test and self.test

    @cached_property
    def torch_device(self) -> torch.device:
        """The device to train on, after a check that it works."""
        return resolve_device(self.device)

    @cached_property
    def training(self) -> Rows:
        """Training images and clean labels."""
        return read_training(self.data_dir)

    @cached_property
    def test(self) -> Rows:
        """Test images and labels. Closed runs do not read them."""
        return read_test(self.data_dir)

    def noisy_labels(self, run: CifarRun) -> IntArray:
        """Return the training labels of a run; synthetic noise depends on its seed."""
        clean_labels = self.training[1]
        if run.noise not in HUMAN_LABELS:
            noise = NoiseModel.uniform(10, float(run.noise.partition(":")[2]))
            # A generator, not a seed: the published tables were made with the labels that it draws.
            rng = np.random.default_rng(1000 + run.seed)
            return np.asarray(flip_labels(clean_labels, noise, random_state=rng))
        if run.noise not in self._labels:
            self._labels[run.noise] = read_human_labels(run.noise, clean_labels, self.data_dir)
        return self._labels[run.noise]

    def network(self, run: CifarRun) -> nn.Module:
        """Return the network of a run with its initial weights, which depend on its seed."""
        kind = (run.architecture, run.width)
        torch.manual_seed(run.seed)
        fresh = NETWORKS[run.architecture](width=run.width)
        self._networks.setdefault(kind, fresh).load_state_dict(fresh.state_dict())
        return self._networks[kind]
