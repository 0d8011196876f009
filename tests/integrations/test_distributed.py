"""Two ranks give the results of one process on the joined batch."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from torch import distributed

from tests.integrations.ranks import train, train_in_trainer

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def two_ranks():
    """Start two ranks once and return their results."""
    if not distributed.is_gloo_available():
        pytest.skip("needs torch's gloo backend")
    command = ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2")
    run = subprocess.run(
        [sys.executable, *command, "-m", "tests.integrations.ranks"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout.splitlines()[-1])  # the Trainer prints too


@pytest.mark.parametrize("way", ["ddp", "fsdp"])
def test_two_ranks_have_losses_prior_and_weights_of_one_process(way, two_ranks):
    """With replicated weights (DDP) and with sharded ones (FSDP2)."""
    if way not in two_ranks:
        pytest.skip("needs torch.distributed.fsdp.fully_shard")
    alone = train(lambda model: model)
    assert two_ranks[way]["counts"] == alone["counts"]
    assert two_ranks[way]["losses"] == pytest.approx(alone["losses"], abs=1e-12)
    assert two_ranks[way]["weights"] == pytest.approx(alone["weights"], abs=1e-12)


def test_ragged_tokens_in_the_trainer(two_ranks):
    """Ranks hold different numbers of labels; loss, prior and weights are still those of one process."""
    if "trainer" not in two_ranks:
        pytest.skip("needs transformers")
    alone, together = train_in_trainer(), two_ranks["trainer"]
    assert together["counts"] == alone["counts"]
    assert together["weights"] == pytest.approx(alone["weights"], abs=1e-12)
    assert together["losses"] == pytest.approx(alone["losses"], abs=1e-3)  # logged with few digits
