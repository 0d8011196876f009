"""Mini-batches of one net as row numbers and loss coefficients, drawn with the seed of the net."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    from peerloss._validation import FloatArray, IntArray
    from peerloss.training.small._nets import PreparedNet

#: float32 or float64, as requested by ``dtype``.
RealArray = NDArray[np.floating[Any]]
#: Approximate number of row indices shuffled at a time.
SHUFFLED_AT_ONCE = 1 << 14


class Block(NamedTuple):
    """Batches of consecutive steps."""

    rows: IntArray
    """(steps, batch) row indices in the feature table."""
    coefficients: RealArray
    """(steps, batch, K): the loss is Σ coefficients · L (forward: they are log T[:, y])."""
    scale: RealArray
    """(steps, batch): weight of the row divided by the batch size."""

    def part(self, first: int, last: int) -> Block:
        """Return the steps ``first`` to ``last - 1``."""
        return Block(self.rows[first:last], self.coefficients[first:last], self.scale[first:last])


class BatchStream:
    """Random batches without replacement; an incomplete batch at the end of an epoch is dropped.

    The sequence depends on the net, the batch size and the number of steps. It does not depend on how many
    steps are taken at a time, nor on any other net. At most ``steps · batch`` row indices are held in memory.
    """

    def __init__(self, prepared: PreparedNet, *, batch_size: int, steps: int, dtype: str = "float32") -> None:
        _, batches, peers = np.random.SeedSequence(prepared.net.random_state).spawn(3)
        self._rng = np.random.default_rng(batches)
        self._peers = np.random.default_rng(peers)
        self._net = prepared
        self._dtype = dtype
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
        parts, have = [self._waiting], len(self._waiting)
        while have < steps:
            parts.append(self._shuffle())
            have += len(parts[-1])
        order = np.concatenate(parts) if len(parts) > 1 else parts[0]
        positions, self._waiting = order[:steps], order[steps:]
        block = self._block(positions)
        self._taken += steps
        return block

    def _shuffle(self) -> IntArray:
        """Return the batches of some epochs; how many depends on the net alone."""
        if self.n_rows > self._needed:  # less than one epoch: shuffling every row is not needed
            part = self._rng.choice(self.n_rows, self._needed, replace=False)
            return part.reshape(-1, self.batch)
        epochs = max(1, SHUFFLED_AT_ONCE // self.n_rows)
        order = np.broadcast_to(np.arange(self.n_rows), (epochs, self.n_rows))
        used = self.n_rows // self.batch * self.batch
        return self._rng.permuted(order, axis=1)[:, :used].reshape(-1, self.batch)

    def _block(self, positions: IntArray) -> Block:
        net = self._net
        codes = net.codes.take(positions)
        scale: RealArray = np.full(positions.shape, 1.0 / self.batch, dtype=self._dtype)
        if net.weight is not None:
            scale *= net.weight.take(positions)
        table = net.coefficients
        coefficients = self._lookup(table, codes, scale, scaled=net.objective.family != "forward")
        if net.net.loss == "peer" and net.net.peers == "sampled":
            self._subtract_peers(coefficients, codes, scale)
        warm_up = min(max(net.net.warm_up - self._taken, 0), len(positions))
        if warm_up:
            coefficients[:warm_up] = self._lookup(
                np.eye(len(table)), codes[:warm_up], scale[:warm_up], scaled=True
            )
        return Block(net.rows.take(positions), coefficients, scale)

    def _lookup(self, table: FloatArray, codes: IntArray, scale: RealArray, *, scaled: bool) -> RealArray:
        """Return the table row of each label, multiplied by ``scale`` if ``scaled``.

        With equal weights the small table is scaled before the lookup, which is many times faster.
        """
        equal = self._net.weight is None
        ready = table / self.batch if scaled and equal else table
        found: RealArray = ready.astype(self._dtype).take(codes, axis=0)
        if scaled and not equal:
            found *= scale[..., None]
        return found

    def _subtract_peers(self, coefficients: RealArray, codes: IntArray, scale: RealArray) -> None:
        """Subtract α·L[n₁, ỹ_{n₂}], with n₁ ≠ n₂ drawn within the batch for each of its rows."""
        steps, batch = codes.shape
        drawn = self._peers.integers(0, (batch, batch - 1), size=(steps, batch, 2))
        first = drawn[..., 0]
        second = (first + 1 + drawn[..., 1]) % batch
        step = np.arange(steps)[:, None]
        share = self._net.net.alpha * batch * scale[step, first] * scale[step, second]
        np.subtract.at(coefficients, (step, first, codes[step, second]), share.astype(self._dtype))


def first_weights(seed: int | tuple[int, ...], sizes: tuple[int, ...], dtype: str = "float32") -> RealArray:
    """Draw weights and biases as ``nn.Linear`` does, uniform in ±1/√inputs; return one flat vector."""
    rng = np.random.default_rng(np.random.SeedSequence(seed).spawn(3)[0])
    layers = [
        rng.uniform(-1.0, 1.0, (inputs + 1) * outputs) / np.sqrt(inputs)
        for inputs, outputs in pairwise(sizes)
    ]
    weights: RealArray = np.concatenate(layers).astype(dtype)
    return weights
