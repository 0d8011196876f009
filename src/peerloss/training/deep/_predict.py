"""Logits and probabilities of many rows, and the moving average of the weights that predicts them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from peerloss._validation import check_count
from peerloss.exceptions import InvalidInputError
from peerloss.functional.batch import as_columns
from peerloss.training.deep._augment import to_inputs
from peerloss.training.deep._inputs import number_type, open_inputs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import ArrayLike
    from torch.utils.data import Dataset

    from peerloss.training.deep._input_rows import InputRows, Inputs
    from peerloss.training.deep._ranks import Ranks


def predict_logits(
    model: Callable[..., Any],
    X: Tensor | ArrayLike | Mapping[str, Any] | Dataset[Any],
    *,
    batch_size: int = 2048,
    half_precision: bool = True,
) -> Tensor:
    """Return the logits (n, K) of inputs ``X`` in float32.

    All batches have the same size, so that a compiled model is compiled once. The last one is filled up with
    rows from the beginning.

    Parameters
    ----------
    model
        A model that returns logits, or an object or mapping with ``logits``. It is put into evaluation mode
        meanwhile.
    X
        Tensors on the device of the model, or any other inputs that :func:`train_deep` takes, which are read
        batch by batch. uint8 images (n, height, width, channels) are scaled. The arrays of a mapping are
        passed as keywords.
    batch_size, half_precision
        Rows per batch, and whether to compute in bfloat16 on a GPU.
    """
    inputs = _as_rows(X, model)
    size = check_count(batch_size, "batch_size")
    options: dict[str, Any] = {"batch_size": size, "half_precision": half_precision}
    with _evaluating(model):
        return _predict(model, inputs, _all_rows(inputs), mirrored=False, **options)


def predict_mirrored(
    model: Callable[..., Any],
    X: Tensor | ArrayLike | Mapping[str, Any] | Dataset[Any],
    *,
    batch_size: int = 2048,
    half_precision: bool = True,
) -> Tensor:
    """Return probabilities (n, K); for uint8 images the mean over each image and its mirror image.

    ``model``, ``X``, ``batch_size`` and ``half_precision`` are those of :func:`predict_logits`.
    """
    inputs = _as_rows(X, model)
    size = check_count(batch_size, "batch_size")
    options: dict[str, Any] = {"batch_size": size, "half_precision": half_precision}
    with _evaluating(model):
        return _predict_views(model, inputs, _all_rows(inputs), mirrored=True, **options).mean(dim=0)


def call_model(model: Callable[..., Any], inputs: Inputs) -> Tensor:
    """Return the logits of a model for a tensor, or for tensors that are passed as keywords."""
    output = model(inputs) if isinstance(inputs, Tensor) else model(**inputs)
    if isinstance(output, Tensor):
        return output
    logits = output.get("logits") if isinstance(output, Mapping) else getattr(output, "logits", None)
    if not isinstance(logits, Tensor):
        raise InvalidInputError(
            "`model` must return a tensor of logits, or an object or mapping with `logits`; got "
            f"{type(output).__name__}. Return only the logits."
        )
    return logits


@contextmanager
def _evaluating(model: Any) -> Iterator[None]:
    """Put the modules of a model that are in training mode into evaluation mode inside the context."""
    modules = model.modules() if isinstance(model, nn.Module) else ()
    training = [module for module in modules if module.training]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True


def _as_rows(X: Any, model: Any) -> InputRows:
    parts = {"X": X}
    if isinstance(X, Mapping) and X:
        parts = {f"X[{name!r}]": part for name, part in X.items()}
    weights = model.parameters() if isinstance(model, nn.Module) else ()
    device = next((weight.device for weight in weights), torch.device("cpu"))
    # Tensors are used where they are.
    tensors = [part for part in parts.values() if isinstance(part, Tensor)]
    if len(tensors) == len(parts):
        return open_inputs(X, "X", model, tensors[0].device, on_device=True)
    return open_inputs(X, "X", model, device, on_device=False)


def _all_rows(X: InputRows) -> Tensor:
    return torch.arange(len(X), device=X.device)


@torch.no_grad()
def _predict(
    model: Callable[..., Any],
    X: InputRows,
    rows: Tensor,
    *,
    mirrored: bool,
    batch_size: int,
    half_precision: bool,
) -> Tensor:
    """Return the logits of some rows; if ``mirrored``, of their mirror images."""
    n = len(rows)
    size = min(batch_size, n)
    order = rows[torch.arange(-(-n // size) * size, device=X.device) % n]
    parts, dtype = [], number_type(model)
    for inputs in X.batches(order, size):
        plain: Any = inputs
        if X.is_images:
            plain = to_inputs(plain.flip(2) if mirrored else plain)
            plain = plain if dtype is None else plain.to(dtype)
        with precision(X.device, half_precision):
            # A copy: a compiled model writes its next outputs to the same memory.
            parts.append(call_model(model, plain).to(torch.float32, copy=True))
    return torch.cat(parts)[:n]


def _predict_views(
    model: Callable[..., Any], X: InputRows, rows: Tensor, *, mirrored: bool, **options: Any
) -> Tensor:
    """Return probabilities (views, n, K): of the inputs and, if ``mirrored``, of the mirror images."""
    views = (False, True) if mirrored and X.is_images else (False,)
    seen = [_predict(model, X, rows, mirrored=view, **options) for view in views]
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
        trained = dict(model.named_parameters())
        self.buffers = [
            mean for name, mean in zip(self.names, self._mean, strict=True) if name not in trained
        ]
        """The averages of buffers, such as the statistics of batch norm."""

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
    """Predictions of a model in training, with the averaged weights if there are any.

    Of several processes each predicts a part of the rows and gets the predictions of all.
    """

    model: nn.Module
    forward: Any
    """The model or its compiled form."""
    average: WeightAverage | None
    batch_size: int
    half_precision: bool
    ranks: Ranks

    def averaged(self) -> AbstractContextManager[None]:
        """Use the averaged weights, if there are any, inside the context."""
        return nullcontext() if self.average is None else self.average.in_use()

    def probabilities(self, X: InputRows, *, mirrored: bool = False) -> Tensor:
        """Return probabilities (n, K)."""
        views = self.views(X, mirrored=mirrored)
        return views[0] if len(views) == 1 else views.mean(dim=0)

    def views(self, X: InputRows, *, mirrored: bool) -> Tensor:
        """Return probabilities (views, n, K): of the inputs and, if ``mirrored``, of the mirror images."""
        self.model.eval()
        options: dict[str, Any] = {"batch_size": self.batch_size, "half_precision": self.half_precision}
        rows = self.ranks.block(len(X), X.device)
        with self.averaged():
            probs = _predict_views(self.forward, X, rows, mirrored=mirrored, **options)
        return self.ranks.join_blocks(probs, len(X))


def precision(device: torch.device, half_precision: bool) -> torch.autocast:
    """Compute in bfloat16 inside the context, on a GPU and if ``half_precision``."""
    enabled = half_precision and device.type == "cuda"
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=enabled)
