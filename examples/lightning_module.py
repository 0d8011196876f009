"""Peer loss in Lightning: the loss is a submodule; a callback changes α, logs it and saves it.

A tenth of the labels of class 0 and two fifths of class 1 are flipped. Accuracy is measured on clean labels.

Run with ``python examples/lightning_module.py`` (needs ``pip install ".[lightning]"``). It takes
seconds.
"""

from __future__ import annotations

import tempfile

import torch
from lightning.pytorch import LightningModule, Trainer
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from peerloss import AlphaSchedule, NoiseModel, PeerLoss, PlainLoss, flip_labels
from peerloss.integrations.lightning import AlphaCallback

EPOCHS = 12


class Classifier(LightningModule):
    """A module with its loss as a submodule, so that the counted prior is saved with it."""

    def __init__(self, loss: nn.Module) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 2))
        self.loss = loss

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:  # noqa: ARG002, D102
        X, y = batch
        return self.loss(self.net(X), y)  # type: ignore[no-any-return]

    def configure_optimizers(self) -> torch.optim.Optimizer:  # noqa: D102
        return torch.optim.Adam(self.parameters(), lr=0.01)


def make_data(rows: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return features, noisy labels and clean labels of two overlapping classes."""
    generator = torch.Generator().manual_seed(seed)
    clean = torch.randint(2, (rows,), generator=generator)
    X = torch.randn(rows, 5, generator=generator) + 0.8 * (2 * clean[:, None] - 1)
    noisy = flip_labels(clean.numpy(), NoiseModel.binary(e_neg=0.1, e_pos=0.4), random_state=seed)
    return X, torch.as_tensor(noisy), clean


def train(loss: nn.Module, folder: str) -> Classifier:
    """Train a classifier; for peer loss α rises during training."""
    torch.manual_seed(0)
    model = Classifier(loss)
    callbacks = []
    if isinstance(loss, PeerLoss):
        callbacks.append(AlphaCallback(AlphaSchedule(loss, [(0, 0.0), (3, 0.0), (8, 1.0)]), every="epoch"))
    X, noisy, _ = make_data(2000, seed=1)
    loader = DataLoader(TensorDataset(X, noisy), batch_size=100, shuffle=True)
    trainer = Trainer(
        accelerator="cpu",
        max_epochs=EPOCHS,
        callbacks=callbacks,
        default_root_dir=folder,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, loader)
    return model


@torch.no_grad()
def clean_accuracy(model: Classifier) -> float:
    """Return accuracy on new rows with clean labels."""
    X, _, clean = make_data(10_000, seed=2)
    return float((model.eval().net(X).argmax(dim=1) == clean).float().mean())


def main() -> None:
    """Train with both losses and print accuracies."""
    with tempfile.TemporaryDirectory() as folder:
        plain, peer = (clean_accuracy(train(loss, folder)) for loss in (PlainLoss(), PeerLoss()))
    print(f"cross entropy {plain:.3f}, peer loss {peer:.3f}")


if __name__ == "__main__":
    main()
