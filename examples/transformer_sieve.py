"""A transformer on noisy labels of texts, trained with peer loss and a sieve.

The texts are short made-up messages about cooking or sports, and 30 % of the training labels are wrong. The
sieve keeps the labels that agree with the model's predictions and replaces the others. Accuracy is measured
on clean labels.

Run with ``python examples/transformer_sieve.py`` (needs ``pip install ".[hf]"``). It takes seconds and needs
no download: the encoder has random weights, and words are hashed to token numbers. To fine-tune a pretrained
model, pass its folder or its name::

    python examples/transformer_sieve.py --checkpoint distilbert-base-uncased
"""

from __future__ import annotations

import argparse
import zlib
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertConfig,
    BertForSequenceClassification,
)

from peerloss import NoiseModel, PeerLoss, PlainLoss, flip_labels
from peerloss.training import DeepRecipe, Sieve, predict_logits, train_deep

if TYPE_CHECKING:
    from torch import nn

TOPICS = (
    ["oven", "butter", "recipe", "garlic", "simmer", "flour", "taste", "spoon", "roast", "onion"],
    ["goal", "match", "coach", "league", "referee", "striker", "stadium", "tackle", "season", "final"],
)
COMMON = ["the", "a", "we", "it", "was", "very", "really", "today", "my", "with", "and", "then", "more"]
VOCABULARY, LENGTH = 1000, 12
Tokens = dict[str, torch.Tensor]


def make_texts(count: int, seed: int) -> tuple[list[str], np.ndarray]:
    """Return messages and their topics. About a quarter of the words belong to the topic."""
    rng = np.random.default_rng(seed)
    topics = rng.integers(2, size=count)
    texts = [
        " ".join(rng.choice(TOPICS[topic] if rng.random() < 0.25 else COMMON) for _ in range(LENGTH))
        for topic in topics
    ]
    return texts, topics


def hash_words(texts: list[str]) -> Tokens:
    """Return the words as numbers. The number 0 fills up short texts, and the mask excludes it."""
    ids = torch.zeros(len(texts), LENGTH, dtype=torch.long)
    for row, text in enumerate(texts):
        numbers = [1 + zlib.crc32(word.encode()) % (VOCABULARY - 1) for word in text.split()[:LENGTH]]
        ids[row, : len(numbers)] = torch.tensor(numbers)
    return {"input_ids": ids, "attention_mask": (ids > 0).long()}


def tokenize(texts: list[str], checkpoint: str | None) -> Tokens:
    """Return the inputs of the model by the names of its arguments."""
    if checkpoint is None:
        return hash_words(texts)
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    return dict(tokenizer(texts, padding=True, truncation=True, max_length=64, return_tensors="pt"))


def make_model(checkpoint: str | None) -> nn.Module:
    """Return a pretrained model, or a transformer of one layer with random weights."""
    if checkpoint is not None:
        pretrained: nn.Module = AutoModelForSequenceClassification.from_pretrained(checkpoint, num_labels=2)
        return pretrained
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=LENGTH,
        num_labels=2,
    )
    model: nn.Module = BertForSequenceClassification(config)
    return model


def main(checkpoint: str | None = None) -> None:
    """Train with cross entropy, and with peer loss and a sieve; print accuracies."""
    texts, clean = make_texts(1000, seed=1)
    noisy = flip_labels(clean, NoiseModel.uniform(2, 0.3), random_state=1)
    test_texts, test_labels = make_texts(1000, seed=2)
    X, test = tokenize(texts, checkpoint), tokenize(test_texts, checkpoint)
    # A pretrained model needs a far smaller learning rate and fewer epochs than random weights.
    plain = DeepRecipe(
        optimizer="adamw",
        weight_decay=0.01,
        batch_size=32,
        learning_rate=3e-3 if checkpoint is None else 3e-5,
        epochs=20 if checkpoint is None else 5,
    )
    sieve = replace(plain, alpha=((0.1, 0.0), (0.3, 1.0)), sieve=Sieve(start=0.3, refresh_every=1))
    trainings = {"cross entropy": (PlainLoss(), plain), "peer loss and sieve": (PeerLoss(), sieve)}
    print(f"labels that are right: {(noisy == clean).mean():.3f}")
    for name, (loss, recipe) in trainings.items():
        model = make_model(checkpoint)
        train_deep(model, loss, X, noisy, recipe=recipe)
        device = next(model.parameters()).device
        inputs = {key: tensor.to(device) for key, tensor in test.items()}
        predicted = predict_logits(model, inputs).argmax(dim=1).cpu().numpy()
        print(f"{name}: {(predicted == test_labels).mean():.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--checkpoint", help="folder or name of a pretrained model")
    main(parser.parse_args().checkpoint)
