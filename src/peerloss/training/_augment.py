"""Random crops, flips and stronger changes of small images, many at once, on their device."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from peerloss._validation import check_count, check_flag, check_in_range, make_plain
from peerloss.exceptions import InvalidInputError
from peerloss.functional.batch import without_autocast


@dataclass(frozen=True)
class Augment:
    """What happens to each training image; drawn anew each epoch."""

    crop: int = 4
    """Images move by up to so many pixels; what comes in is the image reflected at its border."""
    flip: bool = True
    """Half of the images are mirrored."""
    cutout: int = 0
    """Side of a square that is blanked, in pixels."""
    affine: float = 0.0
    """Rotation (degrees) and, in proportion, shear and zoom of up to this strength."""
    colour: float = 0.0
    """Brightness, contrast and saturation change by up to this share."""
    share: float = 1.0
    """Share of the images that get these three stronger changes; the others only move and mirror."""

    def __post_init__(self) -> None:
        make_plain(self)
        check_count(self.crop, "crop", minimum=0)
        check_flag(self.flip, "flip")
        for name in ("cutout", "affine", "colour"):
            check_in_range(getattr(self, name), name, 0.0, math.inf, high_open=True)
        check_in_range(self.share, "share", 0.0, 1.0)


def check_augment(value: object) -> None:
    """Refuse what is no :class:`Augment`."""
    if not isinstance(value, Augment):
        raise InvalidInputError(f"`augment` must be an Augment, such as Augment(); got {value!r}.")


#: For consistency: the student sees half of the images changed like this, the teacher the plain ones.
STRONG_AUGMENT = Augment(cutout=12, affine=20.0, colour=0.4, share=0.5)


def crop_and_flip(
    images: Tensor, order: Tensor, augment: Augment, *, generator: torch.Generator | None
) -> Tensor:
    """Return ``images[order]``, uint8 (n, height, width, channels), each moved and mirrored at random.

    One gather: positions outside the image are reflected into it, so nothing is padded or copied before.
    """
    n, (height, width) = len(order), images.shape[1:3]

    def positions(size: int) -> Tensor:
        moved = torch.arange(size, device=images.device).repeat(n, 1)
        if augment.crop:
            reach = 2 * augment.crop + 1
            shift = torch.randint(reach, (n, 1), device=images.device, generator=generator) - augment.crop
            moved = (moved + shift).abs()
        return size - 1 - (size - 1 - moved).abs()

    rows, columns = positions(height), positions(width)
    if augment.flip:
        mirrored = torch.rand(n, 1, device=images.device, generator=generator) < 0.5
        columns = torch.where(mirrored, width - 1 - columns, columns)
    return images[order[:, None, None], rows[:, :, None], columns[:, None, :]]


def to_inputs(images: Tensor) -> Tensor:
    """Bring uint8 (n, height, width, channels) to about −2..2 as (n, channels, height, width)."""
    return (images.permute(0, 3, 1, 2).float() - 127.5) / 64.0


def distort(inputs: Tensor, augment: Augment, *, generator: torch.Generator | None) -> Tensor:
    """Return a batch of inputs (n, channels, height, width) with the stronger changes applied."""
    changed = inputs
    if augment.affine:
        changed = _turn(changed, augment.affine, generator)
    if augment.colour:
        changed = _recolour(changed, augment.colour, generator)
    if augment.cutout:
        changed = _cut_out(changed, augment.cutout, generator)
    if augment.share < 1.0 and changed is not inputs:
        chosen = torch.rand(len(inputs), 1, 1, 1, device=inputs.device, generator=generator) < augment.share
        return torch.where(chosen, changed, inputs)
    return changed


def _draw(inputs: Tensor, columns: int, generator: torch.Generator | None) -> Tensor:
    """Uniform numbers in [−1, 1), shape (columns, n, 1, 1)."""
    shape = (columns, len(inputs), 1, 1)
    return 2.0 * torch.rand(shape, device=inputs.device, generator=generator) - 1.0


def _turn(inputs: Tensor, degrees: float, generator: torch.Generator | None) -> Tensor:
    angle, shear, zoom = (math.radians(degrees) * _draw(inputs, 3, generator)).squeeze(2)
    scale = torch.exp(0.5 * zoom)
    zero = torch.zeros_like(angle)
    top = torch.stack((scale * angle.cos(), scale * (shear - angle.sin()), zero), dim=2)
    bottom = torch.stack((scale * angle.sin(), scale * angle.cos(), zero), dim=2)
    maps = torch.cat((top, bottom), dim=1)
    with without_autocast(inputs):  # in half precision pixels would miss their places
        grid = functional.affine_grid(maps, list(inputs.shape), align_corners=False)
    return functional.grid_sample(inputs, grid, padding_mode="reflection", align_corners=False)


def _recolour(inputs: Tensor, strength: float, generator: torch.Generator | None) -> Tensor:
    brightness, contrast, saturation = (strength * _draw(inputs, 3, generator))[..., None]
    grey = inputs.mean(dim=1, keepdim=True)
    coloured = grey + (inputs - grey) * (1.0 + saturation)
    middle = grey.mean(dim=(2, 3), keepdim=True)
    changed: Tensor = middle + (coloured - middle) * (1.0 + contrast) + brightness
    return changed


def _cut_out(inputs: Tensor, size: int, generator: torch.Generator | None) -> Tensor:
    height, width = inputs.shape[2:]
    centre = (_draw(inputs, 2, generator) + 1.0) / 2.0
    rows = torch.arange(height, device=inputs.device)[:, None]
    columns = torch.arange(width, device=inputs.device)[None, :]
    half = size / 2.0
    hidden = ((rows + 0.5 - centre[0] * height).abs() < half) & (
        (columns + 0.5 - centre[1] * width).abs() < half
    )
    return inputs.masked_fill(hidden[:, None], 0.0)
