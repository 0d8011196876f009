"""Peer loss in a plain PyTorch loop, in one process or, unchanged, under ``torchrun``.

A tenth of the labels of class 0 and two fifths of class 1 are flipped. Cross entropy learns the threshold of
the noisy labels; peer loss at α = 1 does not, without knowing the rates. Accuracy is measured on *clean*
labels.

Run with ``python examples/torch_loop.py`` or ``torchrun --nproc_per_node 2 examples/torch_loop.py``. It takes
seconds. Under torchrun every process trains on its share of each batch. DistributedDataParallel averages the
gradients, and ``PeerLoss`` sums the label counts over processes, so that loss and prior are equal to those of
one process on the full batch.
"""

from __future__ import annotations

import json
import os

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

from peerloss import AlphaSchedule, NoiseModel, PeerLoss, PlainLoss, flip_labels

ROWS, EPOCHS, BATCH = 2000, 12, 100


def make_data(rows: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return features, noisy labels and clean labels of two overlapping classes."""
    generator = torch.Generator().manual_seed(seed)
    clean = torch.randint(2, (rows,), generator=generator)
    X = torch.randn(rows, 5, generator=generator) + 0.8 * (2 * clean[:, None] - 1)
    noisy = flip_labels(clean.numpy(), NoiseModel.binary(e_neg=0.1, e_pos=0.4), random_state=seed)
    return X, torch.as_tensor(noisy), clean


def train(loss: nn.Module, knots: list[tuple[float, float]] | None) -> tuple[nn.Module, list[float]]:
    """Return the trained model and the mean loss of each epoch, over all processes."""
    rank, world = (
        (distributed.get_rank(), distributed.get_world_size()) if distributed.is_initialized() else (0, 1)
    )
    torch.manual_seed(0)
    X, noisy, _ = make_data(ROWS, seed=1)
    model: nn.Module = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 2))
    wrapped = DistributedDataParallel(model) if world > 1 else model
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    schedule = None if knots is None else AlphaSchedule(loss, knots)  # type: ignore[arg-type]
    means = []
    for epoch in range(EPOCHS):
        order = torch.randperm(ROWS, generator=torch.Generator().manual_seed(epoch))
        total = torch.zeros(())
        for rows in order.split(BATCH):
            mine = rows[rank::world]  # equal shares: the mean over ranks is the mean of the batch
            optimizer.zero_grad()
            value = loss(wrapped(X[mine]), noisy[mine])
            value.backward()
            optimizer.step()
            total += value.detach()
        if world > 1:
            distributed.all_reduce(total)
        means.append(float(total) / (ROWS // BATCH) / world)
        if schedule is not None:
            schedule.step()
    return model.eval(), means


@torch.no_grad()
def clean_accuracy(model: nn.Module) -> float:
    """Return accuracy on new rows with clean labels."""
    X, _, clean = make_data(10_000, seed=2)
    return float((model(X).argmax(dim=1) == clean).float().mean())


def main() -> None:
    """Train with both losses and print the results."""
    if "RANK" in os.environ:  # set by torchrun
        distributed.init_process_group("gloo")
    plain, _ = train(PlainLoss(), None)
    loss = PeerLoss()
    peer, means = train(loss, [(0, 0.0), (3, 0.0), (8, 1.0)])  # cross entropy first, then α rises to 1
    if not distributed.is_initialized() or distributed.get_rank() == 0:
        prior = loss.current_prior()
        report = {
            "cross entropy": clean_accuracy(plain),
            "peer loss": clean_accuracy(peer),
            "noisy prior": [] if prior is None else prior.tolist(),
            "mean loss": means,
        }
        print(json.dumps(report, indent=1))
    if distributed.is_initialized():
        distributed.barrier()  # without it the last process may wait for ever, in older versions of torch
        distributed.destroy_process_group()


if __name__ == "__main__":
    main()
