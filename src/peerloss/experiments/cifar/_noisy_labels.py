"""Synthetic noise on the training labels of images."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from peerloss.datasets.cifar100 import CIFAR100_SUPERCLASSES
from peerloss.experiments._image_noise import IMAGES
from peerloss.noise import InstanceNoise, NoiseModel, flip_labels

if TYPE_CHECKING:
    from peerloss._validation import FloatArray, IntArray
    from peerloss.datasets.cifar_files import Rows
    from peerloss.experiments._image_noise import NoiseName

#: Asymmetric noise of the images: class → the class it is mistaken for. Other classes keep their labels. In
#: CIFAR-100 it is the next class of the superclass.
MISTAKEN_FOR = {
    "cifar10": {"truck": "automobile", "bird": "airplane", "deer": "horse", "cat": "dog", "dog": "cat"},
    "cifar100": {
        name: names[(place + 1) % len(names)]
        for names in CIFAR100_SUPERCLASSES.values()
        for place, name in enumerate(names)
    },
}


def draw_noise(
    noise: NoiseName, training: Rows, seed: int, *, images: str = "cifar10"
) -> tuple[IntArray, IntArray]:
    """Return which training rows are used, in increasing order, and their noisy labels.

    Only noise with an imbalance leaves out rows. Asymmetric noise follows Patrini et al. (2017), noise that
    depends on the image Xia et al. (2020).

    Parameters
    ----------
    noise
        A synthetic noise.
    training
        All training images and their clean labels.
    seed
        Seed of the run. Runs with the same seed and noise have the same labels.
    images
        Name of the images, which determines the classes.

    References
    ----------
    Patrini, Rozza, Menon, Nock and Qu, *Making Deep Neural Networks Robust to Label Noise: a Loss Correction
    Approach*, CVPR 2017. Xia et al., *Part-dependent Label Noise: Towards Instance-dependent Label Noise*,
    NeurIPS 2020.
    """
    pixels, clean = training
    k = len(IMAGES[images].classes)
    # A generator, not a seed: the published tables were made with the labels that it draws.
    rng = np.random.default_rng(1000 + seed)
    rows = np.arange(len(clean)) if noise.imbalance == 1.0 else _long_tail(clean, k, noise.imbalance, rng)
    labels = clean[rows]
    model: NoiseModel | InstanceNoise
    if noise.kind == "asymmetric":
        model = NoiseModel(_asymmetric(images, noise.rate))
    elif noise.kind == "instance":
        model = InstanceNoise.from_features(
            pixels[rows].reshape(len(rows), -1),
            labels,
            rate=noise.rate,
            n_classes=k,
            standardise=False,
            random_state=rng,
        )
    else:
        model = NoiseModel.uniform(k, noise.rate)
    return rows, np.asarray(flip_labels(labels, model, random_state=rng))


def _asymmetric(images: str, rate: float) -> FloatArray:
    """Return T with probability ``rate`` from each class to the one it is mistaken for."""
    code = {name: number for number, name in enumerate(IMAGES[images].classes)}
    matrix = np.eye(len(code))
    for source, target in MISTAKEN_FOR[images].items():
        matrix[code[source], code[source]] -= rate
        matrix[code[source], code[target]] += rate
    return matrix


def _long_tail(clean: IntArray, k: int, imbalance: float, rng: np.random.Generator) -> IntArray:
    """Return the rows of a long tail: class c keeps a share of ``imbalance ** (−c / (k − 1))``."""
    kept = []
    for c in range(k):
        rows = rng.permutation(np.flatnonzero(clean == c))
        kept.append(rows[: round(len(rows) * imbalance ** (-c / (k - 1)))])
    return np.sort(np.concatenate(kept))
