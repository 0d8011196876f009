"""Inputs and noisy labels as they come, checked and brought to the device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from peerloss._validation import as_labels, check_same_length
from peerloss.exceptions import InvalidInputError
from peerloss.training._predict import is_images

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from peerloss._validation import IntArray
    from peerloss.training._recipe import DeepRecipe


def training_rows(X: Any, y: Any, model: nn.Module, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return inputs and labels on the device; a label of −1 stands for a row without one."""
    inputs, labels = _inputs(X, "X", model), _labels_or_none(_array(y))
    check_same_length(X=inputs, y=labels)  # type: ignore[arg-type]
    return inputs.to(device), torch.as_tensor(labels).to(device)


def held_out_rows(validation: Any, model: nn.Module, device: torch.device) -> tuple[Tensor, IntArray]:
    """Return inputs on the device and labels, of which none may be missing."""
    if not (isinstance(validation, tuple | list) and len(validation) == 2):
        raise InvalidInputError(
            f"`validation` must be a pair (inputs, noisy labels); got {type(validation).__name__}."
        )
    inputs, labels = (
        _inputs(validation[0], "validation[0]", model),
        as_labels(_array(validation[1]), "validation[1]"),
    )
    check_same_length(**{"validation[0]": inputs, "validation[1]": labels})  # type: ignore[arg-type]
    return inputs.to(device), labels


def class_count(logits: Tensor) -> int | None:
    """Return how many classes the outputs are for; ``None`` where they are more than one a row."""
    if logits.ndim > 2:
        return None
    return max(2, logits.shape[-1]) if logits.ndim == 2 else 2  # one logit stands for two classes


def check_label_range(largest: int, logits: Tensor, name: str) -> None:
    """Refuse labels without an output: a GPU would only say that the loss is not finite."""
    n_classes = class_count(logits)
    if n_classes is not None and largest >= n_classes:
        raise InvalidInputError(
            f"`{name}` must hold labels in 0..{n_classes - 1}, as the model has outputs for {n_classes} "
            f"classes; found {largest}. Give it more outputs, or encode the labels."
        )


def largest_label(y: Tensor, *, ignored: int | None) -> int:
    """Return the largest label that the loss is to look at."""
    known = y if ignored is None else y[y != ignored]
    return int(known.max()) if len(known) else 0


def check_changes(X: Tensor, recipe: DeepRecipe) -> None:
    """Refuse changes of the inputs that these do not allow."""
    sieve = recipe.sieve
    crop = max(recipe.augment.crop, 0 if sieve is None else sieve.augment.crop)
    if is_images(X) and crop >= min(X.shape[1:3]):
        raise InvalidInputError(
            f"`crop` must be smaller than the images of {X.shape[1]} × {X.shape[2]} pixels; got {crop}. "
            "Lower it in `augment`, the sieve's too."
        )
    if sieve is not None and sieve.mixup and not (is_images(X) or X.is_floating_point()):
        raise InvalidInputError(f"`mixup` needs real inputs; got {X.dtype}. Leave it out for codes.")


def _inputs(X: Any, name: str, model: nn.Module) -> Tensor:
    """Return inputs as a tensor, real numbers in the precision of the model's weights."""
    inputs = X if isinstance(X, Tensor) else _tensor(X, name)
    if is_images(inputs) and inputs.shape[3] > 4 >= inputs.shape[1]:
        raise InvalidInputError(
            f"`{name}` must be images (n, height, width, channels) where it is in bytes; got "
            f"{tuple(inputs.shape)}, which looks like channels first. Use `X.transpose(0, 2, 3, 1)`."
        )
    if not inputs.is_floating_point():
        return inputs
    if not bool(torch.isfinite(inputs).all()):
        raise InvalidInputError(f"`{name}` must be finite; found NaN or infinity. Drop or impute such rows.")
    weights = (weight for weight in model.parameters() if weight.is_floating_point())
    return inputs.to(next((weight.dtype for weight in weights), inputs.dtype))


def _tensor(X: Any, name: str) -> Tensor:
    try:
        array = np.asarray(X)
    except ValueError as error:  # rows of different length
        raise InvalidInputError(f"`{name}` must be an array of numbers; {error}.") from error
    if array.dtype.kind not in "biuf":
        raise InvalidInputError(
            f"`{name}` must be an array or tensor of numbers; got dtype {array.dtype}. Encode words and "
            "categories first."
        )
    return torch.as_tensor(array if array.flags.writeable else array.copy())


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
