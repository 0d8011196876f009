"""What a batched training returns, and how it predicts."""

from __future__ import annotations

from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from peerloss.training._objective import as_class_logits

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import ArrayLike, NDArray

    from peerloss._validation import FloatArray, IntArray
    from peerloss.training._batches import RealArray

#: Rows predicted at a time, so that memory does not grow with the data.
ROWS_AT_ONCE = 1 << 14
#: Layers under this width gain nothing from threads.
WIDE = 256


@dataclass(frozen=True, eq=False)
class TrainedNets:
    """Weights and curves of nets trained by :func:`train_nets`, in the order they were given."""

    sizes: tuple[int, ...]
    """Inputs, hidden widths, outputs (one output for two classes)."""
    parameters: RealArray
    """(nets, P): layer after layer the weights (outputs, inputs), then the biases."""
    diverged: NDArray[np.bool_]
    """(nets,) whether a net's weights left the finite numbers; such a net is of no use."""
    steps: IntArray
    """(points,) the numbers of steps after which the curves were recorded."""
    loss_curve: FloatArray
    """(nets, points) loss of the latest batch."""
    score_curve: FloatArray | None
    """(nets, points) what ``monitor`` returned; ``None`` without one."""
    best_step: IntArray
    """(nets,) the step whose weights are kept: the last one unless the best were asked for."""
    backend: tuple[str, ...]
    """(nets,) ``"numba"`` or ``"torch"``."""

    def __len__(self) -> int:
        return len(self.parameters)

    @property
    def n_classes(self) -> int:
        """K."""
        return max(2, self.sizes[-1])

    def weights(self, net: int) -> list[tuple[RealArray, RealArray]]:
        """Return weights (outputs, inputs) and biases of one net's layers, as ``nn.Linear`` has them."""
        one = torch.from_numpy(self.parameters[net][None])
        return [(w[0].numpy(), b[0].numpy()) for w, b in layer_views(one, self.sizes)]

    def logits(self, X: ArrayLike, *, nets: ArrayLike | None = None, device: str = "cpu") -> RealArray:
        """Return the logits (nets, n, K) of rows ``X`` (n, d), of all or some ``nets``, from ``device``."""
        chosen = self.parameters if nets is None else self.parameters[np.asarray(nets)]
        with self._threads():
            parts = [z.cpu().numpy() for z in self._in_blocks(chosen, X, device)]
        return np.concatenate(parts, axis=1)

    def mean_probabilities(
        self, X: ArrayLike, *, nets: ArrayLike | None = None, device: str = "cpu"
    ) -> FloatArray:
        """Return class probabilities (n, K) averaged over nets (over those that did not diverge).

        They are computed on ``device`` in double precision, so that a row's do not depend on the rows beside
        it.
        """
        members = np.flatnonzero(~self.diverged) if nets is None else np.asarray(nets)
        blocks = self._in_blocks(self.parameters[members].astype(np.float64), X, device)
        with self._threads():
            parts = [torch.softmax(z, dim=2).mean(dim=0).cpu().numpy() for z in blocks]
        return np.concatenate(parts)

    def _threads(self) -> AbstractContextManager[None]:
        return one_thread() if max(self.sizes) < WIDE else nullcontext()

    def _in_blocks(self, parameters: NDArray[Any], X: ArrayLike, device: str) -> Iterator[Tensor]:
        features = np.asarray(X)
        stack = torch.from_numpy(parameters).to(device)
        size = max(1, ROWS_AT_ONCE // max(1, len(parameters)))
        for start in range(0, max(1, len(features)), size):
            part = features[start : start + size].astype(parameters.dtype, order="C")
            block = torch.from_numpy(part).to(device)
            yield as_class_logits(outputs(stack, self.sizes, block.expand(len(stack), *block.shape)))


def layer_views(flat: Tensor, sizes: tuple[int, ...]) -> list[tuple[Tensor, Tensor]]:
    """Return views of flat parameters (nets, P): weights (nets, out, in) and biases (nets, 1, out)."""
    views, at = [], 0
    for n_in, n_out in pairwise(sizes):
        weights = flat[:, at : at + n_in * n_out].view(-1, n_out, n_in)
        biases = flat[:, at + n_in * n_out : at + (n_in + 1) * n_out].view(-1, 1, n_out)
        views.append((weights, biases))
        at += (n_in + 1) * n_out
    return views


def outputs(flat: Tensor, sizes: tuple[int, ...], x: Tensor) -> Tensor:
    """Return the last layer's outputs (nets, n, out) for inputs (nets, n, d)."""
    *hidden, (w_last, b_last) = layer_views(flat, sizes)
    for w, b in hidden:
        x = torch.baddbmm(b, x, w.transpose(1, 2)).relu_()
    return torch.baddbmm(b_last, x, w_last.transpose(1, 2))


@contextmanager
def one_thread() -> Iterator[None]:
    """Keep torch to one thread: its small operations lose tenfold where another process wants the second."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
