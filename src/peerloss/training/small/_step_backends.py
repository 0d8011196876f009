"""Two ways to take the optimiser steps of nets: batched in torch, or one net at a time in numba."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from peerloss._device import one_thread
from peerloss._installing import install_command
from peerloss.exceptions import InvalidInputError
from peerloss.functional.base import DEFAULT_GCE_Q, as_base
from peerloss.functional.correction import forward_rows
from peerloss.functional.information import joint_loss
from peerloss.training.small._trained_nets import activations, as_class_logits, layer_views

if TYPE_CHECKING:
    from collections.abc import Sequence

    from peerloss.training.small._nets import Block, Objective, PreparedNet, RealArray

BETAS, ADAM_EPS = (0.9, 0.999), 1e-8


@cache
def has_numba() -> bool:
    """Whether the compiled loop can be used: numba is installed and compatible with this NumPy."""
    try:
        import_module("peerloss.training.small._numba_loop")
    except ImportError:
        return False
    return True


def backend_of(net: PreparedNet, device: str, requested: str) -> str:
    """Choose by the net alone, so that its result does not depend on the other nets.

    DMI, ``"gce:q"``, ``"bi_tempered"`` and base losses that users add to ``BASES`` have no compiled gradient.
    """
    if requested == "numba" and not has_numba():
        raise InvalidInputError(
            f"`backend` 'numba' needs numba: {install_command('fast')}. Or use backend='auto'."
        )
    if requested == "torch" or device != "cpu" or not has_numba():
        return "torch"
    from peerloss.training.small._numba_loop import CODES  # noqa: PLC0415 (numba is optional and slow to import)

    return "numba" if _code_name(net.objective) in CODES else "torch"


def _code_name(objective: Objective) -> str:
    return objective.base if objective.family == "linear" else objective.family


def decay_factors(nets: Sequence[PreparedNet], sizes: tuple[int, ...], dtype: np.dtype[Any]) -> RealArray:
    """Return learning rate times weight decay of every parameter, (nets, P); zero for biases."""
    layers = [np.repeat([1.0, 0.0], (n_in * n_out, n_out)) for n_in, n_out in pairwise(sizes)]
    factors = np.array([net.net.learning_rate * net.net.weight_decay for net in nets])
    products: RealArray = (factors[:, None] * np.concatenate(layers)).astype(dtype)
    return products


class TorchBackend:
    """Train nets by AdamW on stacked parameters, starting from ``initial`` (nets, P) with zero moments.

    Autograd computes only the gradient with respect to the logits; the layers are differentiated explicitly.
    One thread is used: many small operations gain little from a second one, and become up to thirty times
    slower (measured) if another process uses that core.
    """

    def __init__(
        self,
        X: RealArray,
        nets: Sequence[PreparedNet],
        sizes: tuple[int, ...],
        initial: RealArray,
        device: str,
    ) -> None:
        self._X, self._nets, self._device = torch.from_numpy(X).to(device), nets, device
        decay = decay_factors(nets, sizes, X.dtype)
        self._decay = torch.from_numpy(decay).to(device) if decay.any() else None
        rates = [[net.net.learning_rate] for net in nets]
        self._rate = torch.tensor(rates, dtype=self._X.dtype, device=device)
        self._flat = torch.from_numpy(initial).to(device)
        self._gradient, self._m, self._v, self._work = (torch.zeros_like(self._flat) for _ in range(4))
        self._layers = layer_views(self._flat, sizes)
        self._layer_gradients = layer_views(self._gradient, sizes)

    def parameters(self) -> RealArray:
        """Return a copy of the current parameters."""
        current: RealArray = self._flat.cpu().numpy().copy()
        return current

    def run(self, blocks: Sequence[Block], first_step: int) -> None:
        """Take the steps of the blocks: one block per net, all with the same number of steps."""
        width = max(block.rows.shape[1] for block in blocks)
        rows, coefficients, scale = (
            torch.from_numpy(np.stack([_pad(array, width) for array in arrays], axis=1)).to(self._device)
            for arrays in zip(*blocks, strict=True)
        )
        groups = _groups(self._nets, first_step)
        with one_thread():
            for s in range(len(rows)):
                self._backpropagate(self._X[rows[s]], coefficients[s], scale[s], groups)
                self._adam(first_step + s + 1)

    def _backpropagate(self, x: Tensor, coefficients: Tensor, scale: Tensor, groups: list[Any]) -> None:
        *inputs, logits = [x, *activations(self._layers, x)]
        delta = _output_gradient(logits, coefficients, scale, groups)
        for layer in reversed(range(len(inputs))):
            gw, gb = self._layer_gradients[layer]
            gw.copy_(torch.bmm(delta.transpose(1, 2), inputs[layer]))
            torch.sum(delta, dim=1, keepdim=True, out=gb)
            if layer:
                delta = torch.bmm(delta, self._layers[layer][0])
                delta = torch.ops.aten.threshold_backward(delta, inputs[layer], 0)

    def _adam(self, step: int) -> None:
        g, m, v, work = self._gradient, self._m, self._v, self._work
        m.lerp_(g, 1 - BETAS[0])
        v.mul_(BETAS[1]).addcmul_(g, g, value=1 - BETAS[1])
        torch.sqrt(v, out=work).mul_((1 - BETAS[1] ** step) ** -0.5).add_(ADAM_EPS)
        if self._decay is not None:
            self._flat.addcmul_(self._flat, self._decay, value=-1.0)
        self._flat.sub_(torch.div(m, work, out=work).mul_(self._rate / (1 - BETAS[0] ** step)))


class NumbaBackend:
    """Train nets one after the other in the compiled loop, which releases the GIL."""

    def __init__(
        self, X: RealArray, nets: Sequence[PreparedNet], sizes: tuple[int, ...], initial: RealArray
    ) -> None:
        from peerloss.training.small import _numba_loop  # noqa: PLC0415 (numba is optional and slow to import)

        self._loop, self._X, self._nets = _numba_loop, X, nets
        self._sizes = np.array(sizes, dtype=np.int64)
        self._decay = decay_factors(nets, sizes, X.dtype)
        self._state = np.zeros((len(initial), 3, initial.shape[1]), dtype=initial.dtype)
        self._state[:, 0] = initial

    def parameters(self) -> RealArray:
        return self._state[:, 0].copy()

    def run(self, blocks: Sequence[Block], first_step: int) -> None:
        for net, block, state, decay in zip(self._nets, blocks, self._state, self._decay, strict=True):
            objective = net.objective_at(first_step)
            self._loop.train_block(
                self._X, block.rows, block.coefficients, block.scale, self._sizes, state, decay,
                net.net.learning_rate, self._loop.CODES[_code_name(objective)], objective.eps, DEFAULT_GCE_Q,
                first_step,
            )  # fmt: skip


def _groups(nets: Sequence[PreparedNet], step: int) -> list[tuple[slice, Objective]]:
    """Return slices of consecutive nets that have the same objective."""
    groups, at = [], 0
    for objective, run in groupby(net.objective_at(step) for net in nets):
        length = len(list(run))
        groups.append((slice(at, at + length), objective))
        at += length
    return groups


def _output_gradient(outputs: Tensor, coefficients: Tensor, scale: Tensor, groups: list[Any]) -> Tensor:
    leaf = outputs.detach().requires_grad_()
    with torch.enable_grad():
        z = as_class_logits(leaf)
        losses = [batch_losses(o, z[i], coefficients[i], scale[i]).sum() for i, o in groups]
        (gradient,) = torch.autograd.grad(sum(losses[1:], losses[0]), leaf)
    return gradient


def batch_losses(objective: Objective, z: Tensor, coefficients: Tensor, scale: Tensor) -> Tensor:
    """Return the loss of each net (nets,), from logits and coefficients (nets, batch, K)."""
    if objective.family == "forward":
        return (scale * forward_rows(z, coefficients)).sum(dim=1)
    if objective.family == "dmi":
        joint = torch.bmm(coefficients.transpose(1, 2), torch.softmax(z, dim=2))
        return joint_loss(joint, objective.eps)
    losses = as_base(objective.base).columns(z.flatten(0, 1), objective.eps)
    return (coefficients * losses.view_as(z)).sum(dim=(1, 2))


def _pad(array: Any, width: int) -> Any:
    """Pad the batch dimension with zeros: rows that add nothing to the loss."""
    missing = width - array.shape[1]
    return np.pad(array, [(0, 0), (0, missing)] + [(0, 0)] * (array.ndim - 2)) if missing else array
