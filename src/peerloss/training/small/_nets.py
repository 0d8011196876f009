"""One net of the engine: its settings, its loss as coefficients, and its random batches."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from peerloss._deprecation import renamed_fields
from peerloss._probabilities import label_frequencies
from peerloss._validation import (
    FloatArray,
    GivenLabels,
    IntArray,
    as_float_array,
    as_prior,
    check_choice,
    check_count,
    check_finite,
    check_in_range,
    check_same_length,
    read_labels,
)
from peerloss.exceptions import InvalidInputError
from peerloss.functional.base import DEFAULT_EPS, as_base, check_trainable_base
from peerloss.functional.information import DEFAULT_DMI_EPS
from peerloss.functional.peer import PEERS
from peerloss.noise import NoiseModel, as_noise_model

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike

#: float32 or float64, as requested by ``dtype``.
RealArray = NDArray[np.floating[Any]]
#: Approximate number of row indices shuffled at a time.
SHUFFLED_AT_ONCE = 1 << 14
LOSSES = ("peer", "backward", "forward", "dmi")


@renamed_fields(seed="random_state", warm_start="warm_up", transition="noise")
@dataclass(frozen=True, eq=False)
class Net:
    """The data and settings of one net that :func:`train_nets` trains.

    Parameters
    ----------
    y
        Noisy class codes 0..K-1, one per row of the net; −1 marks a row without a label, which is left out.
        Or soft labels (n, K): floats, such as shares of votes, that sum to one in each row, or NaN in a row
        without a label. Losses are linear in the soft label, except ``"forward"``: there a row is trained as
        one copy per class with a share, weighted by it, so a batch holds fewer different rows.
    rows
        Indices of the rows that the net is trained on; ``None`` means all rows.
    X
        Features of this net; ``None`` means the features that all nets share.
    weight
        Non-negative weights of the rows. They weight both the loss and the counted prior; only their ratios
        matter.
    loss
        ``"peer"`` (``alpha=0`` is the plain loss), ``"backward"``, ``"forward"`` or ``"dmi"``.
    base
        Name of the base loss. Only ``"peer"`` and ``"backward"`` use it.
    alpha, peers, noisy_prior
        As in :class:`~peerloss.PeerLoss`. Only ``"peer"`` uses them. If ``noisy_prior`` is ``None``, it is
        counted over the rows of the net; for soft labels it is their mean.
    noise
        Noise model or matrix T. ``"backward"`` and ``"forward"`` need it.
    eps
        Number added to probabilities inside the logarithm of cross entropy.
    dmi_eps
        The ``eps`` of :func:`~peerloss.functional.dmi_loss`. Only ``"dmi"`` uses it.
    learning_rate, weight_decay
        Settings of AdamW. The decay applies to weights, not to biases.
    warm_up
        Number of steps at the start that minimise plain cross entropy. ``"dmi"`` needs them, because its
        value does not depend on the order of the classes.
    random_state
        Seed of the initial weights, the batches and the sampled peers of this net.
    """

    y: ArrayLike
    rows: ArrayLike | None = None
    X: ArrayLike | None = None
    weight: ArrayLike | None = None
    loss: str = "peer"
    base: str = "cross_entropy"
    alpha: float = 1.0
    peers: str = "expected"
    noisy_prior: ArrayLike | None = None
    noise: NoiseModel | ArrayLike | None = None
    eps: float = DEFAULT_EPS
    dmi_eps: float = DEFAULT_DMI_EPS
    learning_rate: float = 7e-4
    weight_decay: float = 0.0
    warm_up: int = 0
    random_state: int | tuple[int, ...] = 0


@dataclass(frozen=True)
class Objective:
    """The function of the logits that is minimised; nets with equal objectives are computed together."""

    family: str
    """``"linear"`` in the loss matrix, ``"forward"`` or ``"dmi"``."""
    base: str
    eps: float


@dataclass(frozen=True, eq=False)
class PreparedNet:
    """A checked net in the form from which batches are drawn."""

    net: Net
    rows: IntArray
    """Row numbers in the table of all features."""
    codes: IntArray
    """The labels of these rows; of soft labels the class of the largest share."""
    weight: FloatArray | None
    """The weights of these rows, with mean 1; ``None`` for equal weights."""
    coefficients: FloatArray
    """(K, K): row y multiplies the loss matrix of an example with label y. For ``"forward"`` it is added to
    log p."""
    objective: Objective
    shares: FloatArray | None = None
    """(rows, K) soft labels; ``None`` if every label is one class."""

    def objective_at(self, step: int) -> Objective:
        """Return the objective of step ``step``, counted from 0. In the warm-up it is plain cross entropy."""
        in_warm_up = step < self.net.warm_up
        return Objective("linear", "cross_entropy", self.net.eps) if in_warm_up else self.objective


def prepare_nets(
    X: ArrayLike | None, nets: Sequence[Net], n_classes: int, dtype: str = "float32"
) -> tuple[RealArray, list[PreparedNet]]:
    """Check the nets and put all features into one table."""
    if len(nets) == 0:
        raise InvalidInputError("`nets` is empty; pass at least one Net.")
    tables: dict[int, tuple[int, RealArray]] = {}
    # Nets of one search share rows and labels; each array is checked, and held in memory, once.
    seen: dict[tuple[int, int], IntArray] = {}
    labels: dict[int, GivenLabels] = {}
    prepared, length = [], 0
    for i, net in enumerate(nets):
        source = X if net.X is None else net.X
        if source is None:
            raise InvalidInputError(f"`nets[{i}].X` must be given if there is no shared `X`; got None.")
        if id(source) not in tables:
            name = "X" if net.X is None else f"nets[{i}].X"
            tables[id(source)] = (length, _as_features(source, name, dtype))
            length += len(tables[id(source)][1])
        offset, features = tables[id(source)]
        key = (id(source), id(net.rows))
        if key not in seen:
            seen[key] = _check_rows(net.rows, len(features), i) + offset
        if id(net.y) not in labels:
            labels[id(net.y)] = read_labels(net.y, f"nets[{i}].y", n_classes=n_classes)
        prepared.append(_prepare_net(net, seen[key], labels[id(net.y)], n_classes, f"nets[{i}]"))
    parts = [features for _, features in tables.values()]
    if len({part.shape[1] for part in parts}) > 1:
        raise InvalidInputError(
            f"`X` must have the same number of columns for every net; got {[p.shape[1] for p in parts]}."
        )
    return parts[0] if len(parts) == 1 else np.concatenate(parts), prepared


def _as_features(value: ArrayLike, name: str, dtype: str) -> RealArray:
    ready = isinstance(value, np.ndarray) and value.dtype == dtype and value.ndim == 2 and value.size
    if ready and np.isfinite(value).all():
        return np.ascontiguousarray(value, dtype=dtype)  # saves a float64 copy of large data
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


def _prepare_net(net: Net, rows: IntArray, labels: GivenLabels, n_classes: int, name: str) -> PreparedNet:
    """Check one net with checked rows and labels; express its loss as coefficients of the loss matrix."""
    codes, shares = labels
    check_same_length(**{f"{name}.y": codes, f"{name}.rows": rows})
    check_choice(net.loss, f"{name}.loss", LOSSES)
    check_trainable_base(net.base, f"{name}.base")
    check_choice(net.peers, f"{name}.peers", PEERS)
    check_finite(net.alpha, f"{name}.alpha")
    check_in_range(net.eps, f"{name}.eps", 0.0, 1.0)
    check_in_range(net.dmi_eps, f"{name}.dmi_eps", 0.0, 1.0)
    check_in_range(net.learning_rate, f"{name}.learning_rate", 0.0, float("inf"), low_open=True)
    check_in_range(net.weight_decay, f"{name}.weight_decay", 0.0, float("inf"))
    check_count(net.warm_up, f"{name}.warm_up", minimum=0)
    weight = None if net.weight is None else _check_weight(net.weight, labels, name)
    known = labels.is_known
    if not known.all():
        rows, codes, shares = rows[known], codes[known], None if shares is None else shares[known]
    if shares is not None and net.loss == "forward":  # not linear in the label: one copy per class
        copies, codes = np.nonzero(shares)
        weight = shares[copies, codes] * (1.0 if weight is None else weight[copies])
        rows, shares = rows[copies], None
    if weight is not None:
        weight = weight / weight.mean()
    coefficients = _coefficients(net, _noisy_prior(codes, shares, weight, n_classes), name)
    return PreparedNet(net, rows, codes, weight, coefficients, _objective(net), shares)


def _check_weight(value: ArrayLike, labels: GivenLabels, name: str) -> FloatArray:
    """Return the weights of the rows that have a label."""
    weight = as_float_array(value, f"{name}.weight", ndim=1)
    check_same_length(**{f"{name}.weight": weight, f"{name}.y": labels.codes})
    weight = weight[labels.is_known]
    if (weight < 0).any() or not weight.any():
        raise InvalidInputError(
            f"`{name}.weight` must be non-negative and not all zero; got minimum {weight.min():g}."
        )
    return weight


def _noisy_prior(
    codes: IntArray, shares: FloatArray | None, weight: FloatArray | None, n_classes: int
) -> FloatArray:
    """Return the (weighted) mean label, shape (K,)."""
    if shares is None:
        return label_frequencies(codes, n_classes, weight)
    return np.asarray(np.average(shares, axis=0, weights=weight))


def _coefficients(net: Net, counted_prior: FloatArray, name: str) -> FloatArray:
    n_classes = len(counted_prior)
    identity: FloatArray = np.eye(n_classes)
    if net.loss == "peer" and net.peers == "expected":
        if net.noisy_prior is None:
            return identity - net.alpha * counted_prior
        return identity - net.alpha * as_prior(net.noisy_prior, f"{name}.noisy_prior", n_classes=n_classes)
    if net.loss in ("backward", "forward"):
        if net.noise is None:
            raise InvalidInputError(
                f"`{name}.noise` must be given for loss={net.loss!r}; got None. Pass a NoiseModel, or use "
                "the loss 'peer', which needs none."
            )
        noise = as_noise_model(net.noise, f"{name}.noise")
        if noise.n_classes != n_classes:
            raise InvalidInputError(f"`{name}.noise` must be for {n_classes} classes; got {noise.n_classes}.")
        if net.loss == "backward":
            return noise.inverse()
        with np.errstate(divide="ignore"):
            log_transition: FloatArray = np.log(noise.transition.T)
        return log_transition
    return identity


def _objective(net: Net) -> Objective:
    if net.loss == "dmi":
        return Objective("dmi", "cross_entropy", net.dmi_eps)
    if net.loss == "forward":
        return Objective("forward", "cross_entropy", 0.0)
    base = as_base(net.base)
    return Objective("linear", "cross_entropy" if base.log_loss else net.base, base.clip(net.eps))


class Block(NamedTuple):
    """Batches of consecutive steps. The loss of a step is the sum of coefficients · L over its batch."""

    rows: IntArray
    """Row indices (steps, batch)."""
    coefficients: RealArray
    """(steps, batch, K); for forward correction they are log T[:, y]."""
    scale: RealArray
    """(steps, batch): the weight of each row divided by the batch size."""


class BatchStream:
    """Draw random batches without replacement. An incomplete batch at the end of an epoch is dropped.

    The sequence depends on the net, the batch size and the number of steps. It does not depend on how many
    steps are taken at a time, nor on any other net.
    """

    def __init__(self, prepared: PreparedNet, *, batch_size: int, steps: int, dtype: str = "float32") -> None:
        _, batches, peers = np.random.SeedSequence(prepared.net.random_state).spawn(3)
        self._rng, self._peers = np.random.default_rng(batches), np.random.default_rng(peers)
        self._net, self._dtype = prepared, dtype
        self.n_rows = len(prepared.rows)
        self.batch = min(batch_size, self.n_rows)
        if prepared.net.peers == "sampled" and prepared.net.loss == "peer" and self.batch < 2:
            raise InvalidInputError(
                f"sampled peers need batches of at least 2 rows; got batch_size={batch_size} and "
                f"{self.n_rows} rows. Use larger batches or peers='expected'."
            )
        self._needed = steps * self.batch
        self._waiting: IntArray = np.empty((0, self.batch), dtype=np.int64)
        self._taken = 0

    def take(self, steps: int) -> Block:
        """Return the next ``steps`` batches."""
        while len(self._waiting) < steps:
            self._waiting = np.concatenate((self._waiting, self._shuffle()))
        block = self._block(self._waiting[:steps])
        self._waiting = self._waiting[steps:]
        self._taken += steps
        return block

    def _shuffle(self) -> IntArray:
        """Return the batches of one or more epochs; their number depends on the net alone."""
        if self.n_rows > self._needed:  # less than one epoch: shuffling every row is not needed
            return self._rng.choice(self.n_rows, self._needed, replace=False).reshape(-1, self.batch)
        epochs = max(1, SHUFFLED_AT_ONCE // self.n_rows)
        order = np.broadcast_to(np.arange(self.n_rows), (epochs, self.n_rows))
        used = self.n_rows // self.batch * self.batch
        return self._rng.permuted(order, axis=1)[:, :used].reshape(-1, self.batch)

    def _block(self, positions: IntArray) -> Block:
        net = self._net
        scale: RealArray = np.full(positions.shape, 1.0 / self.batch, dtype=self._dtype)
        if net.weight is not None:
            scale *= net.weight.take(positions)
        scaled = net.objective.family != "forward"
        coefficients = self._lookup(net.coefficients, positions, scale, scaled=scaled)
        if net.net.loss == "peer" and net.net.peers == "sampled":
            self._subtract_peers(coefficients, positions, scale)
        warm_up = min(max(net.net.warm_up - self._taken, 0), len(positions))
        if warm_up:
            labels = np.eye(len(net.coefficients))
            coefficients[:warm_up] = self._lookup(labels, positions[:warm_up], scale[:warm_up], scaled=True)
        return Block(net.rows.take(positions), coefficients, scale)

    def _lookup(self, table: FloatArray, positions: IntArray, scale: RealArray, *, scaled: bool) -> RealArray:
        """Return the table row of each label, multiplied by ``scale`` if ``scaled``.

        For a soft label it is the mean of the rows. With equal weights the small table is scaled before the
        lookup, which is many times faster.
        """
        equal = self._net.weight is None
        ready = table / self.batch if scaled and equal else table
        found: RealArray
        if self._net.shares is None:
            found = ready.astype(self._dtype).take(self._net.codes.take(positions), axis=0)
        else:
            found = (self._net.shares.take(positions, axis=0) @ ready).astype(self._dtype)
        if scaled and not equal:
            found *= scale[..., None]
        return found

    def _subtract_peers(self, coefficients: RealArray, positions: IntArray, scale: RealArray) -> None:
        """Subtract α·L[n₁, ỹ_{n₂}], with n₁ ≠ n₂ drawn within the batch for each of its rows."""
        steps, batch = positions.shape
        drawn = self._peers.integers(0, (batch, batch - 1), size=(steps, batch, 2))
        first = drawn[..., 0]
        second = (first + 1 + drawn[..., 1]) % batch
        step = np.arange(steps)[:, None]
        share = (self._net.net.alpha * batch * scale[step, first] * scale[step, second]).astype(self._dtype)
        labels = positions[step, second]
        if self._net.shares is None:
            np.subtract.at(coefficients, (step, first, self._net.codes.take(labels)), share)
        else:
            peers = (self._net.shares.take(labels, axis=0) * share[..., None]).astype(self._dtype)
            np.subtract.at(coefficients, (step, first), peers)


def initial_weights(seed: int | tuple[int, ...], sizes: tuple[int, ...], dtype: str = "float32") -> RealArray:
    """Draw weights and biases as ``nn.Linear`` does, uniform in ±1/√inputs; return one flat vector."""
    rng = np.random.default_rng(np.random.SeedSequence(seed).spawn(3)[0])
    layers = [rng.uniform(-1.0, 1.0, (n_in + 1) * n_out) / np.sqrt(n_in) for n_in, n_out in pairwise(sizes)]
    weights: RealArray = np.concatenate(layers).astype(dtype)
    return weights
