"""Small tasks for the tests of the deep loop: images whose class is their colour, and sequences of tokens."""

import time
from itertools import count

import numpy as np
import torch
from torch import nn

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


def hold_after(model, steps):
    """Let the model wait before one more training step, so that its process can only be killed."""
    calls = count()

    def wait(module, _):
        if module.training and next(calls) >= steps:
            time.sleep(600)
            raise TimeoutError("nobody killed this process")

    model.register_forward_pre_hook(wait)
    return model


def first_targets(probs, y, **settings):
    """Return the targets of a sieve with these settings, if the teacher predicts ``probs``."""
    sieve = Sieve(start=0.0, **settings)
    kind = RefreshedTargets if sieve.refresh_every else FixedTargets
    return kind(sieve, y, epochs=1, predict=lambda **_: probs, mirrored=False).targets_for(0)


WORDS, LENGTH = 24, 8


def tokens(wrong=0.3, n=N, n_classes=3):
    """Return a mapping of token sequences, noisy and clean labels. A class has words of its own."""
    rng = np.random.default_rng(0)
    y = rng.integers(n_classes, size=n)
    words = WORDS // n_classes
    own = rng.random((n, LENGTH)) < 0.9
    ids = np.where(
        own, y[:, None] * words + rng.integers(words, size=(n, LENGTH)), rng.integers(WORDS, size=(n, LENGTH))
    )
    mask = np.arange(LENGTH) < rng.integers(4, LENGTH + 1, size=(n, 1))
    noisy = np.where(rng.random(n) < wrong, (y + rng.integers(1, n_classes, size=n)) % n_classes, y)
    return {"input_ids": ids * mask, "attention_mask": mask.astype(np.int64)}, noisy, y


class Encoder(nn.Module):
    """A transformer of one layer, which returns a mapping as the models of Hugging Face do."""

    def __init__(self, n_classes=3, width=16):
        super().__init__()
        self.words = nn.Embedding(WORDS, width)
        self.layer = nn.TransformerEncoderLayer(width, 2, 2 * width, dropout=0.1, batch_first=True)
        self.classifier = nn.Linear(width, n_classes)

    def forward(self, input_ids, attention_mask):
        """Return the logits of sequences (n, length)."""
        mask = attention_mask > 0
        hidden = self.layer(self.words(input_ids), src_key_padding_mask=~mask)
        share = (mask / mask.sum(dim=1, keepdim=True)).to(hidden.dtype)
        return {"logits": self.classifier((share[:, :, None] * hidden).sum(dim=1))}


def small_encoder(**options):
    torch.manual_seed(0)
    return Encoder(**options)
