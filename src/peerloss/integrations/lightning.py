"""Lightning: a callback that sets α, logs it and saves the schedule in checkpoints.

Make the loss an attribute of the LightningModule (``self.loss = PeerLoss()``). Like every other submodule it
is then moved to the device, switched between training and evaluation, and saved with its counted prior.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from peerloss.integrations._training_loops import check_every, check_schedule, go_to, missing_extra

try:
    from lightning.pytorch import Callback
except ImportError as error:
    raise missing_extra(error, "lightning") from error

if TYPE_CHECKING:
    from peerloss.losses import AlphaSchedule


class AlphaCallback(Callback):
    """Sets α per optimiser step or epoch and logs it.

    Parameters
    ----------
    schedule
        ``AlphaSchedule(module.loss, knots)``. A checkpoint restores its own knots.
    every
        ``"step"`` (optimiser steps, also with gradient accumulation) or ``"epoch"``: the unit of the knots.
    name
        Name of the loss if there are several schedules: α is logged as ``alpha_NAME``, and each schedule has
        its own state in checkpoints.

    Examples
    --------
    >>> from peerloss import AlphaSchedule, PeerLoss
    >>> callback = AlphaCallback(AlphaSchedule(PeerLoss(), [(0, 0.0), (10, 1.0)]), every="epoch")
    """

    def __init__(self, schedule: AlphaSchedule, *, every: str = "step", name: str = "") -> None:
        super().__init__()
        self.name = name
        self.schedule = check_schedule(schedule)
        self.every = check_every(every)

    @property
    def state_key(self) -> str:
        """Name of the state in a checkpoint, which differs for the schedules of several losses."""
        key: str = self._generate_state_key(name=self.name) if self.name else super().state_key
        return key

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Set and log α for the batch."""
        go_to(self.schedule, trainer.global_step if self.every == "step" else trainer.current_epoch)
        pl_module.log(f"alpha_{self.name}" if self.name else "alpha", self.schedule.loss.alpha)

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        return self.schedule.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the state of a checkpoint."""
        self.schedule.load_state_dict(state_dict)
