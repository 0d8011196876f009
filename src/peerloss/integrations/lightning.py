"""Lightning: a callback that moves α, logs it and keeps it in checkpoints.

The loss belongs into the LightningModule (``self.loss = PeerLoss()``): it then moves to the device, changes
between training and evaluation, and is saved (with its counted prior) like every other submodule.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from peerloss.integrations._alpha_callbacks import check_every, check_schedule, go_to, missing_extra

try:
    from lightning.pytorch import Callback
except ImportError as error:
    raise missing_extra(error, "lightning") from error

if TYPE_CHECKING:
    from peerloss.losses import AlphaSchedule


class AlphaCallback(Callback):
    """Moves α with the optimizer's steps or with epochs and logs it as ``alpha``.

    Parameters
    ----------
    schedule
        Of the module's loss, ``AlphaSchedule(module.loss, knots)``. A checkpoint brings its own knots back.
    every
        ``"step"`` (optimizer steps, however many batches each takes) or ``"epoch"``: what the knots count.

    Examples
    --------
    >>> from peerloss import AlphaSchedule, PeerLoss
    >>> callback = AlphaCallback(AlphaSchedule(PeerLoss(), [(0, 0.0), (10, 1.0)]), every="epoch")
    """

    def __init__(self, schedule: AlphaSchedule, *, every: str = "step") -> None:
        super().__init__()
        self.schedule = check_schedule(schedule)
        self.every = check_every(every)

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Set and log α for the batch."""
        go_to(self.schedule, trainer.global_step if self.every == "step" else trainer.current_epoch)
        pl_module.log("alpha", self.schedule.loss.alpha)

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint needs."""
        return self.schedule.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on where a checkpoint stopped."""
        self.schedule.load_state_dict(state_dict)
