"""Checkpoints are written in a thread while training continues."""

import threading
from collections import OrderedDict
from dataclasses import replace

import pytest
import torch

from peerloss import PeerLoss
from peerloss.exceptions import DivergenceError
from peerloss.training import train_deep
from peerloss.training.deep import _deep_run, _training_output
from peerloss.training.deep._training_output import CheckpointWriter
from tests.training.deep.toy import RECIPE, images, small_net

CPU = torch.device("cpu")
PATIENCE = 60  # seconds; reached only if a test fails


@pytest.fixture
def blocked(monkeypatch):
    """Let every write wait until the returned event is set."""
    event, save = threading.Event(), _training_output.save_checkpoint

    def wait_and_save(path, state):
        assert event.wait(PATIENCE)
        save(path, state)

    monkeypatch.setattr(_training_output, "save_checkpoint", wait_and_save)
    return event


def test_training_continues_during_a_write(blocked, tmp_path, monkeypatch):
    """The first checkpoint is written after the second epoch has started."""
    train_epoch = _deep_run.Run.train_epoch

    def watched(self):
        if self.epoch == 1:
            blocked.set()
        return train_epoch(self)

    monkeypatch.setattr(_deep_run.Run, "train_epoch", watched)
    X, noisy, _ = images()
    train_deep(small_net(), PeerLoss(), X, noisy, recipe=RECIPE, checkpoint=tmp_path / "run.pt")
    assert torch.load(tmp_path / "run.pt", weights_only=True)["epoch"] == RECIPE.epochs


def test_the_file_has_the_state_of_the_call(blocked, tmp_path):
    """What training changes during the write is not written; the metadata of modules is kept."""
    weights = torch.ones(3)
    model = OrderedDict(weight=weights)
    model._metadata = {"": {"version": 2}}
    state = {"model": model, "history": [{"epoch": 1}], "pairs": ([weights, 2],), "epoch": 1}
    with CheckpointWriter(tmp_path / "run.pt", CPU) as writer:
        writer.save(state)
        weights.zero_()
        state["history"].append({"epoch": 2})
        state["epoch"] = model["bias"] = 2
        blocked.set()
    found = torch.load(tmp_path / "run.pt", weights_only=True)
    assert found["model"]["weight"].tolist() == found["pairs"][0][0].tolist() == [1.0] * 3
    assert (found["history"], found["epoch"], list(found["model"])) == ([{"epoch": 1}], 1, ["weight"])
    assert found["model"]._metadata == {"": {"version": 2}}


def test_at_most_one_write_is_in_progress(tmp_path, monkeypatch):
    """Writes end in the order of the calls, and none overlaps another."""
    seen, running = [], threading.Lock()

    def save(_, state):
        assert running.acquire(blocking=False)
        seen.append(state["epoch"])
        running.release()

    monkeypatch.setattr(_training_output, "save_checkpoint", save)
    with CheckpointWriter(tmp_path / "run.pt", CPU) as writer:
        for epoch in range(50):
            writer.save({"epoch": epoch})
    assert seen == list(range(50))


def save_epochs(path, *epochs, then=None):
    """Save the epochs in one block, which ends with the error ``then``."""
    with CheckpointWriter(path, CPU) as writer:
        for epoch in epochs:
            writer.save({"epoch": epoch})
        if then is not None:
            raise then


@pytest.mark.parametrize("epochs", [(1,), (1, 2)], ids=["end of the block", "next call"])
def test_the_error_of_a_write_is_raised(epochs, tmp_path, monkeypatch):
    """By the next call, or at the end of the block; an error of the block itself comes first."""

    def fail(_, state):
        raise OSError(f"no space for epoch {state['epoch']}")

    monkeypatch.setattr(_training_output, "save_checkpoint", fail)
    with pytest.raises(OSError, match="no space for epoch 1"):
        save_epochs(tmp_path / "run.pt", *epochs)
    with pytest.raises(KeyboardInterrupt):
        save_epochs(tmp_path / "run.pt", 1, then=KeyboardInterrupt())


def test_an_error_of_the_block_waits_for_the_write(blocked, tmp_path):
    """The checkpoint of the last epoch is complete when the error arrives."""
    threading.Timer(0.05, blocked.set).start()
    with pytest.raises(KeyboardInterrupt):
        save_epochs(tmp_path / "run.pt", 4, then=KeyboardInterrupt())
    assert torch.load(tmp_path / "run.pt", weights_only=True) == {"epoch": 4}


def test_a_full_disk_stops_training(tmp_path, monkeypatch):
    """One epoch later at most; the error is that of the write."""
    epochs = []

    def fail(_, state):
        epochs.append(state["epoch"])
        raise OSError("no space")

    monkeypatch.setattr(_training_output, "save_checkpoint", fail)
    X, noisy, _ = images()
    with pytest.raises(OSError, match="no space"):
        train_deep(small_net(), PeerLoss(), X, noisy, recipe=RECIPE, checkpoint=tmp_path / "run.pt")
    assert epochs == [1]


def test_without_memory_for_a_copy_training_waits(blocked, tmp_path, monkeypatch):
    """The state itself is written before the call returns."""

    def fail(_):
        raise torch.OutOfMemoryError("no room")

    monkeypatch.setattr(_training_output, "_copied", fail)
    blocked.set()
    with CheckpointWriter(tmp_path / "run.pt", CPU) as writer:
        writer.save({"epoch": 7})
        assert torch.load(tmp_path / "run.pt", weights_only=True) == {"epoch": 7}


def test_without_a_copy_the_stream_of_training_is_used(tmp_path, monkeypatch):
    """Another stream would read weights that the last steps may still change."""

    def fail(_):
        raise torch.OutOfMemoryError("no room")

    def refuse(_):
        raise AssertionError("another stream")

    monkeypatch.setattr(_training_output, "_copied", fail)
    monkeypatch.setattr(torch.cuda, "stream", refuse)
    with CheckpointWriter(tmp_path / "run.pt", CPU) as writer:
        writer._stream = object()
        writer.save({"epoch": 7})
    assert torch.load(tmp_path / "run.pt", weights_only=True) == {"epoch": 7}


def test_divergence_in_the_next_epoch_names_the_checkpoint(blocked, tmp_path, monkeypatch):
    """Its write is completed before the message is made, and it has the last good epoch."""
    train_epoch = _deep_run.Run.train_epoch

    def diverge(self):
        if self.epoch == 1:
            threading.Timer(0.05, blocked.set).start()
            raise DivergenceError("the mean loss is nan.")
        return train_epoch(self)

    monkeypatch.setattr(_deep_run.Run, "train_epoch", diverge)
    X, noisy, _ = images()
    path = tmp_path / "run.pt"
    with pytest.raises(DivergenceError, match=r"epoch 2: .* The last good checkpoint is \S+run.pt"):
        train_deep(small_net(), PeerLoss(), X, noisy, recipe=replace(RECIPE, epochs=3), checkpoint=path)
    assert torch.load(path, weights_only=True)["epoch"] == 1


@pytest.mark.parametrize("first_fails", [True, False])
def test_divergence_is_reported_if_the_checkpoint_failed(first_fails, tmp_path, monkeypatch):
    """The message has both errors, and an older checkpoint if there is one."""
    train_epoch, save = _deep_run.Run.train_epoch, _training_output.save_checkpoint

    def diverge(self):
        if self.epoch == 2 - first_fails:
            raise DivergenceError("the mean loss is nan.")
        return train_epoch(self)

    def fail(path, state):
        if state["epoch"] == 2 - first_fails:
            raise OSError("no space.")
        save(path, state)

    monkeypatch.setattr(_deep_run.Run, "train_epoch", diverge)
    monkeypatch.setattr(_training_output, "save_checkpoint", fail)
    X, noisy, _ = images()
    end = "There is no checkpoint to return to" if first_fails else r"The last good checkpoint is \S+pt"
    message = rf"the mean loss is nan. The checkpoint of the epoch before could not .*: no space. {end}"
    with pytest.raises(DivergenceError, match=message):
        train_deep(small_net(), PeerLoss(), X, noisy, recipe=RECIPE, checkpoint=tmp_path / "run.pt")
