"""A running mean of a model's weights: what it predicts is steadier than what the last step left behind."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor, nn


class WeightAverage:
    """The exponential moving average of all floating-point weights and buffers of a model.

    Early on the mean forgets faster, as 9/(10 + t), so that it does not drag the first weights along.
    All tensors are updated by one fused operation.
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
        """Take in the weights as they are now."""
        decay = min(self.decay, (1 + self.updates) / (10 + self.updates))
        torch._foreach_lerp_(self._mean, self._live, 1.0 - decay)
        self.updates += 1

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Put the mean into the model, and the weights back afterwards."""
        kept = [tensor.clone() for tensor in self._live]
        self._write(self._mean)
        try:
            yield
        finally:
            self._write(kept)

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint needs."""
        return {"updates": self.updates, "mean": dict(zip(self.names, self._mean, strict=True))}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where a checkpoint stopped."""
        self.updates = int(state["updates"])
        for name, mean in zip(self.names, self._mean, strict=True):
            mean.copy_(state["mean"][name])

    @torch.no_grad()
    def _write(self, values: list[Tensor]) -> None:
        torch._foreach_copy_(self._live, values)
