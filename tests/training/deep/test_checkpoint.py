"""Checkpoints: an interrupted training run ends as an uninterrupted one."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
import torch

from peerloss import PeerLoss, PlainLoss
from peerloss.exceptions import InvalidInputError
from peerloss.functional import mae_matrix
from peerloss.models import ResNet
from peerloss.training import Growth, Sieve, train_deep
from peerloss.training.deep import _deep_run
from tests.training.deep.toy import (
    RECIPE,
    REFRESHING,
    N,
    have_equal_tensors,
    hold_after,
    images,
    small_encoder,
    small_net,
    tokens,
)

SIEVED = replace(RECIPE, epochs=4, sieve=Sieve(start=0.5))
REFRESHED = replace(RECIPE, epochs=6, sieve=REFRESHING)
GROWN = replace(RECIPE, epochs=6, sieve=replace(REFRESHING, start=0.3, growth=Growth(average=0.8)))


@pytest.mark.parametrize(
    "recipe", [RECIPE, SIEVED, REFRESHED, GROWN], ids=["peer", "sieve", "balanced sieve", "growing sieve"]
)
def test_a_resumed_training_equals_an_uninterrupted_one(recipe, tmp_path, monkeypatch):
    """After an interruption in any epoch, all weights, the best epoch and the history are the same."""
    X, noisy, _ = images()
    labels = np.where(np.arange(N) % 5 == 0, -1, noisy)

    def run(checkpoint):
        generator = torch.Generator().manual_seed(3)
        loss = PeerLoss(peers="sampled", generator=generator)
        return train_deep(
            small_net(), loss, X, labels, recipe=recipe, validation=(X, noisy), checkpoint=checkpoint
        )

    whole = run(None)
    original = _deep_run.Run.train_epoch
    for stop in range(1, recipe.epochs):
        path = tmp_path / f"{stop}.pt"

        def interrupt(self, stop=stop):
            if self.epoch == stop:
                raise KeyboardInterrupt
            return original(self)

        monkeypatch.setattr(_deep_run.Run, "train_epoch", interrupt)
        with pytest.raises(KeyboardInterrupt):
            run(path)
        monkeypatch.setattr(_deep_run.Run, "train_epoch", original)
        torch.rand(5)
        resumed = run(path)
        assert all(have_equal_tensors(resumed.weights[name], whole.weights[name]) for name in whole.weights)
        assert resumed.best_epoch == whole.best_epoch
        untimed = [[{**r, "seconds": 0} for r in result.history] for result in (whole, resumed)]
        assert untimed[0] == untimed[1]


def train_in_steps(checkpoint, kind, steps=None):
    """Train in the same way in the killed process and in the test; a growing sieve starts at once.

    With ``steps``, wait after so many steps to be killed.
    """
    X, noisy, _ = tokens() if kind == "tokens" else images()
    sieve = {
        "growing sieve": replace(GROWN.sieve, start=0.0),
        "tokens": Sieve(start=0.0, refresh_every=1),
        "host memory": replace(REFRESHING, start=0.0),
    }.get(kind)
    recipe = replace(RECIPE, epochs=15, batch_size=16, sieve=sieve)
    model = small_encoder() if kind == "tokens" else small_net()
    model = model if steps is None else hold_after(model, steps)
    on_device = kind != "host memory"
    return train_deep(
        model, PeerLoss(), X, noisy, recipe=recipe, checkpoint=checkpoint, data_on_device=on_device
    ).weights


@pytest.mark.parametrize("kind", ["no sieve", "growing sieve", "tokens", "host memory"])
def test_a_killed_training_ends_with_the_same_weights(kind, tmp_path):
    """SIGKILL in the middle, then the same call again: the weights of an uninterrupted run.

    The process is killed at any time after its first checkpoint and at the latest in the middle of the fourth
    epoch, where it waits, so that it does not end before the signal on a busy machine.
    """
    path, steps = tmp_path / "killed.pt", 3 * (N // 16) + 7
    code = (
        "import sys, torch; torch.set_num_threads(1); "
        "from tests.training.deep.test_checkpoint import train_in_steps; "
        f"train_in_steps(*sys.argv[1:], {steps})"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen([sys.executable, "-c", code, str(path), kind], env=environment)
    while not path.exists() and process.poll() is None:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert torch.load(path, weights_only=True)["epoch"] <= 3
    resumed, whole = train_in_steps(path, kind), train_in_steps(None, kind)
    assert all(have_equal_tensors(resumed[name], whole[name]) for name in whole)


def test_a_finished_checkpoint_is_only_loaded(tmp_path):
    """Calling again after the end trains nothing."""
    X, noisy, _ = images()
    path = tmp_path / "run.pt"
    first = train_deep(small_net(), PeerLoss(), X, noisy, recipe=RECIPE, checkpoint=path)
    again = train_deep(small_net(5), PeerLoss(), X, noisy, recipe=RECIPE, checkpoint=path)
    assert have_equal_tensors(first.weights["last"], again.weights["last"])
    assert first.history == again.history


def test_checkpoints_of_other_settings_are_refused(tmp_path):
    """The message names the setting that differs."""
    X, noisy, _ = images()
    path = tmp_path / "run.pt"
    train_deep(small_net(), PeerLoss(), X, noisy, recipe=replace(RECIPE, epochs=1), checkpoint=path)
    with pytest.raises(InvalidInputError, match=r"belongs to a training run with epochs = 1; this one has 3"):
        train_deep(small_net(), PeerLoss(), X, noisy, recipe=RECIPE, checkpoint=path)
    fewer = np.where(np.arange(N) < 50, -1, noisy)
    with pytest.raises(
        InvalidInputError, match=r"belongs to a training run with labelled = 240; this one has 190"
    ):
        train_deep(small_net(), PeerLoss(), X, fewer, recipe=replace(RECIPE, epochs=1), checkpoint=path)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"loss": PeerLoss("sigmoid")}, "loss = "),
        ({"loss": torch.nn.functional.cross_entropy}, "loss = "),
        ({"y": (images()[1] + 1) % 3}, "fingerprint of y = "),
        ({"X": 255 - images()[0]}, "fingerprint of X = "),
        ({"model": ResNet((1, 1), n_classes=4, width=8)}, "model = 'ResNet "),
    ],
    ids=["loss", "function", "labels", "images", "network"],
)
def test_checkpoints_of_another_loss_model_or_data_are_refused(other, message, tmp_path):
    """Resuming would not make sense; the model of the caller does not change."""
    X, noisy, _ = images()
    recipe = replace(RECIPE, alpha=())
    given = {"model": small_net(), "loss": PeerLoss(), "X": X, "y": noisy}
    train_deep(**given, recipe=recipe, checkpoint=tmp_path / "run.pt")
    given = {**given, "model": small_net(5), **other}
    before = {name: tensor.clone() for name, tensor in given["model"].state_dict().items()}
    with pytest.raises(InvalidInputError, match=f"belongs to a training run with {message}"):
        train_deep(**given, recipe=recipe, checkpoint=tmp_path / "run.pt")
    assert have_equal_tensors(before, given["model"].state_dict())


@pytest.mark.parametrize(
    "change",
    [
        lambda state: state["settings"].update(seed=state["settings"].pop("random_state")),
        lambda state: state["settings"]["sieve"].update(
            renew=state["settings"]["sieve"].pop("refresh_every")
        ),
        lambda state: state.update(taught=state.pop("sieve")),
    ],
    ids=["setting", "setting of the sieve", "state"],
)
def test_checkpoints_of_another_version_are_refused(change, tmp_path):
    """The names in them differ; the message says what to do."""
    X, noisy, _ = images()
    path = tmp_path / "run.pt"
    recipe = replace(RECIPE, epochs=1, sieve=Sieve())
    train_deep(small_net(), PeerLoss(), X, noisy, recipe=recipe, checkpoint=path)
    state = torch.load(path, weights_only=True)
    change(state)
    torch.save(state, path)
    with pytest.raises(
        InvalidInputError, match=r"written by another version of peerloss.* Delete it .* another folder"
    ):
        train_deep(small_net(), PeerLoss(), X, noisy, recipe=recipe, checkpoint=path)


def test_checkpoints_without_later_settings_can_resume(tmp_path):
    """A checkpoint of an earlier version: SGD, and the random numbers of one process."""
    X, noisy, _ = images()
    path = tmp_path / "run.pt"
    first = train_deep(small_net(), PeerLoss(), X, noisy, recipe=RECIPE, checkpoint=path)
    state = torch.load(path, weights_only=True)
    assert state["settings"].pop("optimizer") == "sgd"
    for name in ("random", "random_device"):
        (state[name],) = state[name]
    torch.save(state, path)
    again = train_deep(small_net(5), PeerLoss(), X, noisy, recipe=RECIPE, checkpoint=path)
    assert have_equal_tensors(first.weights["last"], again.weights["last"])
    other = replace(RECIPE, optimizer="adamw")
    with pytest.raises(InvalidInputError, match="a training run with optimizer = 'sgd'"):
        train_deep(small_net(5), PeerLoss(), X, noisy, recipe=other, checkpoint=path)


@pytest.mark.parametrize("loss", [PeerLoss, PlainLoss])
def test_a_loss_with_a_function_as_base_can_resume(loss, tmp_path):
    """A function is recognised by its name. Its address differs between processes."""

    def make_loss():
        def base(logits):
            return mae_matrix(logits)

        return loss(base)

    X, noisy, _ = images()
    recipe = replace(RECIPE, epochs=1, alpha=())
    weights = [
        train_deep(small_net(), make_loss(), X, noisy, recipe=recipe, checkpoint=tmp_path / "run.pt").weights[
            "last"
        ]
        for _ in range(2)
    ]
    assert have_equal_tensors(*weights)


def test_a_loss_with_another_alpha_can_resume(tmp_path):
    """The recipe sets α, so the loss of the first call, at its last α, can be used in the second."""
    X, noisy, _ = images()
    loss = PeerLoss()
    first = train_deep(small_net(), loss, X, noisy, recipe=RECIPE, checkpoint=tmp_path / "run.pt")
    assert loss.alpha == 1.0
    again = train_deep(small_net(), loss, X, noisy, recipe=RECIPE, checkpoint=tmp_path / "run.pt")
    assert have_equal_tensors(first.weights["last"], again.weights["last"])


def test_settings_may_be_numpy_numbers(tmp_path):
    """They are converted, because a checkpoint cannot hold NumPy numbers."""
    X, noisy, _ = images()
    shares = np.bincount(noisy) / N
    for balance in (tuple(shares), shares, tuple(shares.tolist())):
        sieve = Sieve(start=0.5, balance=balance)
        recipe = replace(RECIPE, learning_rate=np.float64(0.05), epochs=np.int64(2), sieve=sieve)
        result = train_deep(small_net(), PeerLoss(), X, noisy, recipe=recipe, checkpoint=tmp_path / "run.pt")
        assert len(result.history) == 2


def test_a_file_that_cannot_be_opened_is_not_called_damaged(tmp_path):
    """The file may be intact, so the message does not suggest to delete it."""
    X, noisy, _ = images()
    with pytest.raises(InvalidInputError, match=r"`checkpoint` .* cannot be opened: .*directory"):
        train_deep(small_net(), PeerLoss(), X, noisy, recipe=RECIPE, checkpoint=tmp_path)


@pytest.mark.parametrize("broken", ["code", "number", "half", "empty", 100, 1000, 20_000, 50_000, -300, -1])
def test_damaged_files_are_refused(broken, tmp_path):
    """For truncated files and wrong content the message says what to do; no code is unpickled."""
    X, noisy, _ = images()
    path = tmp_path / "run.pt"
    train_deep(small_net(), PeerLoss(), X, noisy, recipe=RECIPE, checkpoint=path)
    whole = torch.load(path, weights_only=True)
    contents = {"code": {"settings": os.getcwd}, "number": {"settings": 3}, "half": whole | {"optimizer": 3}}
    if broken in contents:
        torch.save(contents[broken], path)
    else:
        path.write_bytes(b"" if broken == "empty" else path.read_bytes()[:broken])
    message = (
        r"^`checkpoint` \S+run.pt cannot be read: it is truncated or damaged, .*Delete it .* another path.$"
    )
    with pytest.raises(InvalidInputError, match=message):
        train_deep(small_net(), PeerLoss(), X, noisy, recipe=RECIPE, checkpoint=path)


@pytest.mark.parametrize("argument", ["checkpoint", "log_dir"])
def test_a_path_that_cannot_be_written_is_refused_before_training(argument, tmp_path, monkeypatch):
    """Otherwise hours of training could not be saved."""

    def train(_):
        raise AssertionError("trained")

    monkeypatch.setattr(_deep_run.Run, "train_epoch", train)
    X, noisy, _ = images()
    (tmp_path / "file").write_text("mine")
    path = tmp_path / "file" / "deeper"
    with pytest.raises(
        InvalidInputError, match=rf"`{argument}` needs {path}.* cannot be written: .*trained yet"
    ):
        train_deep(small_net(), PeerLoss(), X, noisy, recipe=RECIPE, **{argument: path})
    assert (tmp_path / "file").read_text() == "mine"


def test_the_check_of_a_path_leaves_nothing_behind(tmp_path):
    """The folder is created, and contains only the checkpoint at the end."""
    X, noisy, _ = images()
    path = tmp_path / "new" / "run.pt"
    train_deep(small_net(), PeerLoss(), X, noisy, recipe=RECIPE, checkpoint=path)
    assert [file.name for file in path.parent.iterdir()] == ["run.pt"]
