"""Mini-batches of one net, drawn from the net's own seed, as row numbers and loss coefficients."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    from peerloss._validation import FloatArray, IntArray
    from peerloss.training._nets import PreparedNet

#: float32, or float64 if asked for.
RealArray = NDArray[np.floating[Any]]
#: About so many row numbers are shuffled at a time.
SHUFFLED_AT_ONCE = 1 << 14


class Block(NamedTuple):
    """Batches of consecutive steps."""

    rows: IntArray
    """(steps, batch) rows of the table of features."""
    coefficients: RealArray
    """(steps, batch, K): the loss is Σ coefficients · L (forward: they are log T[:, y])."""
    scale: RealArray
    """(steps, batch): weight of the row divided by the size of the batch."""

    def part(self, first: int, last: int) -> Block:
        """Return the steps from ``first`` up to ``last``."""
        return Block(self.rows[first:last], self.coefficients[first:last], self.scale[first:last])


class BatchStream:
    """Random batches without replacement; what remains of an epoch smaller than a batch is left out.

    The sequence depends on the net, the size of the batches and the number of steps, not on how many steps
    are taken at a time nor on any other net. At most ``steps · batch`` row numbers are held.
    """

    def __init__(self, prepared: PreparedNet, *, batch_size: int, steps: int, dtype: str = "float32") -> None:
        _, batches, peers = np.random.SeedSequence(prepared.net.seed).spawn(3)
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
        """Return the batches of some epochs; their number depends on the net alone."""
        if self.n_rows > self._needed:  # less than one epoch: no need to shuffle every row
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
        coefficients = self._scaled(table, codes, scale, by=net.objective.family != "forward")
        if net.net.loss == "peer" and net.net.peers == "sampled":
            self._subtract_peers(coefficients, codes, scale)
        warm = min(max(net.net.warm_start - self._taken, 0), len(positions))
        if warm:
            coefficients[:warm] = self._scaled(np.eye(len(table)), codes[:warm], scale[:warm], by=True)
        return Block(net.rows.take(positions), coefficients, scale)

    def _scaled(self, table: FloatArray, codes: IntArray, scale: RealArray, *, by: bool) -> RealArray:
        """Look up the labels' rows; ``take`` on a table scaled before is many times quicker than indexing."""
        equal = self._net.weight is None
        ready = table / self.batch if by and equal else table
        found: RealArray = ready.astype(self._dtype).take(codes, axis=0)
        if by and not equal:
            found *= scale[..., None]
        return found

    def _subtract_peers(self, coefficients: RealArray, codes: IntArray, scale: RealArray) -> None:
        """Subtract α·L[n₁, ỹ_{n₂}], n₁ ≠ n₂ drawn inside the batch for each of its rows."""
        steps, batch = codes.shape
        drawn = self._peers.integers(0, (batch, batch - 1), size=(steps, batch, 2))
        first = drawn[..., 0]
        second = (first + 1 + drawn[..., 1]) % batch
        step = np.arange(steps)[:, None]
        share = self._net.net.alpha * batch * scale[step, first] * scale[step, second]
        np.subtract.at(coefficients, (step, first, codes[step, second]), share.astype(self._dtype))


def first_weights(seed: int | tuple[int, ...], sizes: tuple[int, ...], dtype: str = "float32") -> RealArray:
    """Draw weights and biases as ``nn.Linear`` does, uniform in ±1/√inputs, in one flat vector."""
    rng = np.random.default_rng(np.random.SeedSequence(seed).spawn(3)[0])
    layers = [
        rng.uniform(-1.0, 1.0, (inputs + 1) * outputs) / np.sqrt(inputs)
        for inputs, outputs in pairwise(sizes)
    ]
    weights: RealArray = np.concatenate(layers).astype(dtype)
    return weights
