"""Check inputs and noisy labels, and move them to the device if they fit there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, IterableDataset

from peerloss._device import available_memory
from peerloss._validation import as_labels, as_prior, check_same_length, read_labels, short_repr
from peerloss.exceptions import InvalidInputError
from peerloss.training.deep._dataset_rows import read_dataset
from peerloss.training.deep._host_rows import HostRows, read_arrays
from peerloss.training.deep._input_rows import DeviceRows, as_model_numbers, as_tensor, map_inputs

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from peerloss._validation import IntArray
    from peerloss.training.deep._input_rows import InputRows
    from peerloss.training.deep._recipe import DeepRecipe, Sieve


def training_rows(
    X: Any,
    y: Any,
    model: nn.Module,
    recipe: DeepRecipe,
    device: torch.device,
    on_device: bool | str,
    ignored: int | None = None,
) -> tuple[InputRows, Tensor, Tensor]:
    """Return inputs, and class codes and targets of the loss on the device.

    The code −1 marks a row without a label. With a sieve, labels that the loss ignores become −1, too. The
    targets are the codes, or soft labels in float32.
    """
    inputs = open_inputs(X, "X", model, device, on_device)
    eps = torch.finfo(y.dtype).eps if isinstance(y, Tensor) and y.is_floating_point() else None
    labels = read_labels(_array(y), "y", eps=eps)
    check_same_length(X=inputs, y=labels.codes)  # type: ignore[arg-type]
    _check_augmentation(inputs, recipe)
    codes = torch.as_tensor(labels.codes).to(device)
    if labels.shares is None:
        if recipe.sieve is not None and ignored is not None:
            codes = codes.masked_fill(codes == ignored, -1)
        return inputs, codes, codes
    if recipe.sieve is not None:
        raise InvalidInputError(
            "`y` must be one label per row for a `sieve`, which compares it with the predicted class; got "
            "soft labels. Use sieve=None, or the most probable labels: y.argmax(axis=1)."
        )
    return inputs, codes, torch.as_tensor(labels.shares, dtype=torch.float32).to(device)


def check_trainable(model: Any, loss: Any) -> None:
    """Refuse a model without weights to train, and a loss that cannot be called."""
    if not isinstance(model, nn.Module):
        got = f"the class {model.__name__}" if isinstance(model, type) else type(model).__name__
        raise InvalidInputError(f"`model` must be a torch.nn.Module; got {got}.")
    if not any(weight.requires_grad for weight in model.parameters()):
        raise InvalidInputError(
            "`model` must have weights that require gradients; it has none. Call `model.requires_grad_()` to "
            "train all of them."
        )
    if isinstance(loss, type) or not callable(loss):
        got = f"the class {loss.__name__}" if isinstance(loss, type) else short_repr(loss)
        raise InvalidInputError(
            f"`loss` must be a function or module of logits and labels, such as PeerLoss(); got {got}."
        )
    if torch.is_inference_mode_enabled() or not torch.is_grad_enabled():
        raise InvalidInputError("train_deep needs gradients. Call it outside of `torch.no_grad()`.")


def held_out_rows(
    validation: Any, model: nn.Module, device: torch.device, on_device: bool | str
) -> tuple[InputRows, IntArray]:
    """Return inputs and labels; none may be missing."""
    if not (isinstance(validation, tuple | list) and len(validation) == 2):
        raise InvalidInputError(
            f"`validation` must be a pair (inputs, noisy labels); got {type(validation).__name__}."
        )
    inputs = open_inputs(validation[0], "validation[0]", model, device, on_device)
    labels = as_labels(_array(validation[1]), "validation[1]")
    check_same_length(**{"validation[0]": inputs, "validation[1]": labels})  # type: ignore[arg-type]
    return inputs, labels


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


def _check_augmentation(inputs: InputRows, recipe: DeepRecipe) -> None:
    sieve, example = recipe.sieve, inputs.example
    crop = max(recipe.augment.crop, 0 if sieve is None else sieve.augment.crop)
    if isinstance(example, Tensor) and inputs.is_images:
        height, width = example.shape[1:3]
        if crop >= min(height, width):
            raise InvalidInputError(
                f"`crop` must be smaller than the images of {height} × {width} pixels; got {crop}. "
                "Lower it in `augment`, also in that of the sieve."
            )
        return
    if sieve is None:
        return
    if isinstance(example, Tensor) and example.is_floating_point():
        if sieve.growth is not None and sieve.growth.cut and example.ndim != 4:
            raise InvalidInputError(
                f"`growth.cut` pastes parts of images (n, channels, height, width); got inputs with "
                f"{example.ndim} dimensions. Use cut=0.0, which mixes inputs of any shape."
            )
        return
    kind = str(example.dtype) if isinstance(example, Tensor) else f"a mapping with {', '.join(example)}"
    if sieve.mixup:
        raise InvalidInputError(f"`mixup` needs real-valued inputs; got {kind}. Use mixup=False for codes.")
    if sieve.growth is not None:
        raise InvalidInputError(
            f"`growth` mixes inputs, so they must be real-valued; got {kind}. Use growth=None for codes."
        )


def number_type(model: Any) -> torch.dtype | None:
    """Return the precision of the weights of a model, ``None`` if it has none."""
    weights = model.parameters() if isinstance(model, nn.Module) else ()
    return next((weight.dtype for weight in weights if weight.is_floating_point()), None)


def open_inputs(
    X: Any, name: str, model: Any, device: torch.device, on_device: bool | str = "auto"
) -> InputRows:
    """Return checked inputs; real numbers get the precision of the weights of the model.

    With ``"auto"`` they are kept on the device if they fit. Otherwise batches are read when they are needed.
    """
    dtype = number_type(model)
    if isinstance(X, Dataset):
        return _open_dataset(X, name, dtype, device, on_device)
    arrays = _named_numbers(X, name) if isinstance(X, Mapping) else _numbers(X, name)
    parts = arrays if isinstance(arrays, dict) else {name: arrays}
    _check_channels(arrays, name)
    if _is_kept_on_device(on_device, sum(part.nbytes for part in parts.values()), device):
        inputs = as_model_numbers(map_inputs(_tensor, arrays), name, dtype)
        return DeviceRows(map_inputs(lambda tensor: tensor.to(device), inputs))
    length = len(next(iter(parts.values())))
    return HostRows(read_arrays(arrays), length, name, device=device, dtype=dtype)


def _open_dataset(
    X: Dataset[Any], name: str, dtype: torch.dtype | None, device: torch.device, on_device: bool | str
) -> InputRows:
    if isinstance(X, IterableDataset) or not hasattr(X, "__len__") or not len(X):
        raise InvalidInputError(
            f"`{name}` must be a map-style dataset, with `__getitem__` and `__len__`, that is not empty; got "
            f"{type(X).__name__}. Rows are read in random order."
        )
    rows = HostRows(read_dataset(X, name), len(X), name, device=device, dtype=dtype)
    _check_channels(rows.example, name)
    return rows.load() if _is_kept_on_device(on_device, rows.nbytes, device) else rows


def _is_kept_on_device(on_device: bool | str, nbytes: int, device: torch.device) -> bool:
    if isinstance(on_device, bool):
        return on_device
    if on_device != "auto":
        raise InvalidInputError(f"`data_on_device` must be True, False or 'auto'; got {on_device!r}.")
    # An epoch has a copy in random order, and a growing sieve another one of the trusted rows.
    return 3 * nbytes <= available_memory(device)


def _check_channels(inputs: Any, name: str) -> None:
    shape: tuple[int, ...] = getattr(inputs, "shape", ())
    if len(shape) == 4 and inputs.dtype in (np.uint8, torch.uint8) and shape[3] > 4 >= shape[1]:
        raise InvalidInputError(
            f"`{name}` of type uint8 must be images (n, height, width, channels); got "
            f"{tuple(shape)}, which looks like channels first. Use `X.transpose(0, 2, 3, 1)`."
        )


def _named_numbers(X: Mapping[Any, Any], name: str) -> dict[str, Any]:
    if not X or not all(isinstance(key, str) for key in X):
        raise InvalidInputError(
            f"`{name}` must have the names of the model's arguments as keys, such as 'input_ids'; got "
            f"{list(X)!r}."
        )
    named = {key: _numbers(value, f"{name}[{key!r}]") for key, value in X.items()}
    check_same_length(**{f"{name}[{key!r}]": array for key, array in named.items()})  # type: ignore[arg-type]
    return named


def _numbers(X: Any, name: str) -> Tensor | NDArray[Any]:
    """Return a tensor or an array of numbers, which is not copied: it may be mapped from a file."""
    try:
        array = X.detach() if isinstance(X, Tensor) else np.asarray(X)
    except ValueError as error:  # rows of different length
        raise InvalidInputError(f"`{name}` must be an array of numbers; {error}.") from error
    if isinstance(array, Tensor) and (array.layout != torch.strided or array.is_complex()):
        got = f"dtype {array.dtype}" if array.is_complex() else f"layout {array.layout}"
        raise InvalidInputError(f"`{name}` must be a dense tensor of real numbers; got {got}.")
    if isinstance(array, np.ndarray) and array.dtype.kind not in "biuf":
        raise InvalidInputError(
            f"`{name}` must be an array or tensor of numbers; got dtype {array.dtype}. Encode text and "
            "categories first."
        )
    if isinstance(array, np.ndarray) and array.dtype.itemsize > 8:
        raise InvalidInputError(
            f"`{name}` must have numbers of at most 64 bits, the largest of torch; got {array.dtype}. Use "
            f"`{name}.astype('float64')`."
        )
    if not array.ndim:
        raise InvalidInputError(f"`{name}` must have one entry per row; got a single number.")
    if not len(array):
        raise InvalidInputError(f"`{name}` is empty; pass at least one row.")
    return array


def _tensor(array: Any) -> Tensor:
    return array if isinstance(array, Tensor) else as_tensor(array)


def _array(y: Any) -> NDArray[Any]:
    if isinstance(y, Tensor):
        y = y.detach().cpu()
        return np.asarray(y.float() if y.dtype == torch.bfloat16 else y)  # NumPy has no bfloat16
    return np.asarray(y)
