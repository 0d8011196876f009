"""Inputs and noisy labels as they come, checked and brought to the device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from peerloss._validation import as_labels, check_same_length
from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from peerloss._validation import IntArray


def training_rows(X: Any, y: Any, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return inputs and labels on the device; a label of −1 stands for a row without one."""
    inputs, labels = torch.as_tensor(X), _labels_or_none(_array(y))
    check_same_length(X=inputs, y=labels)  # type: ignore[arg-type]
    return inputs.to(device), torch.as_tensor(labels).to(device)


def held_out_rows(X: Any, y: Any, device: torch.device) -> tuple[Tensor, IntArray]:
    """Return inputs on the device and labels, of which none may be missing."""
    inputs, labels = torch.as_tensor(X), as_labels(_array(y), "validation[1]")
    check_same_length(**{"validation[0]": inputs, "validation[1]": labels})  # type: ignore[arg-type]
    return inputs.to(device), labels


def _array(y: Any) -> NDArray[Any]:
    return np.asarray(y.cpu() if isinstance(y, Tensor) else y)


def _labels_or_none(y: NDArray[Any]) -> IntArray:
    signed = y.dtype.kind in "if"
    if signed and (y < -1).any():
        raise InvalidInputError(
            f"`y` must hold class codes from 0 on, and -1 for rows without a label; found {y.min():g}. "
            "Set such rows to -1."
        )
    if not signed or not (y == -1).any():
        return as_labels(y, "y")
    missing = y == -1
    codes = as_labels(np.where(missing, 0, y), "y")
    if len(np.unique(codes[~missing])) < 2:
        raise InvalidInputError(
            f"`y` must have labels of more classes than one; got {np.unique(y).tolist()}, where -1 marks "
            "rows without a label. If -1 and 1 are two classes, encode them as 0 and 1."
        )
    return np.where(missing, -1, codes)
