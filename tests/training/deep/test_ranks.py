"""Two processes train as one: weights, scores, sieve, checkpoints, logs and errors."""

import csv
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from torch import distributed

from tests.training.deep import ranks

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.skipif(not distributed.is_gloo_available(), reason="needs torch's gloo backend")


def start(job, folder):
    """Start two processes."""
    command = ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2")
    return subprocess.Popen(
        [sys.executable, *command, "-m", "tests.training.deep.ranks", job, str(folder)],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    """Run everything once on two processes; return the results of both, the folder and what was printed."""
    folder = tmp_path_factory.mktemp("ranks")
    process = start("all", folder)
    _, printed = process.communicate()
    assert process.returncode == 0, printed
    return [torch.load(folder / f"{rank}.pt") for rank in (0, 1)], folder, printed


def assert_equal(found, expected, tolerance):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        if isinstance(value, dict):
            assert_equal(found[name], value, tolerance)
        else:
            first, second = (torch.as_tensor(part, dtype=torch.float64) for part in (found[name], value))
            torch.testing.assert_close(first, second, rtol=0, atol=tolerance, msg=lambda m: f"{name}: {m}")


@pytest.mark.parametrize("way", ranks.EXACT)
def test_two_processes_have_the_results_of_one(way, together):
    """Weights, scores and mean losses to 1e-9, computed in float64; both processes have the same.

    A mean peer loss is a difference of terms near 1, so its rounding is absolute: relative to a mean near
    zero it has no bound.
    """
    expected = ranks.EXACT[way]()
    for results in together[0]:
        assert_equal(results[way], expected, 1e-9)


@pytest.mark.parametrize("way", ranks.ROUNDED)
def test_augmented_images_have_the_results_of_one_process(way, together):
    """Crops, strong changes and mixed rows are drawn as in one process; computed in float32."""
    expected = ranks.ROUNDED[way]()
    for results in together[0]:
        assert_equal(results[way], expected, 1e-4)


def test_one_process_writes_the_log_the_checkpoint_and_the_progress(together):
    """The log has one line per epoch, and the progress is shown once."""
    _, folder, printed = together
    with (folder / "log" / "metrics.csv").open(encoding="utf-8") as stream:
        assert [row["epoch"] for row in csv.DictReader(stream)] == ["1", "2", "3", "4"]
    assert sorted(path.name for path in (folder / "log").glob("*.csv")) == ["metrics.csv"]
    assert printed.count("epoch 4 of 4") == 1
    state = torch.load(folder / "run.pt", weights_only=True)
    assert state["epoch"] == 4
    assert len(state["random"]) == 2


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("other labels", "All processes must be called with the same data and settings; fingerprint of y is"),
        ("batch", "A batch must have at least one row per process; got 1 rows for 2 processes. Raise"),
        ("checkpoint", "cannot be read: it is truncated or damaged"),
        ("log", "`log_dir` needs"),
        ("outputs", "epoch 1: the model's outputs are not finite"),
        ("divergence", "epoch 1: the mean loss is nan"),
    ],
)
def test_errors_are_raised_in_all_processes(call, message, together):
    """None of them waits for another that has stopped."""
    for results in together[0]:
        assert message in results["errors"][call]


def test_processes_agree_on_the_statistics_of_batch_norm(together):
    """Each has those of its share, and they are averaged after an epoch."""
    first, second = (results["batch norm"] for results in together[0])
    assert_equal(first, second, 0.0)


def test_a_resumed_training_restores_the_generators_of_all_processes(together):
    """Each process draws its own dropout and sampled peers, also after a new start with other seeds."""
    for results in together[0]:
        whole, resumed = results["draws"]
        assert torch.equal(whole, resumed)


def test_killed_processes_end_with_the_same_weights(tmp_path):
    """SIGKILL to both processes, then the same call again, in two processes or in one: the same weights.

    They wait in the sixth epoch, so that they do not end before the signal on a busy machine.
    """
    process = start("held", tmp_path)
    while not (tmp_path / "run.pt").exists() and process.poll() is None:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)  # first, because torchrun would stop one process after the other
    for rank in (0, 1):
        os.kill(int((tmp_path / f"{rank}.pid").read_text()), signal.SIGKILL)
    process.communicate()
    assert torch.load(tmp_path / "run.pt", weights_only=True)["epoch"] <= 5
    alone = tmp_path / "alone"
    alone.mkdir()
    shutil.copy(tmp_path / "run.pt", alone)
    process = start("long", tmp_path)
    _, printed = process.communicate()
    assert process.returncode == 0, printed
    expected = ranks.train_for_long(None)
    assert_equal(torch.load(tmp_path / "weights.pt"), expected, 1e-9)
    assert_equal(ranks.train_for_long(alone), expected, 1e-9)
