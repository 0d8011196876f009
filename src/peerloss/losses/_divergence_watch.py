"""Detect diverging training: peer losses need not be bounded below."""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from peerloss._deprecation import warn_renamed
from peerloss.exceptions import DivergenceError, DivergenceWarning

if TYPE_CHECKING:
    from peerloss.functional.batch import Batch

#: Larger |logits| while α ≥ 1 count as divergence: probabilities round to 0 or 1 long before.
LOGIT_LIMIT = 1e4

#: On CUDA one call in this many is checked, because each check costs a few kernel launches.
CUDA_INTERVAL = 16

REMEDY = (
    "Keep the clip (eps=1e-5) or use a bounded base ('sigmoid', 'ramp', 'squared'); lower the learning rate "
    "(divide it by 1 + alpha); start with alpha = 0 and raise it slowly (AlphaSchedule); or use alpha < 1."
)


class DivergenceWatch:
    """Check every loss: raise if it is not finite, warn once if logits diverge while α ≥ 1.

    On the CPU this happens immediately. On CUDA the numbers of every sixteenth call are copied without
    waiting and read at a later call, so nothing synchronises and the message comes some steps late.
    """

    def __init__(self) -> None:
        self._warned = False
        #: Numbers being copied from the GPU, the event that signals their arrival, and α.
        self._pending: tuple[Tensor, torch.cuda.Event, float] | None = None
        self._calls = 0

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_pending": None}  # pending copies belong to this process

    def __call__(
        self, batch: Batch, loss: Tensor, alpha: float, *, value: float | None = None, frames: int = 0
    ) -> None:
        """Check one step; ``value`` is the loss as a number, if it is known.

        ``batch``, ``loss`` and ``alpha`` are the batch, its loss and the weight of the peer term. ``frames``
        is the number of calls between ``forward`` and the module's own, so that a warning names its caller.
        """
        if value is not None or loss.device.type == "cpu":
            if value is None and loss.ndim == 0:
                value = loss.item()
            finite = bool(torch.isfinite(loss).all()) if value is None else math.isfinite(value)
            self._check(finite, batch.largest or 0.0, alpha, stacklevel=6 + frames)
        elif loss.device.type == "cuda":
            self._read_arrived(frames)
            if self._pending is None and self._calls % CUDA_INTERVAL == 0 and loss.numel():
                self._send(batch.logits.detach(), loss.detach(), alpha)
            self._calls += 1

    def judge(self, *, finite: bool, largest: float, alpha: float, stacklevel: int = 5) -> None:
        """Check one step by its numbers. Deprecated: call the watch with the batch and the loss instead.

        ``finite`` says whether the loss is finite, ``largest`` is the largest |logit|, ``alpha`` the weight
        of the peer term and ``stacklevel`` the number of frames up to the line that a warning points at.
        """
        warn_renamed("DivergenceWatch.judge", "DivergenceWatch.__call__")
        self._check(finite, largest, alpha, stacklevel=stacklevel + 1)

    def _send(self, logits: Tensor, loss: Tensor, alpha: float) -> None:
        low, high = torch.aminmax(logits)
        low = torch.where(torch.isneginf(low), high, low)  # a masked class is not divergence
        largest = torch.maximum(low.abs(), high.abs())
        on_device = torch.stack((torch.isfinite(loss).all().float(), largest.float()))
        numbers = torch.empty(2, pin_memory=True)
        numbers.copy_(on_device, non_blocking=True)
        arrived = torch.cuda.Event()
        arrived.record()
        self._pending = numbers, arrived, alpha

    def _read_arrived(self, frames: int) -> None:
        if self._pending is not None and self._pending[1].query():
            numbers, _, alpha = self._pending
            self._pending = None
            finite, largest = numbers.tolist()
            self._check(bool(finite), largest, alpha, stacklevel=7 + frames)

    def _check(self, finite: bool, largest: float, alpha: float, *, stacklevel: int) -> None:
        """Raise or warn; ``stacklevel`` counts the frames up to the line that called the loss module."""
        if not finite:
            raise DivergenceError(
                f"the loss is not finite (alpha = {alpha:g}, largest |logit| {largest:g}). Training has "
                f"diverged; go back to the last good weights. {REMEDY}"
            )
        diverges = alpha >= 1 and largest > LOGIT_LIMIT
        if diverges and not self._warned:
            warnings.warn(
                f"logits have reached {largest:.3g} (limit {LOGIT_LIMIT:g}) while alpha = {alpha:g} ≥ 1: the "
                f"loss is not bounded below and training diverges. {REMEDY}",
                DivergenceWarning,
                stacklevel=stacklevel,
            )
        self._warned = diverges
