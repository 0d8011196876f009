"""Inputs that are too large for the device: they stay in host memory or on disk and are read by batch."""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from peerloss.exceptions import InvalidInputError
from peerloss.training.deep._augment import move_images
from peerloss.training.deep._input_rows import (
    DeviceRows,
    InputRows,
    as_model_numbers,
    as_tensor,
    by_name,
    map_inputs,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from numpy.typing import NDArray

    from peerloss.training.deep._augment import Moves
    from peerloss.training.deep._input_rows import Inputs

    Reader = Callable[[NDArray[np.int64]], Inputs]
#: Number of batches that are prepared while the device computes. Two hide an occasional slow read.
BATCHES_AHEAD = 2
#: Number of rows that are read at once if all of them are loaded.
LOADED_ROWS = 1024


class HostRows(InputRows):
    """Inputs of which only a few batches are on the device at any time.

    A background thread reads the rows of the next batches while the device computes. Random numbers are drawn
    as for :class:`DeviceRows`, so results are the same.
    """

    def __init__(
        self, read: Reader, n: int, name: str, *, device: torch.device, dtype: torch.dtype | None
    ) -> None:
        self._read, self._n, self._name, self._dtype = read, n, name, dtype
        self.device = device
        self.example = self._fetch(torch.zeros(1, dtype=torch.int64))

    def __len__(self) -> int:
        return self._n

    def batches(self, order: Tensor, size: int) -> Iterator[Inputs]:
        for inputs in _read_ahead(self._fetch_alike, order.cpu().split(size), self.device):
            yield map_inputs(lambda tensor: tensor.to(self.device, non_blocking=True), inputs)

    def epoch(self, order: Tensor, size: int, moves: Moves | None) -> Iterator[Inputs]:
        first = 0
        for inputs in self.batches(order, size):
            if moves is None or not isinstance(inputs, Tensor):
                yield inputs
                continue
            rows = torch.arange(len(inputs), device=self.device)
            yield move_images(inputs, rows, moves.take(slice(first, first + len(inputs))))
            first += len(inputs)

    def load(self) -> DeviceRows:
        """Read all rows once, and keep them on the device."""
        whole = map_inputs(
            lambda tensor: torch.empty((self._n, *tensor.shape[1:]), dtype=tensor.dtype, device=self.device),
            self.example,
        )
        parts = torch.arange(self._n).split(LOADED_ROWS)
        for rows, inputs in zip(parts, self.batches(torch.arange(self._n), LOADED_ROWS), strict=True):
            place = slice(int(rows[0]), int(rows[-1]) + 1)
            for key, source in by_name(inputs).items():
                by_name(whole)[key][place] = source
        return DeviceRows(whole)

    @property
    def nbytes(self) -> int:
        """Memory that all rows would need."""
        return self._n * sum(tensor.nbytes for tensor in by_name(self.example).values())

    def _fetch_alike(self, rows: Tensor) -> Inputs:
        """Read rows; refuse those of another form than the first row, which would be cut or repeated."""
        inputs = self._fetch(rows)
        form, expected = _form(inputs), _form(self.example)
        if form != expected:
            raise InvalidInputError(
                f"`{self._name}` must return inputs of equal shape and dtype, with the same names; row 0 has "
                f"{expected}, row {int(rows[0])} or a row after it has {form}. Pad or convert them in the "
                "dataset."
            )
        return inputs

    def _fetch(self, rows: Tensor) -> Inputs:
        """Read rows; on the way to a GPU they go through pinned memory, from which copies do not wait."""
        inputs = as_model_numbers(self._read(rows.numpy()), self._name, self._dtype)
        if self.device.type != "cuda":
            return inputs
        return map_inputs(lambda tensor: tensor if tensor.is_cuda else tensor.pin_memory(), inputs)


def read_arrays(arrays: Any) -> Reader:
    """Return a function that reads rows of an array or tensor, or of several in a dictionary."""
    return partial(_take_rows, arrays)


def _take_rows(arrays: Any, rows: NDArray[np.int64]) -> Inputs:
    if isinstance(arrays, dict):
        return {name: _take_rows(array, rows) for name, array in arrays.items()}  # type: ignore[misc]
    if isinstance(arrays, Tensor):
        return arrays[torch.from_numpy(rows).to(arrays.device)]
    return as_tensor(np.ascontiguousarray(arrays[rows]))


def _read_ahead(
    fetch: Callable[[Tensor], Inputs], parts: Iterable[Tensor], device: torch.device
) -> Iterator[Inputs]:
    """Yield ``fetch(part)`` of all parts in order; a thread prepares the next ones."""
    start = None
    if device.type == "cuda":  # the current GPU belongs to a thread; memory would be pinned for the first one
        number = torch.cuda.current_device() if device.index is None else device.index
        start = partial(torch.cuda.set_device, number)
    waiting: deque[Any] = deque()
    pool = ThreadPoolExecutor(1, "peerloss-read-ahead", initializer=start)
    try:
        for part in parts:
            waiting.append(pool.submit(fetch, part))
            if len(waiting) > BATCHES_AHEAD:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def _form(inputs: Inputs) -> dict[str, str]:
    """Return the dtype and the shape of a row, by name."""
    return {name: f"{tensor.dtype} {tuple(tensor.shape[1:])}" for name, tensor in by_name(inputs).items()}
