"""Train many small nets as one computation."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from peerloss._validation import FloatArray, IntArray, as_float_array, as_labels, check_choice, check_count
from peerloss.exceptions import InvalidInputError
from peerloss.training._backends import (
    Backend,
    NumbaBackend,
    TorchBackend,
    has_compiled_gradient,
    has_numba,
)
from peerloss.training._batches import BatchStream, Block, RealArray, first_weights
from peerloss.training._nets import Net, PreparedNet, prepare_net
from peerloss.training._objective import as_class_logits, batch_losses
from peerloss.training._results import TrainedNets, outputs

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import ArrayLike

BACKENDS = ("auto", "numba", "torch")
DTYPES = ("float32", "float64")
#: Most steps whose batches are drawn at a time.
STEPS_AT_ONCE = 128
#: (number of the net, function from features to its logits) → score, higher is better.
Monitor = Callable[[int, Callable[[Any], RealArray]], float]


def train_nets(
    X: ArrayLike | None,
    nets: Sequence[Net],
    *,
    n_classes: int,
    hidden: Sequence[int] = (8, 8),
    batch_size: int = 64,
    steps: int = 1000,
    record_every: int | None = None,
    monitor: Monitor | None = None,
    keep_best: bool = False,
    device: str = "cpu",
    backend: str = "auto",
    dtype: str = "float32",
    memory_limit: int = 1 << 30,
) -> TrainedNets:
    """Train nets of one architecture, each with its own rows, labels, loss, rate and seed.

    A net's first weights and batches come from its own seed and nothing it computes depends on another net,
    so it ends with the same weights (to float rounding) alone and among a thousand. A net that diverges
    harms no other. Hidden layers have ReLU; two classes have one output z, standing for the logits (0, z).

    Parameters
    ----------
    X
        Features (n, d) shared by all nets that bring none of their own.
    nets
        What to train.
    n_classes
        K.
    hidden, batch_size, steps
        Architecture and length of every training. Batches are drawn without replacement, epoch by epoch.
    record_every
        Record curves every so many steps; ``None`` records the end only.
    monitor
        Called as ``monitor(net, logits)`` at every record, where ``logits(X)`` are the net's logits (n, K)
        now; the float it returns is kept in ``score_curve``. Nets may call it from different threads.
    keep_best
        Return each net's weights at its highest score instead of the last ones (needs ``monitor``).
    device
        ``"cpu"`` or a CUDA device.
    backend
        ``"numba"`` is the fastest on a CPU, on as many threads as ``torch.get_num_threads()`` says. DMI, and
        base losses that were added to ``BASES``, are always trained by ``"torch"``. ``"auto"`` uses numba if
        it is installed. Both see the same batches; their results differ by rounding.
    dtype
        ``"float32"`` or ``"float64"``. In float32, Adam turns the rounding of gradients close to zero into
        whole steps, so the weights depend on the processor, the backend and the other nets. In float64,
        which takes up to twice the time, they agree to many digits as long as training is stable.
    memory_limit
        Bytes that the torch path may take at a time beside ``X`` and the result; more nets are trained one
        part after the other, a single net however large. The numba path holds one net a thread.

    Raises
    ------
    InvalidInputError
        For arguments that do not fit; the message names the net.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> y = (X[:, 0] > 0).astype(int)
    >>> nets = [Net(y, alpha=a, seed=s, learning_rate=0.01) for a in (0.0, 1.0) for s in range(4)]
    >>> trained = train_nets(X, nets, n_classes=2, steps=200)
    >>> trained.logits(X).shape, trained.diverged.any()
    ((8, 200, 2), np.False_)
    """
    k = check_count(n_classes, "n_classes", minimum=2)
    plan = _Plan(
        batch_size=check_count(batch_size, "batch_size"),
        steps=check_count(steps, "steps"),
        every=None if record_every is None else check_count(record_every, "record_every"),
        monitor=monitor,
        keep_best=keep_best,
        device=str(torch.device(device)),
        dtype=check_choice(dtype, "dtype", DTYPES),
    )
    check_choice(backend, "backend", BACKENDS)
    check_count(memory_limit, "memory_limit")
    if keep_best and monitor is None:
        raise InvalidInputError("`keep_best` needs a `monitor` that scores the nets; got None.")
    table, prepared = _prepare(X, nets, k, plan.dtype)
    widths = [check_count(width, "hidden") for width in hidden]
    plan.sizes = (table.shape[1], *widths, 1 if k == 2 else k)
    kinds = [_backend_of(net, plan.device, backend) for net in prepared]
    result = _Result(len(prepared), plan)

    def train_part(members: list[int]) -> None:
        with flushed_denormals():
            _train_part(table, [prepared[i] for i in members], members, plan, kinds[members[0]], result)

    _run_in_threads(train_part, [[i] for i, kind in enumerate(kinds) if kind == "numba"])
    # Nets with one objective lie side by side, so that the torch path computes them together.
    stacked = sorted(
        (i for i, kind in enumerate(kinds) if kind == "torch"), key=lambda i: repr(prepared[i].group)
    )
    size = max(1, memory_limit // _bytes_per_net(plan, k))
    for start in range(0, len(stacked), size):
        train_part(stacked[start : start + size])
    return result.finished(tuple(kinds))


def _run_in_threads(function: Callable[[list[int]], None], parts: list[list[int]]) -> None:
    """Spread parts over as many threads as torch has been given; the compiled loop frees the interpreter."""
    threads = min(torch.get_num_threads(), len(parts))
    if threads <= 1:
        for part in parts:
            function(part)
        return
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(function, parts))


@dataclass
class _Plan:
    """What all nets have in common."""

    batch_size: int
    steps: int
    every: int | None
    monitor: Monitor | None
    keep_best: bool
    device: str
    dtype: str
    sizes: tuple[int, ...] = ()

    def records(self) -> list[int]:
        """Return the steps after which curves are recorded; the last one always."""
        return sorted({*range(self.every or self.steps, self.steps, self.every or self.steps), self.steps})

    def n_parameters(self) -> int:
        return sum((n_in + 1) * n_out for n_in, n_out in pairwise(self.sizes))


@dataclass
class _Result:
    """Room for the results of all nets; parts are filled in as they are trained."""

    n_nets: int
    plan: _Plan
    parameters: RealArray = field(init=False)
    losses: FloatArray = field(init=False)
    scores: FloatArray = field(init=False)
    best_step: IntArray = field(init=False)

    def __post_init__(self) -> None:
        points = len(self.plan.records())
        self.parameters = np.empty((self.n_nets, self.plan.n_parameters()), dtype=self.plan.dtype)
        self.losses = np.full((self.n_nets, points), np.nan)
        self.scores = np.full((self.n_nets, points), np.nan)
        self.best_step = np.full(self.n_nets, self.plan.steps, dtype=np.int64)

    def finished(self, kinds: tuple[str, ...]) -> TrainedNets:
        return TrainedNets(
            sizes=self.plan.sizes,
            parameters=self.parameters,
            diverged=np.array([not np.isfinite(row).all() for row in self.parameters]),
            steps=np.array(self.plan.records(), dtype=np.int64),
            loss_curve=self.losses,
            score_curve=None if self.plan.monitor is None else self.scores,
            best_step=self.best_step,
            backend=kinds,
        )


def _prepare(
    X: ArrayLike | None, nets: Sequence[Net], k: int, dtype: str = "float32"
) -> tuple[RealArray, list[PreparedNet]]:
    """Check the nets and put all features into one table."""
    if len(nets) == 0:
        raise InvalidInputError("`nets` is empty; pass at least one Net.")
    tables: dict[int, tuple[int, RealArray]] = {}
    # Nets of one search have the same rows and labels; each array is looked at, and held, once.
    seen: dict[tuple[int, int], IntArray] = {}
    labels: dict[int, IntArray] = {}
    prepared, length = [], 0
    for i, net in enumerate(nets):
        source = X if net.X is None else net.X
        if source is None:
            raise InvalidInputError(f"`nets[{i}].X` must be given where there is no shared `X`; got None.")
        if id(source) not in tables:
            name = "X" if net.X is None else f"nets[{i}].X"
            tables[id(source)] = (length, _as_features(source, name, dtype))
            length += len(tables[id(source)][1])
        offset, features = tables[id(source)]
        key = (id(source), id(net.rows))
        if key not in seen:
            seen[key] = _check_rows(net.rows, len(features), i) + offset
        if id(net.y) not in labels:
            labels[id(net.y)] = as_labels(net.y, f"nets[{i}].y", n_classes=k)
        prepared.append(prepare_net(net, seen[key], labels[id(net.y)], k, f"nets[{i}]"))
    parts = [features for _, features in tables.values()]
    if len({part.shape[1] for part in parts}) > 1:
        raise InvalidInputError(
            f"`X` must have the same number of columns for every net; got {[p.shape[1] for p in parts]}."
        )
    return parts[0] if len(parts) == 1 else np.concatenate(parts), prepared


def _as_features(value: ArrayLike, name: str, dtype: str) -> RealArray:
    ready = isinstance(value, np.ndarray) and value.dtype == dtype and value.ndim == 2 and value.size
    if ready and np.isfinite(value).all():
        return np.ascontiguousarray(value, dtype=dtype)  # spares large data a copy in float64
    return as_float_array(value, name, ndim=2).astype(dtype, order="C")


def _check_rows(value: ArrayLike | None, n: int, i: int) -> IntArray:
    if value is None:
        return np.arange(n)
    rows = np.asarray(value)
    if rows.ndim != 1 or rows.dtype.kind not in "iu" or rows.size == 0:
        raise InvalidInputError(f"`nets[{i}].rows` must be integer indices, shape (m,); got {rows.dtype}.")
    if rows.min() < 0 or rows.max() >= n:
        raise InvalidInputError(
            f"`nets[{i}].rows` must lie in 0..{n - 1}; found {rows.min()} to {rows.max()}."
        )
    return rows.astype(np.int64)


def _backend_of(net: PreparedNet, device: str, backend: str) -> str:
    """Decide by the net alone, never by its company, so that grouping changes nothing."""
    if backend == "numba" and not has_numba():
        raise InvalidInputError("`backend` 'numba' needs numba: pip install numba. Or use backend='auto'.")
    if backend == "torch" or device != "cpu" or not has_compiled_gradient(net):
        return "torch"
    return "numba"


def _bytes_per_net(plan: _Plan, k: int) -> int:
    """Parameters with moments and work space, activations with gradients, batches drawn ahead."""
    activations = 3 * plan.batch_size * (sum(plan.sizes) + 8 * k)
    ahead = STEPS_AT_ONCE * plan.batch_size * (4 + 2 * k)  # row numbers are int64
    return np.dtype(plan.dtype).itemsize * (8 * plan.n_parameters() + activations + 2 * ahead)


def _train_part(
    table: RealArray,
    nets: list[PreparedNet],
    members: list[int],
    plan: _Plan,
    kind: str,
    result: _Result,
) -> None:
    streams = [
        BatchStream(net, batch_size=plan.batch_size, steps=plan.steps, dtype=plan.dtype) for net in nets
    ]
    engine: Backend = (
        NumbaBackend(table, nets, plan.sizes)
        if kind == "numba"
        else TorchBackend(table, nets, plan.sizes, plan.device)
    )
    engine.start(np.stack([first_weights(net.net.seed, plan.sizes, plan.dtype) for net in nets]))
    records = plan.records()
    stops = sorted({*records, *(net.net.warm_start for net in nets if 0 < net.net.warm_start < plan.steps)})
    best = np.full(len(nets), -np.inf)
    step, drawn, ahead = 0, 0, [stream.take(0) for stream in streams]
    for stop in stops:
        while step < stop:
            if drawn == 0:
                drawn = min(STEPS_AT_ONCE, plan.steps - step)
                ahead = [stream.take(drawn) for stream in streams]
            count = min(drawn, stop - step)
            used = len(ahead[0].rows) - drawn
            blocks = [block.part(used, used + count) for block in ahead]
            engine.run(blocks, step)
            step, drawn = step + count, drawn - count
        if stop in records:
            last = [block.part(-1, len(block.rows)) for block in blocks]
            _record(engine.parameters(), table, nets, members, last, plan, result, best, stop)


def _record(
    parameters: RealArray,
    table: RealArray,
    nets: list[PreparedNet],
    members: list[int],
    blocks: list[Block],
    plan: _Plan,
    result: _Result,
    best: FloatArray,
    step: int,
) -> None:
    """Write down losses, scores and weights after a step; a diverged net has no score."""
    point = plan.records().index(step)
    for i, (net, member, block) in enumerate(zip(nets, members, blocks, strict=True)):
        flat = torch.from_numpy(parameters[i : i + 1])
        z = as_class_logits(outputs(flat, plan.sizes, torch.from_numpy(table[block.rows])))
        objective = net.warm_objective if step <= net.net.warm_start else net.objective
        coefficients, scale = torch.from_numpy(block.coefficients), torch.from_numpy(block.scale)
        result.losses[member, point] = float(batch_losses(objective, z, coefficients, scale))
        finite = bool(np.isfinite(parameters[i]).all())
        if plan.monitor is not None and finite:
            result.scores[member, point] = plan.monitor(member, _predictor(flat, plan.sizes))
        better = result.scores[member, point] > best[i]
        if better:
            best[i] = result.scores[member, point]
        if plan.keep_best and (better or not np.isfinite(best[i])):
            result.best_step[member] = step
        if not plan.keep_best or better or not np.isfinite(best[i]):
            result.parameters[member] = parameters[i]


def _predictor(flat: torch.Tensor, sizes: tuple[int, ...]) -> Callable[[Any], RealArray]:
    def logits(X: Any) -> RealArray:
        x = torch.as_tensor(np.ascontiguousarray(X), dtype=flat.dtype)[None]
        values: RealArray = as_class_logits(outputs(flat, sizes, x))[0].numpy()
        return values

    return logits


@contextmanager
def flushed_denormals() -> Iterator[None]:
    """Flush denormal numbers to zero in this thread: late in training they cost tenfold. Undone after."""
    tiny = torch.tensor(1e-39) * 1.0
    was_flushing = bool((tiny * 1.0) == 0)
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(was_flushing)
