"""Synthetic noise on the labels of images."""

import hashlib

import numpy as np
import pytest

from peerloss.datasets.cifar10 import CIFAR10_CLASSES
from peerloss.datasets.cifar100 import CIFAR100_CLASSES, CIFAR100_SUPERCLASSES
from peerloss.experiments._image_noise import parse_noise
from peerloss.experiments.cifar._noisy_labels import draw_noise

PER_CLASS = 300


@pytest.fixture(scope="module")
def training():
    """Images of noise, with equally frequent labels in random order."""
    rng = np.random.default_rng(0)
    clean = rng.permutation(np.repeat(np.arange(10), PER_CLASS))
    return rng.integers(256, size=(len(clean), 4, 4, 3), dtype=np.uint8), clean


def transitions(clean, noisy):
    """Return the share of each noisy label in each class."""
    counts = np.zeros((10, 10))
    np.add.at(counts, (clean, noisy), 1)
    return counts / counts.sum(axis=1, keepdims=True)


def test_labels_of_published_tables_never_change():
    """Uniform noise draws the labels that the published results were trained on."""
    clean = np.tile(np.arange(10), 500)
    images = np.zeros((len(clean), 1, 1, 3), dtype=np.uint8)
    rows, noisy = draw_noise(parse_noise("uniform:0.4"), (images, clean), seed=2)
    np.testing.assert_array_equal(rows, np.arange(len(clean)))
    assert hashlib.sha256(noisy.astype("<i8").tobytes()).hexdigest()[:12] == "8ffc676818d1"


def test_asymmetric_noise_confuses_similar_classes(training):
    """Five classes flip to one other class each, with the rate of the name; the others are clean."""
    rows, noisy = draw_noise(parse_noise("asymmetric:0.4"), training, seed=0)
    shares = transitions(training[1][rows], noisy)
    flips = {
        (CIFAR10_CLASSES[i], CIFAR10_CLASSES[j]): shares[i, j] for i, j in np.argwhere(shares > 0) if i != j
    }
    assert set(flips) == {
        ("bird", "airplane"),
        ("cat", "dog"),
        ("deer", "horse"),
        ("dog", "cat"),
        ("truck", "automobile"),
    }
    assert list(flips.values()) == pytest.approx([0.4] * 5, abs=5 * (0.24 / PER_CLASS) ** 0.5)


def test_asymmetric_noise_of_100_classes_stays_in_the_superclass():
    """Each class flips to the next of its five, and the last one to the first."""
    clean = np.repeat(np.arange(100), 50)
    images = np.zeros((len(clean), 1, 1, 3), dtype=np.uint8)
    _, noisy = draw_noise(parse_noise("asymmetric:0.4"), (images, clean), seed=0, images="cifar100")
    codes = {name: code for code, name in enumerate(CIFAR100_CLASSES)}
    for names in CIFAR100_SUPERCLASSES.values():
        for name, following in zip(names, (*names[1:], names[0]), strict=True):
            found = noisy[clean == codes[name]]
            assert set(found) == {codes[name], codes[following]}
            assert (found != codes[name]).mean() == pytest.approx(0.4, abs=5 * (0.24 / 50) ** 0.5)


@pytest.mark.parametrize("name", ["uniform:0.4", "instance:0.4"])
def test_noise_of_100_classes_reaches_all_of_them(name):
    """The number of classes is that of the images."""
    rng = np.random.default_rng(0)
    clean = np.repeat(np.arange(100), 30)
    images = rng.integers(256, size=(len(clean), 3, 3, 3), dtype=np.uint8)
    _, noisy = draw_noise(parse_noise(name), (images, clean), seed=0, images="cifar100")
    assert set(noisy[noisy != clean]) > set(range(0, 100, 3))
    assert (noisy != clean).mean() == pytest.approx(0.4, abs=0.05)


def test_noise_of_an_image_depends_on_its_pixels(training):
    """The mean rate is that of the name, and equal images of a class that flip become the same class."""
    images, clean = training
    repeated = np.concatenate([images[:50]] * 40), np.concatenate([clean[:50]] * 40)
    rows, noisy = draw_noise(parse_noise("instance:0.4"), repeated, seed=0)
    wrong = noisy != repeated[1][rows]
    assert wrong.mean() == pytest.approx(0.4, abs=0.05)
    by_image = noisy.reshape(40, 50).T
    assert {len(set(labels) - {own}) for labels, own in zip(by_image, clean[:50], strict=True)} == {1}


def test_a_long_tail_has_an_exponential_profile(training):
    """Class c keeps 10^(−c/9) of its rows, which differ between seeds; its labels are then flipped."""
    clean = training[1]
    rows, noisy = draw_noise(parse_noise("long_tail:10:0.2"), training, seed=0)
    expected = [round(PER_CLASS * 10 ** (-c / 9)) for c in range(10)]
    assert np.bincount(clean[rows]).tolist() == expected
    assert (expected[0], expected[-1]) == (300, 30)
    assert (np.diff(rows) > 0).all()
    assert (noisy != clean[rows]).mean() == pytest.approx(0.2, abs=5 * (0.16 / len(rows)) ** 0.5)
    others, _ = draw_noise(parse_noise("long_tail:10:0.2"), training, seed=1)
    assert not np.array_equal(others, rows)


@pytest.mark.parametrize("name", ["uniform:0.4", "asymmetric:0.4", "instance:0.4", "long_tail:10:0.2"])
def test_noise_depends_on_the_seed_alone(name, training):
    """The same seed repeats the labels, another one has others; the clean labels are not changed."""
    before = training[1].copy()
    first, again, other = (draw_noise(parse_noise(name), training, seed) for seed in (3, 3, 4))
    np.testing.assert_array_equal(first[1], again[1])
    assert not np.array_equal(first[1], other[1])
    np.testing.assert_array_equal(training[1], before)
