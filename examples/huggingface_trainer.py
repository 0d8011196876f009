"""Peer loss in the Hugging Face Trainer: one argument for the loss, one callback for α.

A small transformer with random weights reads sequences of eight tokens. Sequences of class 1 have more tokens
from the upper half of the vocabulary. Half of the labels of class 1 and a tenth of class 0 are flipped. Cross
entropy, the default of the Trainer, learns the threshold of the noisy labels; peer loss does not. Accuracy is
measured on clean labels.

Run with ``python examples/huggingface_trainer.py`` (needs ``pip install ".[hf]"``). It takes seconds.
"""

from __future__ import annotations

import tempfile
from typing import Any

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

from peerloss import AlphaSchedule, NoiseModel, PeerLoss, flip_labels
from peerloss.integrations.huggingface import AlphaCallback, ComputeLoss

WORDS, LENGTH, STEPS = 20, 8, 200


def make_rows(count: int, seed: int, *, noisy: bool) -> list[dict[str, Any]]:
    """Return token sequences with their labels."""
    generator = torch.Generator().manual_seed(seed)
    clean = torch.randint(2, (count,), generator=generator)
    upper = torch.rand(count, LENGTH, generator=generator) < 0.2 + 0.6 * clean[:, None]
    tokens = torch.randint(WORDS // 2, (count, LENGTH), generator=generator) + upper * (WORDS // 2)
    labels = clean.numpy()
    if noisy:
        labels = flip_labels(labels, NoiseModel.binary(e_neg=0.1, e_pos=0.5), random_state=seed)
    return [{"input_ids": row, "labels": int(label)} for row, label in zip(tokens, labels, strict=True)]


def make_model() -> BertForSequenceClassification:
    """Return a transformer of one layer with random weights."""
    torch.manual_seed(0)
    return BertForSequenceClassification(
        BertConfig(
            vocab_size=WORDS,
            hidden_size=32,
            intermediate_size=32,
            num_hidden_layers=1,
            num_attention_heads=2,
            hidden_dropout_prob=0.0,
            num_labels=2,
        )
    )


def train(folder: str, **options: Any) -> Trainer:
    """Train with the loss in ``options``, or with the default loss of the model."""
    arguments = TrainingArguments(
        output_dir=folder,
        max_steps=STEPS,
        per_device_train_batch_size=16,
        gradient_accumulation_steps=2,
        learning_rate=3e-3,
        use_cpu=True,
        report_to="none",
        save_strategy="no",
        disable_tqdm=True,
        seed=0,
    )
    trainer = Trainer(make_model(), arguments, train_dataset=make_rows(1000, 1, noisy=True), **options)
    trainer.train()
    return trainer


def clean_accuracy(trainer: Trainer) -> float:
    """Return accuracy on new rows with clean labels."""
    predictions = trainer.predict(make_rows(1000, 2, noisy=False))
    return float((predictions.predictions.argmax(axis=1) == predictions.label_ids).mean())


def main() -> None:
    """Train with both losses and print accuracies."""
    loss = PeerLoss()
    schedule = AlphaSchedule(loss, [(0, 0.0), (STEPS / 3, 0.0), (STEPS, 1.0)])
    with tempfile.TemporaryDirectory() as folder:
        plain = clean_accuracy(train(folder))
        peer = train(folder, compute_loss_func=ComputeLoss(loss), callbacks=[AlphaCallback(schedule)])
        print(
            f"cross entropy {plain:.3f}, peer loss {clean_accuracy(peer):.3f}, α at the end {loss.alpha:.2f}"
        )


if __name__ == "__main__":
    main()
