"""Two processes count one prior."""

import socket

import pytest
import torch
from torch import distributed, multiprocessing, nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

from peerloss import PeerLoss
from peerloss.exceptions import InvalidInputError
from peerloss.losses import FDivergenceLoss

N, K = 12, 3

pytestmark = pytest.mark.skipif(not distributed.is_gloo_available(), reason="needs torch's gloo backend")


def joined_batch(step, soft=False):
    generator = torch.Generator().manual_seed(step)
    z = torch.randn(N, K, generator=generator, dtype=torch.float64)
    y = torch.randint(K, (N,), generator=generator)
    return z, torch.softmax(z.flip(1) + y[:, None], dim=1) if soft else y


def counting_losses():
    """Return losses that count labels, and whether their targets are soft."""
    return (PeerLoss(alpha=0.8), False), (FDivergenceLoss(), False), (PeerLoss(alpha=0.8), True)


def worker(rank, port, job, results):
    distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    results[rank] = job(rank)
    distributed.destroy_process_group()


def on_two_ranks(job):
    """Run ``job(rank)`` in two processes; return what it returns in each."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with multiprocessing.get_context("spawn").Manager() as manager:
        results = manager.dict()
        multiprocessing.spawn(worker, args=(port, job, results), nprocs=2)
        return results[0], results[1]


def count_together(rank):
    results = []
    for loss, soft in counting_losses():
        values = []
        for step in range(3):
            z, y = joined_batch(step, soft)
            values.append(loss(z[rank::2], y[rank::2]).item())
        if rank == 0:  # evaluation on one rank alone must not wait for the other
            with torch.no_grad():
                loss(*joined_batch(8, soft))  # in training mode, as validation loops leave it
            loss.eval()
            loss(*joined_batch(9, soft))
        results.append((loss.label_counts.tolist(), values))
    return results


def test_two_ranks_have_the_prior_and_the_loss_of_the_joined_batch():
    """Counts are summed over ranks: prior and loss are those of one process. Validation never waits."""
    together = on_two_ranks(count_together)
    for i, (single, soft) in enumerate(counting_losses()):
        (counts_0, values_0), (counts_1, values_1) = together[0][i], together[1][i]
        expected = [single(*joined_batch(step, soft)).item() for step in range(3)]
        assert counts_0 == counts_1
        # Sums of soft targets are rounded in another order.
        expected_counts = single.label_counts.tolist()
        assert counts_0 == (pytest.approx(expected_counts, rel=1e-12) if soft else expected_counts)
        means = [(a + b) / 2 for a, b in zip(values_0, values_1, strict=True)]
        assert means == pytest.approx(expected, abs=1e-12)


def train_unevenly(rank):
    """Train with Join, two steps on the first rank and four on the second; return what happens."""
    results = {}
    for name, prior in (("counted", None), ("given", [0.2, 0.3, 0.5])):
        torch.manual_seed(0)
        model = DistributedDataParallel(nn.Linear(K, K).double())
        loss = PeerLoss(noisy_prior=prior)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        try:
            with Join([model]):
                for step in range(2 + 2 * rank):
                    z, y = joined_batch(step)
                    optimizer.zero_grad()
                    loss(model(z[rank::2]), y[rank::2]).backward()
                    optimizer.step()
            results[name] = model.module.weight.detach().flatten().tolist()
        except InvalidInputError as error:
            results[name] = str(error)
    # Outside the context labels are counted again.
    loss = PeerLoss()
    loss(*joined_batch(rank))
    results["later"] = loss.label_counts.sum().item()
    return results


def test_join_needs_a_given_prior():
    """Ranks with different numbers of batches: counting is refused with the remedy, a given prior works."""
    first, second = on_two_ranks(train_unevenly)
    for results in (first, second):
        assert results["counted"].startswith("`noisy_prior` must be given inside torch's Join")
        assert "label frequencies" in results["counted"]
        assert results["later"] == 2 * N
    assert first["given"] == pytest.approx(second["given"])
