"""Noisy token labels: a causal language model with peer loss, in a plain loop and in the Trainer.

Every token has one correct successor, and a third of the targets are replaced by token 0. Sequences have
different lengths. The label of padding is -100, which is ignored: it is not in the loss, not among the peers
and not in the prior, as the printed priors show.

Run with ``python examples/token_labels.py`` (needs ``pip install ".[hf]"``). It takes seconds.
"""

from __future__ import annotations

import tempfile
from typing import Any

import torch
from torch import Tensor, nn
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

from peerloss import AlphaSchedule, PeerLoss
from peerloss.integrations import flatten_tokens
from peerloss.integrations.huggingface import AlphaCallback, ComputeLoss

WORDS, LENGTH, ROWS, STEPS = 12, 10, 400, 60


def make_sequences(seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return tokens (B, T), each the successor of the one before, and noisy labels with -100 for padding."""
    generator = torch.Generator().manual_seed(seed)
    first = torch.randint(WORDS, (ROWS, 1), generator=generator)
    tokens = (first + 5 * torch.arange(LENGTH)) % WORDS
    labels = tokens.masked_fill(torch.rand(ROWS, LENGTH, generator=generator) < 1 / 3, 0)
    lengths = torch.randint(4, LENGTH + 1, (ROWS, 1), generator=generator)
    padding = torch.arange(LENGTH) >= lengths
    return tokens.masked_fill(padding, 0), labels.masked_fill(padding, -100)


def train_plain(loss: PeerLoss) -> nn.Module:
    """Train a bigram model in a plain loop."""
    torch.manual_seed(0)
    tokens, labels = make_sequences()
    model = nn.Sequential(nn.Embedding(WORDS, 16), nn.Linear(16, WORDS))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    schedule = AlphaSchedule(loss, [(0, 0.0), (STEPS / 2, 0.0), (STEPS, 0.8)])
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss(*flatten_tokens(model(tokens), labels, shift=True)).backward()  # token t predicts t + 1
        optimizer.step()
        schedule.step()
    return model.eval()


def train_in_trainer(loss: PeerLoss, folder: str) -> nn.Module:
    """Train a small GPT-2 with random weights in the Trainer."""
    torch.manual_seed(0)
    size = {"n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": LENGTH}
    model: nn.Module = GPT2LMHeadModel(GPT2Config(vocab_size=WORDS, bos_token_id=0, eos_token_id=0, **size))
    tokens, labels = make_sequences()
    rows: list[dict[str, Any]] = [{"input_ids": t, "labels": y} for t, y in zip(tokens, labels, strict=True)]
    arguments = TrainingArguments(
        output_dir=folder,
        max_steps=STEPS,
        per_device_train_batch_size=32,
        learning_rate=2e-2,
        use_cpu=True,
        report_to="none",
        save_strategy="no",
        disable_tqdm=True,
        seed=0,
    )
    schedule = AlphaSchedule(loss, [(0, 0.0), (STEPS / 2, 0.0), (STEPS, 0.8)])
    Trainer(
        model,
        arguments,
        train_dataset=rows,
        compute_loss_func=ComputeLoss(loss, shift=True),
        callbacks=[AlphaCallback(schedule)],
    ).train()
    return model.eval()


@torch.no_grad()
def successors_right(model: nn.Module) -> float:
    """Return the share of tokens whose correct successor the model predicts."""
    tokens = torch.arange(WORDS)[:, None]
    outputs = model(tokens)
    logits = outputs if isinstance(outputs, Tensor) else outputs.logits
    return float((logits[:, 0].argmax(dim=1) == (tokens[:, 0] + 5) % WORDS).float().mean())


def main() -> None:
    """Train both ways; print accuracies, and the counted and true priors."""
    _, labels = make_sequences()
    targets = labels[:, 1:]
    true = torch.bincount(targets[targets != -100], minlength=WORDS) / (targets != -100).sum()
    print(f"share of the most frequent label without padding: {true[0]:.4f}")
    loss = PeerLoss()
    right = successors_right(train_plain(loss))
    print(f"plain loop: {right:.2f} of the successors, prior[0] {loss.current_prior()[0]:.4f}")  # type: ignore[index]
    loss = PeerLoss()
    with tempfile.TemporaryDirectory() as folder:
        right = successors_right(train_in_trainer(loss, folder))
    print(f"Trainer: {right:.2f} of the successors, prior[0] {loss.current_prior()[0]:.4f}")  # type: ignore[index]


if __name__ == "__main__":
    main()
