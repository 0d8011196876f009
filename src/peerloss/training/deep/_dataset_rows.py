"""Read rows of a map-style dataset of torch, whose items may have any form."""

from __future__ import annotations

from collections.abc import Mapping, Sized
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor
from torch.utils.data import default_collate

from peerloss.exceptions import InvalidInputError
from peerloss.training.deep._input_rows import as_tensor, by_name

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch.utils.data import Dataset

    from peerloss.training.deep._host_rows import Reader
    from peerloss.training.deep._input_rows import Inputs


def read_dataset(dataset: Dataset[Any], name: str) -> Reader:
    """Return a function that reads rows of a map-style dataset, at once if it has ``__getitems__``."""
    return partial(_collate_rows, dataset, name)


def _collate_rows(dataset: Any, name: str, rows: NDArray[np.int64]) -> Inputs:
    indices = rows.tolist()
    found = [
        _as_tensors(row, f"{name}[{index}]")
        for index, row in zip(indices, _read_rows(dataset, name, indices), strict=True)
    ]
    try:
        inputs: Inputs = default_collate(found)
    except (RuntimeError, TypeError, KeyError, IndexError) as error:
        raise InvalidInputError(
            f"`{name}` must return inputs of equal shape, with the same names: {error}. Pad or resize them "
            "in the dataset."
        ) from error
    for key, part in by_name(inputs).items():
        if not (isinstance(key, str) and isinstance(part, Tensor)):
            raise InvalidInputError(
                f"`{name}[{indices[0]}]` must have tensors or arrays by the names of the model's arguments; "
                f"got {type(found[0][key]).__name__} under {key!r}. Convert lists to tensors (in a dataset "
                "of Hugging Face: `with_format('torch')`), and leave out what the model does not take."
            )
    return inputs


def _read_rows(dataset: Any, name: str, indices: list[int]) -> Any:
    if not hasattr(dataset, "__getitems__"):
        return [dataset[index] for index in indices]
    found = dataset.__getitems__(indices)
    if isinstance(found, Mapping) or not isinstance(found, Sized) or len(found) != len(indices):
        length = f" of length {len(found)}" if isinstance(found, Sized) else ""
        raise InvalidInputError(
            f"`{name}.__getitems__` must return a list with one input per index; got "
            f"{type(found).__name__}{length} for {len(indices)} indices. Return "
            "[self[index] for index in indices], or remove the method."
        )
    return found


def _as_tensors(row: Any, name: str) -> Any:
    """Return a row with tensors in place of arrays, also those whose memory torch cannot share."""
    if isinstance(row, Mapping) and row:
        return {key: _as_tensor(part, f"{name}[{key!r}]") for key, part in row.items()}
    if not isinstance(row, Tensor | np.ndarray):
        empty = "an empty " if isinstance(row, Mapping) else ""
        raise InvalidInputError(
            f"`{name}` must be one input: a tensor, an array or a dictionary of them; got "
            f"{empty}{type(row).__name__}. Labels are passed as `y`, so the dataset returns the input only."
        )
    return _as_tensor(row, name)


def _as_tensor(part: Any, name: str) -> Any:
    if isinstance(part, Tensor):
        return part.detach()  # a gradient would be computed through all earlier batches
    if not isinstance(part, np.ndarray):
        return part
    try:
        return as_tensor(part)
    except TypeError as error:
        raise InvalidInputError(
            f"`{name}` must be an array of numbers that torch has; got dtype {part.dtype}. Convert it in the "
            "dataset, for example to float32."
        ) from error
