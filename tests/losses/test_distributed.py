"""Two processes count one prior."""

import socket

import pytest
import torch
from torch import distributed, multiprocessing

from peerloss import PeerLoss

N, K = 12, 3


def joined_batch(step):
    generator = torch.Generator().manual_seed(step)
    z = torch.randn(N, K, generator=generator, dtype=torch.float64)
    return z, torch.randint(K, (N,), generator=generator)


def worker(rank, port, results):
    distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    loss = PeerLoss(alpha=0.8)
    values = []
    for step in range(3):
        z, y = joined_batch(step)
        values.append(loss(z[rank::2], y[rank::2]).item())
    loss.eval()
    if rank == 0:  # evaluation on one rank alone must not wait for the other
        loss(*joined_batch(9))
    results[rank] = (loss.label_counts.tolist(), values)
    distributed.destroy_process_group()


@pytest.mark.skipif(not distributed.is_gloo_available(), reason="needs torch's gloo backend")
def test_two_ranks_have_the_prior_and_the_loss_of_the_joined_batch():
    """Counts are summed over ranks: prior and mean loss are those of one process."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with multiprocessing.get_context("spawn").Manager() as manager:
        results = manager.dict()
        multiprocessing.spawn(worker, args=(port, results), nprocs=2)
        (counts_0, values_0), (counts_1, values_1) = results[0], results[1]
    single = PeerLoss(alpha=0.8)
    stated = [single(*joined_batch(step)).item() for step in range(3)]
    assert counts_0 == counts_1 == single.label_counts.tolist()
    assert [(a + b) / 2 for a, b in zip(values_0, values_1, strict=True)] == pytest.approx(stated, abs=1e-12)
