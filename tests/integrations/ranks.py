"""What two ranks of torchrun do in the tests: train with DDP, FSDP2 and the Trainer; print the outcome."""

import json
import sys
import tempfile
from importlib.util import find_spec

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

from peerloss import PeerLoss

try:
    from torch.distributed.fsdp import fully_shard
except ImportError:  # torch before 2.6
    fully_shard = None

ROWS, FEATURES, CLASSES, STEPS = 12, 5, 3, 4


def batch(step):
    generator = torch.Generator().manual_seed(step)
    X = torch.randn(ROWS, FEATURES, generator=generator, dtype=torch.float64)
    return X, torch.randint(CLASSES, (ROWS,), generator=generator)


def make_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(FEATURES, 8), nn.Tanh(), nn.Linear(8, CLASSES)).double()


def sharded(model):
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer)
    return fully_shard(model)


def train(wrap, rank=0, world=1):
    """Return mean losses, the counted prior and the weights after some steps."""
    model = wrap(make_model())
    loss = PeerLoss(alpha=0.9)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
    values = []
    for step in range(STEPS):
        X, y = batch(step)
        optimizer.zero_grad()
        value = loss(model(X[rank::world]), y[rank::world])
        value.backward()
        optimizer.step()
        mean = value.detach() / world
        if world > 1:
            distributed.all_reduce(mean)
        values.append(mean.item())
    weights = [p.full_tensor() if hasattr(p, "full_tensor") else p for p in model.parameters()]
    return {
        "losses": values,
        "counts": loss.label_counts.tolist(),
        "weights": torch.cat([w.detach().flatten() for w in weights]).tolist(),
    }


def train_in_trainer(world=1):
    """Return the same of a Hugging Face Trainer, on tokens of which the ranks have different numbers."""
    from tests.integrations.test_huggingface import trainer  # noqa: PLC0415 (transformers may be absent)

    loss = PeerLoss(alpha=0.9)
    with tempfile.TemporaryDirectory() as folder:
        made = trainer(
            folder,
            loss,
            micro=8 // world,
            accumulate=1,
            max_steps=3,
            logging_steps=1,
            average_tokens_across_devices=True,
        )
        made.train()
    return {
        "losses": [record["loss"] for record in made.state.log_history if "loss" in record],
        "counts": loss.label_counts.tolist(),
        "weights": made.model.table.detach().flatten().tolist(),
    }


def main():
    distributed.init_process_group("gloo")
    rank, world = distributed.get_rank(), distributed.get_world_size()
    results = {"ddp": train(DistributedDataParallel, rank, world)}
    if fully_shard is not None:
        results["fsdp"] = train(sharded, rank, world)
    if find_spec("transformers") is not None:
        results["trainer"] = train_in_trainer(world)
    if rank == 0:
        sys.stdout.write("\n" + json.dumps(results))
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
