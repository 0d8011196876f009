"""A small task for the tests of the deep loop: a few small images whose class is their colour."""

import numpy as np
import torch

from peerloss.models import ResNet
from peerloss.training import Augment, DeepRecipe, Sieve, predict_logits
from peerloss.training.deep._sieve_targets import FixedTargets, RefreshedTargets

N = 240
RECIPE = DeepRecipe(epochs=3, batch_size=32, learning_rate=0.05, alpha=((0.3, 0.0), (1.0, 1.0)), average=0.9)
REFRESHING = Sieve(start=0.5, refresh_every=1, balance=True, augment=Augment(cutout=2, share=0.5))


def images(noise=0.3):
    """Return images of three colours, noisy labels and clean labels."""
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=N)
    X = rng.integers(120, size=(N, 8, 8, 3), dtype=np.uint8)
    X[np.arange(N), :, :, y] += 60
    return X, np.where(rng.random(N) < noise, rng.integers(3, size=N), y), y


def small_net(seed=0):
    torch.manual_seed(seed)
    return ResNet((1, 1), n_classes=3, width=8)


def accuracy(model, X, y):
    return float((predict_logits(model.eval(), torch.as_tensor(X)).argmax(dim=1).numpy() == y).mean())


def have_equal_tensors(first, second):
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def first_targets(probs, y, **settings):
    """Return the targets of a sieve with these settings, if the teacher predicts ``probs``."""
    sieve = Sieve(start=0.0, **settings)
    kind = RefreshedTargets if sieve.refresh_every else FixedTargets
    return kind(sieve, y, epochs=1, predict=lambda **_: probs, mirrored=False).targets_for(0)
