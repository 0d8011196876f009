"""Train many small nets as one computation."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from peerloss._deprecation import renamed_parameters
from peerloss._device import resolve_device
from peerloss._progress import shows_progress, tracker
from peerloss._validation import FloatArray, IntArray, check_choice, check_count
from peerloss.exceptions import InvalidInputError
from peerloss.training.small._nets import (
    BatchStream,
    Block,
    Net,
    PreparedNet,
    RealArray,
    initial_weights,
    prepare_nets,
)
from peerloss.training.small._step_backends import NumbaBackend, TorchBackend, backend_of, batch_losses
from peerloss.training.small._trained_nets import TrainedNets, stacked_logits

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import ArrayLike
    from torch import Tensor

BACKENDS = ("auto", "numba", "torch")
DTYPES = ("float32", "float64")
#: Maximum number of steps whose batches are drawn at a time.
STEPS_AT_ONCE = 128
#: (index of the net, function from features to its logits) → score, higher is better.
Monitor = Callable[[int, Callable[[Any], RealArray]], float]


@renamed_parameters(hidden="hidden_layer_sizes", steps="max_steps")
@shows_progress("training networks")
def train_nets(
    X: ArrayLike | None,
    nets: Sequence[Net],
    *,
    n_classes: int,
    hidden_layer_sizes: Sequence[int] = (8, 8),
    batch_size: int = 64,
    max_steps: int = 1000,
    record_every: int | None = None,
    monitor: Monitor | None = None,
    keep_best: bool = False,
    device: str | torch.device = "cpu",
    backend: str = "auto",
    dtype: str = "float32",
    memory_limit: int = 1 << 30,
    verbose: bool = False,  # noqa: ARG001 - read by the decorator
) -> TrainedNets:
    """Train nets of one architecture, each with its own rows, labels, loss, learning rate and seed.

    The initial weights and the batches of a net come from its own seed, and nothing in its training depends
    on another net. So a net ends with the same weights (up to float rounding) if it is trained alone or
    together with a thousand others, and a net that diverges does not affect the others. Hidden layers use
    ReLU. For two classes there is one output z, which stands for the logits (0, z).

    Parameters
    ----------
    X
        Features (n, d), shared by all nets that have none of their own.
    nets
        The nets to train.
    n_classes
        Number of classes K.
    hidden_layer_sizes, batch_size, max_steps
        Widths of the hidden layers, rows per batch and number of steps, the same for all nets. Batches are
        drawn without replacement, epoch by epoch.
    record_every
        Number of steps between two points of the curves; ``None`` records the end only.
    monitor
        Called as ``monitor(net, logits)`` at every point, where ``logits(X)`` returns the current logits
        (n, K) of the net. The returned score is kept in ``score_curve``. Nets may call it from different
        threads.
    keep_best
        Return the weights of each net at its highest score instead of the last ones (needs ``monitor``).
    device
        ``"cpu"``, ``"cuda"``, another torch device, or ``"auto"``: the GPU if there is one and a layer has at
        least 512 units, else the CPU.
    backend
        ``"numba"`` is fastest on a CPU; it uses ``torch.get_num_threads()`` threads. DMI, ``"gce:q"``,
        ``"bi_tempered"`` and base losses added to ``BASES`` are always trained by ``"torch"``. ``"auto"``
        uses numba if it is installed. Both backends see the same batches; their results differ by rounding.
    dtype
        ``"float32"`` or ``"float64"``. In float32, Adam amplifies the rounding errors of gradients close to
        zero to steps of full size, so the weights depend on the processor, the backend and the other nets. In
        float64, which takes up to twice the time, they agree to many digits as long as training is stable.
    memory_limit
        Bytes that the torch backend may use in addition to ``X`` and the result. If all nets need more, they
        are trained in several parts; a single net is always trained. The numba backend holds one net per
        thread.
    verbose
        Whether to show the progress on stderr: phase, percentage, elapsed time, time left.

    Raises
    ------
    InvalidInputError
        For arguments that do not fit; the message names the net.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> y = (X[:, 0] > 0).astype(int)
    >>> nets = [Net(y, alpha=a, random_state=s, learning_rate=0.01) for a in (0.0, 1.0) for s in range(4)]
    >>> trained = train_nets(X, nets, n_classes=2, max_steps=200)
    >>> trained.logits(X).shape, trained.diverged.any()
    ((8, 200, 2), np.False_)
    """
    k = check_count(n_classes, "n_classes", minimum=2)
    widths = [check_count(width, "hidden_layer_sizes") for width in hidden_layer_sizes]
    check_choice(backend, "backend", BACKENDS)
    check_choice(dtype, "dtype", DTYPES)
    check_count(memory_limit, "memory_limit")
    if keep_best and monitor is None:
        raise InvalidInputError("`keep_best` needs a `monitor` that scores the nets; got None.")
    table, prepared = prepare_nets(X, nets, k, dtype)
    training = _Training(
        table=table,
        nets=prepared,
        sizes=(table.shape[1], *widths, 1 if k == 2 else k),
        batch_size=check_count(batch_size, "batch_size"),
        steps=check_count(max_steps, "max_steps"),
        every=None if record_every is None else check_count(record_every, "record_every"),
        monitor=monitor,
        keep_best=keep_best,
        device=str(resolve_device(device, width=max(widths, default=0))),
    )
    kinds = tuple(backend_of(net, training.device, backend) for net in prepared)
    compiled = [[i] for i, kind in enumerate(kinds) if kind == "numba"]
    threads = min(torch.get_num_threads(), len(compiled))
    with ThreadPoolExecutor(max(1, threads)) as pool:  # the compiled loop releases the GIL
        list((pool.map if threads > 1 else map)(partial(training.run, backend=NumbaBackend), compiled))
    stacked = [i for i, kind in enumerate(kinds) if kind == "torch"]
    # Nets with equal objectives become neighbours, so that the torch backend computes them together.
    stacked.sort(key=lambda i: repr((prepared[i].objective, prepared[i].net.warm_up)))
    size = max(1, memory_limit // training.bytes_per_net(k))
    for start in range(0, len(stacked), size):
        training.run(stacked[start : start + size], partial(TorchBackend, device=training.device))
    return training.result(kinds)


@contextmanager
def flushed_denormals() -> Iterator[None]:
    """Flush denormal numbers to zero in this thread; late in training they make steps ten times slower."""
    was_flushing = bool(torch.tensor(1e-39) * 1.0 == 0)
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(was_flushing)


@dataclass
class _Training:
    """Data and settings of all nets, and their results; each part writes the rows of its nets."""

    table: RealArray
    nets: list[PreparedNet]
    sizes: tuple[int, ...]
    batch_size: int
    steps: int
    every: int | None
    monitor: Monitor | None
    keep_best: bool
    device: str

    def __post_init__(self) -> None:
        self.report, self.steps_done = tracker(len(self.nets) * self.steps), 0
        if self.report is not None:
            self.report(0)
        every, n_nets = self.every or self.steps, len(self.nets)
        self.records = sorted({*range(every, self.steps, every), self.steps})
        n_parameters = sum((n_in + 1) * n_out for n_in, n_out in pairwise(self.sizes))
        self.parameters: RealArray = np.empty((n_nets, n_parameters), dtype=self.table.dtype)
        self.losses: FloatArray = np.full((n_nets, len(self.records)), np.nan)
        self.scores = self.losses.copy()
        self.best_score: FloatArray = np.full(n_nets, -np.inf)
        self.best_step: IntArray = np.full(n_nets, self.steps, dtype=np.int64)

    def bytes_per_net(self, k: int) -> int:
        """Estimate the memory of parameters and moments, activations and gradients, and drawn batches."""
        activations = 3 * self.batch_size * (sum(self.sizes) + 8 * k)
        ahead = STEPS_AT_ONCE * self.batch_size * (4 + 2 * k)  # row indices are int64
        return int(self.table.itemsize * (8 * self.parameters.shape[1] + activations + 2 * ahead))

    @flushed_denormals()
    def run(self, members: list[int], backend: Callable[..., NumbaBackend | TorchBackend]) -> None:
        nets, dtype = [self.nets[i] for i in members], str(self.table.dtype)
        size, steps = self.batch_size, self.steps
        streams = [BatchStream(net, batch_size=size, steps=steps, dtype=dtype) for net in nets]
        initial = np.stack([initial_weights(net.net.random_state, self.sizes, dtype) for net in nets])
        engine = backend(self.table, nets, self.sizes, initial)
        warm_ups = {net.net.warm_up for net in nets if 0 < net.net.warm_up < steps}
        step = 0
        for stop in sorted({*self.records, *warm_ups}):
            while step < stop:
                blocks = [stream.take(min(STEPS_AT_ONCE, stop - step)) for stream in streams]
                engine.run(blocks, step)
                step += len(blocks[0].rows)
                self._report(len(blocks[0].rows) * len(nets))
            if stop in self.records:
                for member, block, weights in zip(members, blocks, engine.parameters(), strict=True):
                    self._record(member, stop, block, weights)

    def _report(self, steps: int) -> None:
        if self.report is not None:
            self.steps_done += steps  # threads may lose a few steps, which only the display would show
            self.report(self.steps_done)

    def _record(self, net: int, step: int, block: Block, parameters: RealArray) -> None:
        """Store loss, score and weights of a net after a step; a diverged net has no score."""
        point = self.records.index(step)
        coefficients, scale = (torch.from_numpy(part[-1:]) for part in (block.coefficients, block.scale))
        z = self._logits(parameters, self.table[block.rows[-1]])
        self.losses[net, point] = batch_losses(self.nets[net].objective_at(step - 1), z, coefficients, scale)
        if self.monitor is not None and np.isfinite(parameters).all():
            self.scores[net, point] = self.monitor(net, lambda X: self._logits(parameters, X)[0].numpy())
        is_better = self.scores[net, point] > self.best_score[net]
        if is_better:
            self.best_score[net] = self.scores[net, point]
        if is_better or not self.keep_best or not np.isfinite(self.best_score[net]):
            self.parameters[net] = parameters
            self.best_step[net] = step if self.keep_best else self.steps

    def _logits(self, parameters: RealArray, X: Any) -> Tensor:
        """Return the logits (1, n, K) of one net."""
        flat = torch.from_numpy(parameters[None])
        x = torch.as_tensor(np.ascontiguousarray(X), dtype=flat.dtype)[None]
        return stacked_logits(flat, self.sizes, x)

    def result(self, kinds: tuple[str, ...]) -> TrainedNets:
        return TrainedNets(
            sizes=self.sizes,
            parameters=self.parameters,
            diverged=np.array([not np.isfinite(row).all() for row in self.parameters]),
            steps=np.array(self.records, dtype=np.int64),
            loss_curve=self.losses,
            score_curve=None if self.monitor is None else self.scores,
            best_step=self.best_step,
            backend=kinds,
        )
