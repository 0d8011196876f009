"""Check inputs and noisy labels, and move them to the device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from peerloss._validation import as_labels, as_prior, check_same_length, read_labels
from peerloss.exceptions import InvalidInputError
from peerloss.training.deep._predict import is_images

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from peerloss._validation import IntArray
    from peerloss.training.deep._recipe import DeepRecipe, Sieve


def training_rows(
    X: Any, y: Any, model: nn.Module, recipe: DeepRecipe, device: torch.device
) -> tuple[Tensor, Tensor, Tensor]:
    """Return inputs, class codes and targets of the loss on the device.

    The code −1 marks a row without a label. The targets are the codes, or soft labels in float32.
    """
    inputs, labels = _inputs(X, "X", model), read_labels(_array(y), "y")
    check_same_length(X=inputs, y=labels.codes)  # type: ignore[arg-type]
    _check_augmentation(inputs, recipe)
    codes = torch.as_tensor(labels.codes).to(device)
    if labels.shares is None:
        return inputs.to(device), codes, codes
    if recipe.sieve is not None:
        raise InvalidInputError(
            "`y` must be one label per row for a `sieve`, which compares it with the predicted class; got "
            "soft labels. Use sieve=None, or the most probable labels: y.argmax(axis=1)."
        )
    return inputs.to(device), codes, torch.as_tensor(labels.shares, dtype=torch.float32).to(device)


def held_out_rows(validation: Any, model: nn.Module, device: torch.device) -> tuple[Tensor, IntArray]:
    """Return inputs on the device and labels; none may be missing."""
    if not (isinstance(validation, tuple | list) and len(validation) == 2):
        raise InvalidInputError(
            f"`validation` must be a pair (inputs, noisy labels); got {type(validation).__name__}."
        )
    inputs = _inputs(validation[0], "validation[0]", model)
    labels = as_labels(_array(validation[1]), "validation[1]")
    check_same_length(**{"validation[0]": inputs, "validation[1]": labels})  # type: ignore[arg-type]
    return inputs.to(device), labels


def check_outputs(
    outputs: Tensor,
    largest_label: int,
    name: str,
    *,
    sieve: Sieve | None = None,
    n_columns: int | None = None,
) -> None:
    """Refuse labels for which the model has no output.

    On a GPU the losses do not check labels: the loss would be NaN, or CUDA would abort with an assertion.
    Soft labels must have ``n_columns`` equal to the number of classes.
    """
    if outputs.ndim > 2:  # a row has several predictions, whose classes only the loss knows
        return
    n_classes = max(2, outputs.shape[1]) if outputs.ndim == 2 else 2  # one logit stands for two classes
    if sieve is not None and not isinstance(sieve.balance, bool):
        as_prior(sieve.balance, "balance", n_classes=n_classes)  # now, not hours later
    if n_columns not in (None, n_classes):
        raise InvalidInputError(
            f"`{name}` must have a column for each of the {n_classes} classes of the model's outputs; got "
            f"soft labels with {n_columns} columns. Change the labels or the model's last layer."
        )
    if largest_label >= n_classes:
        raise InvalidInputError(
            f"`{name}` must hold labels in 0..{n_classes - 1}, because the model has outputs for {n_classes} "
            f"classes; found {largest_label}. Give the model more outputs, or encode the labels."
        )


def largest_label(y: Tensor, *, ignored: int | None) -> int:
    """Return the largest label that the loss does not ignore."""
    known = y if ignored is None else y[y != ignored]
    return int(known.max()) if len(known) else 0


def _check_augmentation(X: Tensor, recipe: DeepRecipe) -> None:
    sieve = recipe.sieve
    crop = max(recipe.augment.crop, 0 if sieve is None else sieve.augment.crop)
    if is_images(X) and crop >= min(X.shape[1:3]):
        raise InvalidInputError(
            f"`crop` must be smaller than the images of {X.shape[1]} × {X.shape[2]} pixels; got {crop}. "
            "Lower it in `augment`, also in that of the sieve."
        )
    if sieve is None or is_images(X) or X.is_floating_point():
        return
    if sieve.mixup:
        raise InvalidInputError(
            f"`mixup` needs real-valued inputs; got {X.dtype}. Use mixup=False for codes."
        )
    if sieve.growth is not None:
        raise InvalidInputError(
            f"`growth` mixes inputs, so they must be real-valued; got {X.dtype}. Use growth=None for codes."
        )


def _inputs(X: Any, name: str, model: nn.Module) -> Tensor:
    """Return inputs as a tensor; real numbers get the precision of the weights of the model."""
    inputs = X if isinstance(X, Tensor) else _tensor(X, name)
    if is_images(inputs) and inputs.shape[3] > 4 >= inputs.shape[1]:
        raise InvalidInputError(
            f"`{name}` of type uint8 must be images (n, height, width, channels); got "
            f"{tuple(inputs.shape)}, which looks like channels first. Use `X.transpose(0, 2, 3, 1)`."
        )
    if not inputs.is_floating_point():
        return inputs
    if not bool(torch.isfinite(inputs).all()):
        raise InvalidInputError(f"`{name}` must be finite; found NaN or infinity. Drop or impute these rows.")
    weights = (weight for weight in model.parameters() if weight.is_floating_point())
    return inputs.to(next((weight.dtype for weight in weights), inputs.dtype))


def _tensor(X: Any, name: str) -> Tensor:
    try:
        array = np.asarray(X)
    except ValueError as error:  # rows of different length
        raise InvalidInputError(f"`{name}` must be an array of numbers; {error}.") from error
    if array.dtype.kind not in "biuf":
        raise InvalidInputError(
            f"`{name}` must be an array or tensor of numbers; got dtype {array.dtype}. Encode text and "
            "categories first."
        )
    return torch.as_tensor(array if array.flags.writeable else array.copy())


def _array(y: Any) -> NDArray[Any]:
    return np.asarray(y.cpu() if isinstance(y, Tensor) else y)
