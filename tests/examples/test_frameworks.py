"""The examples of frameworks run, and peer loss improves accuracy."""

import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from torch import distributed

EXAMPLES = Path(__file__).parents[2] / "examples"


def printed(name, capsys):
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    return capsys.readouterr().out


def numbers(line):
    return [float(text) for text in re.findall(r"\d\.\d+", line)]


def launch(*command):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, env=environment, check=False, timeout=300
    )


@pytest.mark.skipif(not distributed.is_gloo_available(), reason="needs torch's gloo backend")
def test_the_plain_loop_is_the_same_under_torchrun(capsys):
    """Two processes have the losses, the prior and the accuracy of one process."""
    alone = json.loads(printed("torch_loop.py", capsys))
    assert alone["peer loss"] > alone["cross entropy"] + 0.05
    together = launch(
        *("-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"),
        str(EXAMPLES / "torch_loop.py"),
    )
    assert together.returncode == 0, together.stderr
    two = json.loads(together.stdout[together.stdout.index("{") :])
    assert two["noisy prior"] == alone["noisy prior"]
    assert two["mean loss"] == pytest.approx(alone["mean loss"], abs=1e-4)
    assert two["peer loss"] == pytest.approx(alone["peer loss"], abs=2e-3)


def test_hugging_face_trainer(capsys):
    """Peer loss is better than the default loss on clean labels; α ends at the end of its schedule."""
    pytest.importorskip("transformers")
    plain, peer, alpha = numbers(printed("huggingface_trainer.py", capsys).splitlines()[-1])
    assert peer > plain + 0.02
    assert alpha == 1.0


def test_transformer_sieve(capsys):
    """With peer loss and a sieve the predictions are right much more often than the labels."""
    pytest.importorskip("transformers")
    script = runpy.run_path(str(EXAMPLES / "transformer_sieve.py"))
    script["main"]()
    right, _, sieve = numbers(capsys.readouterr().out)
    assert sieve > right + 0.15


def test_token_labels(capsys):
    """Both ways learn every successor, and both priors are those of the labels without padding."""
    pytest.importorskip("transformers")
    lines = [line for line in printed("token_labels.py", capsys).splitlines() if "train_loss" not in line]
    (true,), (plain, counted), (trainer, counted_there) = map(numbers, lines)
    assert plain == trainer == 1.0
    assert counted == true
    assert counted_there == pytest.approx(true, abs=0.005)  # the Trainer stops during an epoch


def test_lightning_module(capsys):
    """Peer loss is better than cross entropy on clean labels."""
    pytest.importorskip("lightning")
    plain, peer = numbers(printed("lightning_module.py", capsys).splitlines()[-1])
    assert peer > plain + 0.02


def test_skorch_classifier(capsys):
    """The search on noisy labels chooses α near 1; both peer networks are better than cross entropy."""
    pytest.importorskip("skorch")
    chosen, plain, peer, scheduled = [
        numbers(line)[-1] for line in printed("skorch_classifier.py", capsys).splitlines()
    ]
    assert chosen == 0.9
    assert min(peer, scheduled) > plain + 0.01
