"""The log of a training run."""

import csv
import sys
from dataclasses import replace
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest
import torch

from peerloss import PeerLoss
from peerloss.training import train_deep
from tests.training.deep.toy import RECIPE, images, small_net


class Board:
    """A replacement for TensorBoard that collects values in order and counts open writers."""

    def __init__(self, monkeypatch):
        self.values, self.folders, self.open = [], set(), 0
        self.interrupt_at = None
        installed, writers = ModuleType("tensorboard"), ModuleType("torch.utils.tensorboard")
        installed.__spec__ = ModuleSpec("tensorboard", None)
        writers.SummaryWriter = self._opened
        monkeypatch.setitem(sys.modules, "tensorboard", installed)
        monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", writers)

    def _opened(self, log_dir, purge_step):
        self.folders.add(log_dir)
        self.open += 1
        self.values = [value for value in self.values if value[0] < purge_step]
        return self

    def add_scalar(self, tag, value, step):
        """Record one value, or interrupt the training."""
        if step == self.interrupt_at:
            raise KeyboardInterrupt
        self.values.append((step, tag, value))

    def flush(self):
        """Do nothing; all values are recorded already."""

    def close(self):
        """Close the writer."""
        self.open -= 1


@pytest.mark.parametrize("stop", [2, 3])
def test_tensorboard_gets_every_value_once_with_its_epoch(stop, tmp_path, monkeypatch):
    """Epochs after the last checkpoint are repeated; a finished training adds nothing."""
    X, noisy, _ = images()
    board, folder = Board(monkeypatch), tmp_path / "log"

    def train():
        return train_deep(
            small_net(),
            PeerLoss(),
            X,
            noisy,
            recipe=replace(RECIPE, epochs=4),
            checkpoint=tmp_path / "run.pt",
            checkpoint_every=2,
            log_dir=folder,
        )

    board.interrupt_at = stop
    with pytest.raises(KeyboardInterrupt):
        train()
    assert (board.values[-1][0], board.open) == (stop - 1, 0)
    board.interrupt_at = None
    for _ in range(2):
        history = train().history
        expected = [(record["epoch"], *value) for record in history for value in record.items()]
        assert board.values == expected
    assert (board.folders, board.open) == ({str(folder)}, 0)


def test_the_table_of_an_earlier_training_is_kept(tmp_path):
    """Several trainings in one folder leave one table each, the newest as ``metrics.csv``."""
    X, noisy, _ = images()
    losses = []
    for seed in range(3):
        recipe = replace(RECIPE, epochs=1, random_state=seed)
        result = train_deep(small_net(), PeerLoss(), X, noisy, recipe=recipe, log_dir=tmp_path)
        losses.append(str(result.history[0]["loss"]))
    tables = [tmp_path / name for name in ("metrics-1.csv", "metrics-2.csv", "metrics.csv")]
    assert sorted(tmp_path.glob("*.csv")) == sorted(tables)
    assert all(loss in table.read_text(encoding="utf-8") for loss, table in zip(losses, tables, strict=True))


def test_each_epoch_is_logged_once(tmp_path, capsys):
    """The table has the history, also of a resumed training, and the epochs are shown on stderr."""
    X, noisy, _ = images()
    for _ in range(2):
        result = train_deep(
            small_net(),
            PeerLoss(),
            X,
            noisy,
            recipe=RECIPE,
            log_dir=tmp_path,
            checkpoint=tmp_path / "run.pt",
            progress=True,
        )
    with (tmp_path / "metrics.csv").open(encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert [float(row["loss"]) for row in rows] == [record["loss"] for record in result.history]
    shown = capsys.readouterr()
    assert shown.out == ""
    assert f"training: epoch {RECIPE.epochs} of {RECIPE.epochs}, loss " in shown.err


def test_epochs_without_validation_have_blank_scores(tmp_path):
    """If a resumed training has no validation, its epochs have an empty column."""
    X, noisy, _ = images()
    recipe, path = replace(RECIPE, epochs=2), tmp_path / "run.pt"
    for validation in ((X, noisy), None):
        if validation is None:  # as if the training had been interrupted after one epoch
            state = torch.load(path, weights_only=True)
            torch.save(state | {"epoch": 1, "history": state["history"][:1]}, path)
        train_deep(
            small_net(),
            PeerLoss(),
            X,
            noisy,
            recipe=recipe,
            validation=validation,
            checkpoint=path,
            log_dir=tmp_path,
        )
    with (tmp_path / "metrics.csv").open(encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert [bool(row["score"]) for row in rows] == [True, False]
