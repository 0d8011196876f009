"""Logits and probabilities of many rows, and the moving average of the weights that predicts them."""

from __future__ import annotations

from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from peerloss.functional.batch import as_columns
from peerloss.training.deep._augment import to_inputs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import nn


@torch.no_grad()
def predict_logits(
    model: Callable[[Tensor], Tensor], X: Tensor, *, batch_size: int = 2048, half_precision: bool = True
) -> Tensor:
    """Return the logits (n, K) of inputs ``X`` in float32.

    All batches have the same size, so that a compiled model is compiled once. The last one is filled up with
    rows from the beginning.

    Parameters
    ----------
    model
        A model in evaluation mode.
    X
        Inputs on the device of the model; uint8 images (n, height, width, channels) are scaled.
    batch_size, half_precision
        Rows per batch, and whether to compute in bfloat16 on a GPU.
    """
    n = len(X)
    size = min(batch_size, n)
    order = torch.arange(-(-n // size) * size, device=X.device) % n
    parts = []
    for batch in order.split(size):
        rows = X[batch]
        with precision(X.device, half_precision):
            # A copy: a compiled model writes its next outputs to the same memory.
            parts.append(model(to_inputs(rows) if is_images(X) else rows).to(torch.float32, copy=True))
    return torch.cat(parts)[:n]


def predict_mirrored(
    model: Callable[[Tensor], Tensor], X: Tensor, *, batch_size: int = 2048, half_precision: bool = True
) -> Tensor:
    """Return probabilities (n, K); for uint8 images the mean over each image and its mirror image.

    ``model``, ``X``, ``batch_size`` and ``half_precision`` are those of :func:`predict_logits`.
    """
    options: dict[str, Any] = {"batch_size": batch_size, "half_precision": half_precision}
    return _predict_views(model, X, mirrored=True, **options).mean(dim=0)


def _predict_views(
    model: Callable[[Tensor], Tensor], X: Tensor, *, mirrored: bool, batch_size: int, half_precision: bool
) -> Tensor:
    """Return probabilities (views, n, K): of the inputs and, if ``mirrored``, of the mirror images."""
    views = (X, X.flip(2)) if mirrored and is_images(X) else (X,)
    seen = [predict_logits(model, v, batch_size=batch_size, half_precision=half_precision) for v in views]
    return torch.stack([torch.softmax(as_columns(logits), dim=1) for logits in seen])


# torch.optim.swa_utils.AveragedModel is not used. It averages into a deep copy of the model, but compiled
# code and CUDA graphs need the average in the tensors of the model itself. Its first update copies the
# weights, and its decay could read the number of updates, a tensor on the device, only by synchronising.
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
        torch._foreach_copy_(self._live, self._mean)
        try:
            yield
        finally:
            torch._foreach_copy_(self._live, kept)

    def state_dict(self) -> dict[str, Any]:
        return {"updates": self.updates, "mean": dict(zip(self.names, self._mean, strict=True))}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.updates = int(state["updates"])
        for name, mean in zip(self.names, self._mean, strict=True):
            mean.copy_(state["mean"][name])


@dataclass(frozen=True, eq=False)
class AveragedPredictor:
    """Predictions of a model in training, with the averaged weights if there are any."""

    model: nn.Module
    forward: Any
    """The model or its compiled form."""
    average: WeightAverage | None
    batch_size: int
    half_precision: bool

    def averaged(self) -> AbstractContextManager[None]:
        """Use the averaged weights, if there are any, inside the context."""
        return nullcontext() if self.average is None else self.average.in_use()

    def probabilities(self, X: Tensor, *, mirrored: bool = False) -> Tensor:
        """Return probabilities (n, K)."""
        views = self.views(X, mirrored=mirrored)
        return views[0] if len(views) == 1 else views.mean(dim=0)

    def views(self, X: Tensor, *, mirrored: bool) -> Tensor:
        """Return probabilities (views, n, K): of the inputs and, if ``mirrored``, of the mirror images."""
        self.model.eval()
        options: dict[str, Any] = {"batch_size": self.batch_size, "half_precision": self.half_precision}
        with self.averaged():
            return _predict_views(self.forward, X, mirrored=mirrored, **options)


def is_images(X: Tensor) -> bool:
    """Whether inputs are uint8 images (n, height, width, channels)."""
    return X.dtype == torch.uint8 and X.ndim == 4


def precision(device: torch.device, half_precision: bool) -> torch.autocast:
    """Compute in bfloat16 inside the context, on a GPU and if ``half_precision``."""
    enabled = half_precision and device.type == "cuda"
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=enabled)
