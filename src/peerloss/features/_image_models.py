"""Pretrained models of images: Hugging Face, timm and torchvision, behind one interface."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from peerloss.exceptions import InvalidInputError
from peerloss.features._resize_image import FILTERS, resize
from peerloss.features._weights_folder import (
    as_features,
    find_weights,
    first_line,
    import_optional,
    load_transformer,
    read_settings,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

#: Mean and standard deviation of the colours of ImageNet, and the usual side of its images.
IMAGENET_MEAN, IMAGENET_STD, IMAGENET_SIDE = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225), 224
#: Largest side of the input of a model.
MAX_SIDE = 2048
#: Share of the shorter side that is cut out, if the settings do not say it.
CROP_SHARE = 0.875


@dataclass(frozen=True)
class ImageModel:
    """A model and the preparation of its input."""

    forward: Callable[[Tensor], Tensor]
    """From images (n, 3, height, width) to features (n, d)."""
    size: tuple[int, int]
    short_side: int | None
    """Side to which images are scaled before the centre is cut out; ``None`` stretches them."""
    mean: Sequence[float] = IMAGENET_MEAN
    std: Sequence[float] = IMAGENET_STD
    resample: int = FILTERS["bilinear"]

    def __post_init__(self) -> None:
        sides = [*self.size, self.short_side or self.size[0]]
        valid = all(isinstance(side, int) and 1 <= side <= MAX_SIDE for side in sides)
        valid &= _are_colours(self.mean) and _are_colours(self.std) and min(self.std) > 0
        if not valid:
            raise InvalidInputError(
                f"`model`: its settings must give a side from 1 to {MAX_SIDE} pixels, and mean and standard "
                f"deviation of three colours; got sides {sides}, mean {self.mean}, deviation {self.std}."
            )

    def prepare(self, pixels: NDArray[np.uint8]) -> Tensor:
        """Return an image as the model expects it, (3, height, width)."""
        scaled = resize(pixels, self.size, short_side=self.short_side, resample=self.resample)
        values = (scaled / 255.0 - np.asarray(self.mean)) / np.asarray(self.std)
        return torch.from_numpy(values.transpose(2, 0, 1).astype(np.float32))

    @torch.inference_mode()
    def __call__(self, images: Tensor) -> Tensor:
        """Return features of prepared images."""
        try:
            return self.forward(images).float()
        except (TypeError, ValueError, RuntimeError, AttributeError) as error:
            raise InvalidInputError(
                f"`model` cannot be applied to images of shape {tuple(images.shape[1:])}: "
                f"{first_line(error)} Use a model of images."
            ) from error


def _are_colours(values: Any) -> bool:
    is_list = isinstance(values, list | tuple) and len(values) == 3
    return is_list and all(isinstance(value, int | float) and math.isfinite(value) for value in values)


def load_image_model(model: str | Path, device: torch.device) -> ImageModel:
    """Return a model that was given by folder or by name, as :func:`image_features` describes."""
    library, _, name = str(model).partition(":")
    if library == "torchvision" and name:
        return _torchvision_model(name, device)
    if library == "timm" and name:
        return _timm_model(name, device)
    folder = find_weights(model)
    settings = read_settings(folder / "config.json")
    if "architecture" in settings and "model_type" not in settings:
        return _timm_model(str(settings["architecture"]), device, folder=folder, settings=settings)
    return _hugging_face_model(folder, device)


def _hugging_face_model(folder: Path, device: torch.device) -> ImageModel:
    module = load_transformer(folder).to(device)
    settings = read_settings(folder / "preprocessor_config.json", required=False)
    config = getattr(module.config, "vision_config", module.config)  # of models of images and texts
    try:
        size, short_side = _hugging_face_size(settings, getattr(config, "image_size", None))
    except (TypeError, ValueError, ArithmeticError) as error:
        raise InvalidInputError(
            f"`model`: preprocessor_config.json does not say the size of the images ({first_line(error)}) "
            "Save or download the model again."
        ) from error
    resample: Any = settings.get("resample")

    def forward(images: Tensor) -> Tensor:
        if hasattr(module, "get_image_features"):  # models of images and texts
            return as_features(module.get_image_features(pixel_values=images))
        hidden: Tensor = module(pixel_values=images).last_hidden_state
        return hidden.mean(dim=1) if hidden.ndim == 3 else hidden.mean(dim=(2, 3))

    return ImageModel(
        forward,
        size,
        short_side,
        settings.get("image_mean", IMAGENET_MEAN),
        settings.get("image_std", IMAGENET_STD),
        resample if resample in FILTERS.values() else FILTERS["bicubic"],
    )


def _hugging_face_size(settings: dict[str, Any], image_size: Any) -> tuple[tuple[int, int], int | None]:
    """Return height and width, and the shorter side before the centre is cut out."""
    size, crop = settings.get("size", image_size), settings.get("crop_size")
    short = size.get("shortest_edge") if isinstance(size, dict) else None
    if crop is not None and settings.get("do_center_crop", True):
        cut = _height_width(crop)
        return cut, short if short is not None else min(_height_width(size))
    if short is not None:
        share = settings.get("crop_pct") or 1.0
        return (short, short), int(short / share)
    return _height_width(size), None


def _height_width(size: Any) -> tuple[int, int]:
    if size is None:
        return IMAGENET_SIDE, IMAGENET_SIDE
    if isinstance(size, dict):
        return size.get("height", IMAGENET_SIDE), size.get("width", IMAGENET_SIDE)
    if isinstance(size, list | tuple) and len(size) == 2:
        return size[0], size[1]
    return size, size


def _timm_model(
    name: str, device: torch.device, *, folder: Path | None = None, settings: dict[str, Any] | None = None
) -> ImageModel:
    """Return a timm model: downloaded by timm, or with the weights of a folder in timm's format."""
    timm = import_optional("timm", "timm")
    try:
        module = timm.create_model(name, pretrained=folder is None, num_classes=0)
        if folder is not None:
            _load_state(module, folder)
    except (RuntimeError, ValueError, OSError) as error:
        raise InvalidInputError(f"`model`: timm cannot load {name!r}: {first_line(error)}") from error
    found = timm.data.resolve_data_config((settings or {}).get("pretrained_cfg", {}), model=module)
    height, width = found["input_size"][1:]
    return ImageModel(
        module.eval().to(device),
        (height, width),
        int(min(height, width) / (found.get("crop_pct") or CROP_SHARE)),
        found["mean"],
        found["std"],
        FILTERS.get(found.get("interpolation", "bicubic"), FILTERS["bicubic"]),
    )


def _load_state(module: nn.Module, folder: Path) -> None:
    """Load the safetensors files of a folder; weights of the head are not needed, all others are."""
    from safetensors.torch import load_file  # noqa: PLC0415 - takes long, and most calls have no timm folder

    state: dict[str, Tensor] = {}
    for file in sorted(folder.glob("*.safetensors")):
        state |= load_file(file)
    missing = module.load_state_dict(state, strict=False).missing_keys
    if missing:
        raise InvalidInputError(
            f"`model` {str(folder)!r} lacks {len(missing)} of its weights, such as {missing[0]}. Save or "
            "download the model again."
        )


def _torchvision_model(name: str, device: torch.device) -> ImageModel:
    """Return a torchvision model with its default weights; its last linear layer, the head, is removed."""
    models = import_optional("torchvision.models", "torchvision")
    try:
        weights = models.get_model_weights(name).DEFAULT
        module = models.get_model(name, weights=None)
        # The published files are pickles; torch reads only tensors from them and checks their SHA-256.
        state = weights.get_state_dict(progress=False, check_hash=True, weights_only=True)
        module.load_state_dict(state)
    except (ValueError, RuntimeError, OSError, KeyError) as error:
        raise InvalidInputError(f"`model`: torchvision cannot load {name!r}: {first_line(error)}") from error
    _remove_head(module, name)
    settings = weights.transforms()
    size, short = settings.crop_size[0], settings.resize_size[0]
    resample = FILTERS.get(settings.interpolation.value, FILTERS["bilinear"])
    return ImageModel(
        module.eval().to(device), (size, size), short, tuple(settings.mean), tuple(settings.std), resample
    )


def _remove_head(module: nn.Module, name: str) -> None:
    linear = [path for path, part in module.named_modules() if isinstance(part, nn.Linear)]
    if not linear:
        raise InvalidInputError(
            f"`model`: torchvision's {name!r} has no linear layer at its end. Use another model, such as "
            "torchvision:resnet50."
        )
    parent, _, last = linear[-1].rpartition(".")
    setattr(module.get_submodule(parent), last, nn.Identity())
