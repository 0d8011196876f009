"""The result of the batched engine, its predictions, and the forward pass of stacked nets in torch."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from peerloss._device import one_thread, resolve_device

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import ArrayLike, NDArray

    from peerloss._validation import FloatArray, IntArray
    from peerloss.training.small._nets import RealArray

#: Rows (times nets) predicted at a time, so that memory does not grow with the data.
ROWS_AT_ONCE = 1 << 14
#: Layers narrower than this gain nothing from threads.
THREADED_WIDTH = 256


@dataclass(frozen=True, eq=False)
class TrainedNets:
    """Weights and curves of nets trained by :func:`train_nets`, in the order of its argument ``nets``."""

    sizes: tuple[int, ...]
    """Number of inputs, hidden widths, number of outputs (one output for two classes)."""
    parameters: RealArray
    """(nets, P): for each layer the weights (outputs, inputs), then the biases."""
    diverged: NDArray[np.bool_]
    """(nets,) whether the weights of a net became NaN or infinite; such a net cannot predict."""
    steps: IntArray
    """(points,) the steps after which the curves were recorded."""
    loss_curve: FloatArray
    """(nets, points) loss of the latest batch."""
    score_curve: FloatArray | None
    """(nets, points) scores returned by ``monitor``; ``None`` without one."""
    best_step: IntArray
    """(nets,) the step whose weights are kept: the last one, or the best one with ``keep_best``."""
    backend: tuple[str, ...]
    """(nets,) ``"numba"`` or ``"torch"``."""

    def __len__(self) -> int:
        return len(self.parameters)

    @property
    def n_classes(self) -> int:
        """Number of classes K."""
        return max(2, self.sizes[-1])

    def weights(self, net: int) -> list[tuple[RealArray, RealArray]]:
        """Return weights (outputs, inputs) and biases of the layers of one net, as in ``nn.Linear``."""
        one = torch.from_numpy(self.parameters[net][None])
        return [(w[0].numpy(), b[0].numpy()) for w, b in layer_views(one, self.sizes)]

    def logits(self, X: ArrayLike, *, nets: ArrayLike | None = None, device: str = "cpu") -> RealArray:
        """Return the logits (nets, n, K) of rows ``X`` (n, d) for some or all ``nets``; uses ``device``."""
        chosen = self.parameters if nets is None else self.parameters[np.asarray(nets)]
        with self._threads():
            parts = [z.cpu().numpy() for z in self._in_blocks(chosen, X, device)]
        return np.concatenate(parts, axis=1)

    def mean_probabilities(
        self, X: ArrayLike, *, nets: ArrayLike | None = None, device: str = "cpu"
    ) -> FloatArray:
        """Return class probabilities (n, K) averaged over ``nets`` (by default all that did not diverge).

        They are computed on ``device`` in double precision, so that the result for a row does not depend on
        the other rows.
        """
        members = np.flatnonzero(~self.diverged) if nets is None else np.asarray(nets)
        blocks = self._in_blocks(self.parameters[members].astype(np.float64), X, device)
        with self._threads():
            parts = [torch.softmax(z, dim=2).mean(dim=0).cpu().numpy() for z in blocks]
        return np.concatenate(parts)

    def _threads(self) -> AbstractContextManager[None]:
        return one_thread() if max(self.sizes) < THREADED_WIDTH else nullcontext()

    def _in_blocks(self, parameters: NDArray[Any], X: ArrayLike, device: str) -> Iterator[Tensor]:
        features = np.asarray(X)
        chosen = resolve_device(device, width=max(self.sizes[1:-1], default=0))
        stack = torch.from_numpy(parameters).to(chosen)
        size = max(1, ROWS_AT_ONCE // max(1, len(parameters)))
        for start in range(0, max(1, len(features)), size):
            part = features[start : start + size].astype(parameters.dtype, order="C")
            block = torch.from_numpy(part).to(chosen)
            yield stacked_logits(stack, self.sizes, block.expand(len(stack), *block.shape))


def layer_views(flat: Tensor, sizes: tuple[int, ...]) -> list[tuple[Tensor, Tensor]]:
    """Return views of flat parameters (nets, P): weights (nets, out, in) and biases (nets, 1, out)."""
    views, at = [], 0
    for n_in, n_out in pairwise(sizes):
        weights = flat[:, at : at + n_in * n_out].view(-1, n_out, n_in)
        biases = flat[:, at + n_in * n_out : at + (n_in + 1) * n_out].view(-1, 1, n_out)
        views.append((weights, biases))
        at += (n_in + 1) * n_out
    return views


def activations(layers: list[tuple[Tensor, Tensor]], x: Tensor) -> Iterator[Tensor]:
    """Yield the output (nets, n, units) of each layer for inputs (nets, n, d), hidden layers after ReLU."""
    for number, (w, b) in enumerate(layers, start=1):
        x = torch.baddbmm(b, x, w.transpose(1, 2))
        yield x.relu_() if number < len(layers) else x


def stacked_logits(flat: Tensor, sizes: tuple[int, ...], x: Tensor) -> Tensor:
    """Return the logits (nets, n, K) of flat parameters (nets, P) for inputs (nets, n, d)."""
    *_, outputs = activations(layer_views(flat, sizes), x)
    return as_class_logits(outputs)


def as_class_logits(outputs: Tensor) -> Tensor:
    """Return (…, K) logits; a single output z stands for the two columns (0, z)."""
    if outputs.shape[-1] > 1:
        return outputs
    return torch.cat((torch.zeros_like(outputs), outputs), dim=-1)
