"""Say it when training runs away. Peer losses need not be bounded below, so this happens to honest users."""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from peerloss.exceptions import DivergenceError, DivergenceWarning

if TYPE_CHECKING:
    from peerloss.functional._batch import Batch

#: Logits past this magnitude while α ≥ 1 are taken for divergence: p is 0 or 1 to every digit long before.
LOGIT_LIMIT = 1e4

#: On CUDA every so many calls are looked at: each look costs a few kernel launches.
CUDA_INTERVAL = 16

REMEDY = (
    "Keep the clip (eps=1e-5) or take a bounded base ('sigmoid', 'ramp', 'squared'); lower the learning rate "
    "(divide it by 1 + alpha); start with alpha = 0 and raise it slowly (AlphaSchedule); or use alpha < 1."
)


class _Pending(NamedTuple):
    """Figures on their way from the GPU, with the event that says they have arrived."""

    figures: Tensor
    arrived: torch.cuda.Event
    alpha: float


class DivergenceWatch:
    """Look at every loss: raise when it is not finite, warn once when logits run away while α ≥ 1.

    On the CPU at once. On CUDA the figures of every sixteenth call are copied without waiting and read at a
    later one, so nothing synchronises; the message then comes some steps late.
    """

    def __init__(self) -> None:
        self._warned = False
        self._pending: _Pending | None = None
        self._calls = 0

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_pending": None}  # what is in flight is bound to this process

    def __call__(self, batch: Batch, loss: Tensor, alpha: float) -> None:
        """Look at one step."""
        if loss.device.type == "cpu":
            finite = math.isfinite(loss.item()) if loss.ndim == 0 else bool(torch.isfinite(loss).all())
            self.judge(finite=finite, largest=batch.largest or 0.0, alpha=alpha, stacklevel=6)
        elif loss.device.type == "cuda":
            self._read_arrived()
            if self._pending is None and self._calls % CUDA_INTERVAL == 0 and loss.numel():
                self._send(batch.logits.detach(), loss.detach(), alpha)
            self._calls += 1

    def _send(self, logits: Tensor, loss: Tensor, alpha: float) -> None:
        low, high = torch.aminmax(logits)
        low = torch.where(torch.isneginf(low), high, low)  # a masked class is no runaway logit
        largest = torch.maximum(low.abs(), high.abs())
        on_device = torch.stack((torch.isfinite(loss).all().float(), largest.float()))
        figures = torch.empty(2, pin_memory=True)
        figures.copy_(on_device, non_blocking=True)
        arrived = torch.cuda.Event()
        arrived.record()
        self._pending = _Pending(figures, arrived, alpha)

    def _read_arrived(self) -> None:
        if self._pending is None or not self._pending.arrived.query():
            return
        (finite, largest), alpha = self._pending.figures.tolist(), self._pending.alpha
        self._pending = None
        self.judge(finite=bool(finite), largest=largest, alpha=alpha, stacklevel=7)

    def judge(self, *, finite: bool, largest: float, alpha: float, stacklevel: int = 5) -> None:
        """Raise or warn by the figures of one step.

        Parameters
        ----------
        finite
            Whether the loss is.
        largest
            Largest |logit|.
        alpha
            Weight of the peer term.
        stacklevel
            Frames up to the line that called the module; as it is, for a call from its ``forward``.
        """
        if not finite:
            raise DivergenceError(
                f"the loss is not finite (alpha = {alpha:g}, largest |logit| {largest:g}). Training has "
                f"diverged; go back to the last good weights. {REMEDY}"
            )
        runaway = alpha >= 1 and largest > LOGIT_LIMIT
        if runaway and not self._warned:
            warnings.warn(
                f"logits have reached {largest:.3g} (limit {LOGIT_LIMIT:g}) while alpha = {alpha:g} ≥ 1: the "
                f"loss is not bounded below and training runs away. {REMEDY}",
                DivergenceWarning,
                stacklevel=stacklevel,
            )
        self._warned = runaway
