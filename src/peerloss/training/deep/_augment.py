"""Random crops, flips, stronger changes and mixup of small images, in batches on their device."""

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
    """Random changes of the training images, drawn again in each epoch."""

    crop: int = 4
    """Largest shift in pixels; the image is reflected at its border."""
    flip: bool = True
    """Whether half of the images are mirrored."""
    cutout: int = 0
    """Side of a blanked square, in pixels."""
    affine: float = 0.0
    """Largest rotation in degrees; shear and zoom are proportional to it."""
    colour: float = 0.0
    """Largest relative change of brightness, contrast and saturation."""
    share: float = 1.0
    """Share of the images with these three stronger changes; the others are only shifted and mirrored."""

    def __post_init__(self) -> None:
        make_plain(self)
        check_count(self.crop, "crop", minimum=0)
        check_flag(self.flip, "flip")
        for name in ("cutout", "affine", "colour"):
            check_in_range(getattr(self, name), name, 0.0, math.inf, high_open=True)
        check_in_range(self.share, "share", 0.0, 1.0)


def check_augment(value: object) -> None:
    """Refuse a value that is not an :class:`Augment`."""
    if not isinstance(value, Augment):
        raise InvalidInputError(f"`augment` must be an Augment, such as Augment(); got {value!r}.")


#: Augmentation during the rounds of a sieve: half of the images are changed. Targets come from plain ones.
STRONG_AUGMENT = Augment(cutout=12, affine=20.0, colour=0.4, share=0.5)


def crop_and_flip(
    images: Tensor, order: Tensor, augment: Augment, *, generator: torch.Generator | None
) -> Tensor:
    """Return ``images[order]``, uint8 (n, height, width, channels), each shifted and mirrored at random.

    This is one gather: positions outside the image are reflected into it, so nothing is padded first.
    """
    n, (height, width) = len(order), images.shape[1:3]

    def positions(size: int) -> Tensor:
        shifted = torch.arange(size, device=images.device).repeat(n, 1)
        if augment.crop:
            reach = 2 * augment.crop + 1
            shift = torch.randint(reach, (n, 1), device=images.device, generator=generator) - augment.crop
            shifted = (shifted + shift).abs()
        return size - 1 - (size - 1 - shifted).abs()

    rows, columns = positions(height), positions(width)
    if augment.flip:
        mirrored = torch.rand(n, 1, device=images.device, generator=generator) < 0.5
        columns = torch.where(mirrored, width - 1 - columns, columns)
    return images[order[:, None, None], rows[:, :, None], columns[:, None, :]]


def to_inputs(images: Tensor) -> Tensor:
    """Scale uint8 images (n, height, width, channels) to about −2..2, as (n, channels, height, width)."""
    return (images.permute(0, 3, 1, 2).float() - 127.5) / 64.0


def distort(inputs: Tensor, augment: Augment, *, generator: torch.Generator | None) -> Tensor:
    """Apply the stronger changes to a batch of inputs (n, channels, height, width)."""
    changed = inputs
    if augment.affine:
        changed = _rotate(changed, augment.affine, generator)
    if augment.colour:
        changed = _recolour(changed, augment.colour, generator)
    if augment.cutout:
        changed = _cut_out(changed, augment.cutout, generator)
    if augment.share < 1.0 and changed is not inputs:
        chosen = torch.rand(len(inputs), 1, 1, 1, device=inputs.device, generator=generator) < augment.share
        return torch.where(chosen, changed, inputs)
    return changed


def _draw(inputs: Tensor, columns: int, generator: torch.Generator | None) -> Tensor:
    """Draw uniform numbers in [−1, 1), shape (columns, n, 1, 1)."""
    shape = (columns, len(inputs), 1, 1)
    return 2.0 * torch.rand(shape, device=inputs.device, generator=generator) - 1.0


def _rotate(inputs: Tensor, degrees: float, generator: torch.Generator | None) -> Tensor:
    angle, shear, zoom = (math.radians(degrees) * _draw(inputs, 3, generator)).squeeze(2)
    scale = torch.exp(0.5 * zoom)
    zero = torch.zeros_like(angle)
    top = torch.stack((scale * angle.cos(), scale * (shear - angle.sin()), zero), dim=2)
    bottom = torch.stack((scale * angle.sin(), scale * angle.cos(), zero), dim=2)
    maps = torch.cat((top, bottom), dim=1)
    with without_autocast(inputs):  # in half precision the positions of pixels would be inexact
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
    in_rows = (rows + 0.5 - centre[0] * height).abs() < size / 2.0
    in_columns = (columns + 0.5 - centre[1] * width).abs() < size / 2.0
    return inputs.masked_fill((in_rows & in_columns)[:, None], 0.0)


def mix_pairs(inputs: Tensor, targets: Tensor, *, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
    """Mix row i of a batch with row n − 1 − i (mixup); its own share is uniform in [½, 1]."""
    own = 1.0 - 0.5 * torch.rand(len(inputs), device=inputs.device, generator=generator)

    def mixed(rows: Tensor) -> Tensor:
        share = own.view(-1, *[1] * (rows.ndim - 1))
        return share * rows + (1.0 - share) * rows.flip(0)

    return mixed(inputs), mixed(targets)
