"""The inputs of all rows, and their batches on the device; ``_host_rows`` has those that do not fit there."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from peerloss.exceptions import InvalidInputError
from peerloss.training.deep._augment import move_images

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from peerloss.training.deep._augment import Moves

Inputs = Tensor | dict[str, Tensor]
"""The inputs of some rows: one tensor, or tensors by the names of the model's arguments."""


def map_inputs(function: Callable[[Any], Tensor], inputs: Any) -> Inputs:
    """Apply a function to a tensor or array, or to each one of a dictionary."""
    if isinstance(inputs, dict):
        return {name: function(part) for name, part in inputs.items()}
    return function(inputs)


def by_name(inputs: Inputs) -> dict[str, Tensor]:
    """Return tensors by name; a single tensor has the name ``""``."""
    return {"": inputs} if isinstance(inputs, Tensor) else inputs


def as_tensor(array: NDArray[Any]) -> Tensor:
    """Return a tensor that shares the memory of an array, or of a copy if torch cannot share it."""
    is_shared = array.flags.writeable and array.dtype.isnative and all(step >= 0 for step in array.strides)
    return torch.from_numpy(array if is_shared else array.astype(array.dtype.newbyteorder("="), order="C"))


def count_rows(inputs: Inputs) -> int:
    """Return the number of rows."""
    return len(next(iter(by_name(inputs).values())))


def is_images(inputs: Inputs) -> bool:
    """Whether inputs are uint8 images (n, height, width, channels); a dictionary never is."""
    return isinstance(inputs, Tensor) and inputs.dtype == torch.uint8 and inputs.ndim == 4


def as_model_numbers(inputs: Inputs, name: str, dtype: torch.dtype | None) -> Inputs:
    """Return inputs whose real numbers are finite and have the precision of the model's weights."""
    if isinstance(inputs, dict):
        return {
            key: as_model_numbers(tensor, f"{name}[{key!r}]", dtype)  # type: ignore[misc]
            for key, tensor in inputs.items()
        }
    if not inputs.is_floating_point():
        return inputs
    numbers = inputs if dtype is None else inputs.to(dtype)
    if not bool(torch.isfinite(numbers).all()):
        if not bool(torch.isfinite(inputs).all()):
            raise InvalidInputError(
                f"`{name}` must be finite; found NaN or infinity. Drop or impute these rows."
            )
        raise InvalidInputError(
            f"`{name}` must be in the range of {dtype}, the precision of the model; found "
            f"{float(inputs.abs().max()):g}. Scale the inputs."
        )
    return numbers


class InputRows(ABC):
    """The inputs of all rows, wherever they are kept. Batches are on ``device``."""

    example: Inputs
    """The inputs of the first row, with a first dimension of 1."""
    device: torch.device

    @abstractmethod
    def __len__(self) -> int: ...

    @property
    def is_images(self) -> bool:
        """Whether the rows are uint8 images (height, width, channels)."""
        return is_images(self.example)

    @abstractmethod
    def batches(self, order: Tensor, size: int) -> Iterator[Inputs]:
        """Yield the inputs of the rows ``order``, ``size`` at a time."""

    @abstractmethod
    def epoch(self, order: Tensor, size: int, moves: Moves | None) -> Iterator[Inputs]:
        """Yield the same as :meth:`batches`, for a whole epoch. Images are shifted and mirrored."""


class DeviceRows(InputRows):
    """Inputs that are on the device as a whole, so that an epoch is one gather operation."""

    def __init__(self, inputs: Inputs) -> None:
        self.inputs = inputs
        self.example = map_inputs(lambda tensor: tensor[:1], inputs)
        self.device = next(iter(by_name(inputs).values())).device

    def __len__(self) -> int:
        return count_rows(self.inputs)

    def batches(self, order: Tensor, size: int) -> Iterator[Inputs]:
        for rows in order.split(size):
            yield map_inputs(operator.itemgetter(rows), self.inputs)

    def epoch(self, order: Tensor, size: int, moves: Moves | None) -> Iterator[Inputs]:
        if isinstance(self.inputs, Tensor):
            gathered = self.inputs[order] if moves is None else move_images(self.inputs, order, moves)
            yield from gathered.split(size)
            return
        parts = {name: tensor[order].split(size) for name, tensor in self.inputs.items()}
        for batch in zip(*parts.values(), strict=True):
            yield dict(zip(parts, batch, strict=True))
