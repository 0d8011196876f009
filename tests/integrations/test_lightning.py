"""Lightning with our losses."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from peerloss import AlphaSchedule, PeerLoss
from peerloss.exceptions import InvalidInputError

lightning = pytest.importorskip("lightning.pytorch")

from peerloss.integrations.lightning import AlphaCallback  # noqa: E402 (may be absent)

# Lightning warns that a loader could use more processes, and that a folder of checkpoints exists.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*does not have many workers.*"),
    pytest.mark.filterwarnings("ignore:Checkpoint directory.*"),
    pytest.mark.filterwarnings("ignore:The number of training batches.*"),
]


class Module(lightning.LightningModule):
    """A linear model that records the α of each batch."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Linear(3, 2)
        self.loss = PeerLoss()
        self.seen = []

    def training_step(self, batch, batch_idx):  # noqa: ARG002 (Lightning passes it)
        """Return the loss."""
        self.seen.append(self.loss.alpha)
        return self.loss(self.net(batch[0]), batch[1])

    def configure_optimizers(self):
        """Take plain gradient steps."""
        return torch.optim.SGD(self.parameters(), lr=0.1)


def fit(folder, *, every="step", epochs=2, accumulate=1, resume=None, checkpoint=False):
    generator = torch.Generator().manual_seed(1)
    data = TensorDataset(
        torch.randn(16, 3, generator=generator), torch.randint(2, (16,), generator=generator)
    )
    module = Module()
    callbacks = [AlphaCallback(AlphaSchedule(module.loss, [(0, 0.0), (10, 1.0)]), every=every)]
    if checkpoint:
        callbacks.append(
            lightning.callbacks.ModelCheckpoint(
                dirpath=folder, save_top_k=-1, every_n_epochs=1, filename="{epoch}"
            )
        )
    trainer = lightning.Trainer(
        accelerator="cpu",
        max_epochs=epochs,
        accumulate_grad_batches=accumulate,
        callbacks=callbacks,
        default_root_dir=folder,
        logger=False,
        enable_checkpointing=checkpoint,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(module, DataLoader(data, batch_size=4), ckpt_path=resume)
    return module, trainer


@pytest.mark.parametrize(
    ("every", "accumulate", "expected"),
    [
        ("step", 1, [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]),
        ("step", 2, [0.0, 0.0, 0.1, 0.1, 0.2, 0.2, 0.3, 0.3]),
        ("epoch", 1, [0.0] * 4 + [0.1] * 4),
    ],
)
def test_alpha_follows_optimizer_steps_or_epochs(every, accumulate, expected, tmp_path):
    """And is logged."""
    module, trainer = fit(tmp_path, every=every, accumulate=accumulate)
    assert module.seen == pytest.approx(expected)
    assert trainer.callback_metrics["alpha"].item() == pytest.approx(expected[-1])


def test_resumed_training_continues_exactly(tmp_path):
    """Weights, α and counted prior are those of uninterrupted training; the checkpoint holds all three."""
    uninterrupted, _ = fit(tmp_path, epochs=3, checkpoint=True)
    path = tmp_path / "epoch=0.ckpt"
    saved = torch.load(path, weights_only=True)
    (state,) = [state for key, state in saved["callbacks"].items() if "AlphaCallback" in key]
    assert state["alphas"] == [0.0, 1.0]
    assert saved["state_dict"]["loss.label_counts"].sum() == 16
    resumed, _ = fit(tmp_path, epochs=3, resume=path, checkpoint=True)
    assert resumed.seen == uninterrupted.seen[4:]
    assert torch.equal(resumed.net.weight, uninterrupted.net.weight)
    assert torch.equal(resumed.loss.label_counts, uninterrupted.loss.label_counts)


def test_the_callback_names_wrong_arguments():
    """A loss instead of a schedule; an unknown unit."""
    with pytest.raises(InvalidInputError, match="`schedule` must be an AlphaSchedule; got PeerLoss"):
        AlphaCallback(PeerLoss())
    with pytest.raises(InvalidInputError, match="`every` must be"):
        AlphaCallback(AlphaSchedule(PeerLoss(), [(0, 1.0)]), every="batch")


def test_two_schedules_have_states_and_logs_of_their_own(tmp_path):
    """Named callbacks can be saved together, and each restores its own schedule."""
    module = Module()
    module.other = PeerLoss()
    schedules = [
        AlphaSchedule(loss, [(0, 0.0), (4, top)]) for loss, top in ((module.loss, 1.0), (module.other, 2.0))
    ]
    callbacks = [
        AlphaCallback(schedule, name=name) for schedule, name in zip(schedules, ("", "other"), strict=True)
    ]
    trainer = lightning.Trainer(
        max_epochs=1, callbacks=callbacks, default_root_dir=tmp_path, logger=False, enable_progress_bar=False,
        enable_model_summary=False, accelerator="cpu",
    )  # fmt: skip
    data = TensorDataset(torch.randn(16, 3), torch.randint(2, (16,)))
    trainer.fit(module, DataLoader(data, batch_size=4))
    trainer.save_checkpoint(tmp_path / "both.ckpt")
    states = torch.load(tmp_path / "both.ckpt", weights_only=False)["callbacks"]
    assert len([key for key in states if "AlphaCallback" in key]) == 2
    assert {"alpha", "alpha_other"} <= trainer.logged_metrics.keys()
