"""The moving average of the weights of a model; it predicts more reliably than the last weights.

``torch.optim.swa_utils.AveragedModel`` is not used. It averages into a deep copy of the model, but the
average must be evaluated in the tensors of the model itself: compiled code and CUDA graphs use their
addresses, and a copy would be compiled a second time. So the swap in :meth:`WeightAverage.in_use` would be
needed anyway. Also its first update copies the weights instead of averaging them, and it passes the number of
updates as a tensor on the device, which the decay below could read only by synchronising.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor, nn


class WeightAverage:
    """The exponential moving average of all floating-point weights and buffers of a model.

    The decay of update t is at most (1 + t)/(10 + t), so that the initial weights are forgotten quickly. All
    tensors are updated by one fused operation.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        named = {**dict(model.named_parameters()), **dict(model.named_buffers())}
        self.names = [name for name, tensor in named.items() if tensor.is_floating_point()]
        self.decay = decay
        self.updates = 0
        self._live = [named[name].detach() for name in self.names]
        self._mean = [tensor.clone() for tensor in self._live]

    @torch.no_grad()
    def update(self) -> None:
        """Update the average with the current weights."""
        decay = min(self.decay, (1 + self.updates) / (10 + self.updates))
        torch._foreach_lerp_(self._mean, self._live, 1.0 - decay)
        self.updates += 1

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Copy the average into the model, and restore its weights afterwards."""
        kept = [tensor.clone() for tensor in self._live]
        self._write(self._mean)
        try:
            yield
        finally:
            self._write(kept)

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        return {"updates": self.updates, "mean": dict(zip(self.names, self._mean, strict=True))}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the ``state`` of a checkpoint."""
        self.updates = int(state["updates"])
        for name, mean in zip(self.names, self._mean, strict=True):
            mean.copy_(state["mean"][name])

    @torch.no_grad()
    def _write(self, values: list[Tensor]) -> None:
        torch._foreach_copy_(self._live, values)
