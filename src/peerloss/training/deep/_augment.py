"""Random crops, flips, stronger changes and mixup of small images, in batches on their device."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from peerloss._validation import check_count, check_flag, check_in_range, make_plain
from peerloss.exceptions import InvalidInputError
from peerloss.functional.batch import without_autocast

if TYPE_CHECKING:
    from collections.abc import Sequence


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
    """Share of the images with the stronger changes; the others are only shifted and mirrored."""
    random_changes: int = 0
    """Number of changes drawn for each image from a list of eleven, each of random strength (as in
    RandAugment): none, autocontrast, brightness, contrast, saturation, posterise, solarise, rotation, shear
    along either axis, and a shift of up to a quarter of the image."""

    def __post_init__(self) -> None:
        make_plain(self)
        check_count(self.crop, "crop", minimum=0)
        check_flag(self.flip, "flip")
        for name in ("cutout", "affine", "colour"):
            check_in_range(getattr(self, name), name, 0.0, math.inf, high_open=True)
        check_in_range(self.share, "share", 0.0, 1.0)
        check_count(self.random_changes, "random_changes", minimum=0)

    @property
    def has_strong_changes(self) -> bool:
        """Whether :func:`distort` changes images, beyond shifts and reflections."""
        return bool(self.cutout or self.affine or self.colour or self.random_changes)


def check_augment(value: object) -> None:
    """Refuse a value that is not an :class:`Augment`."""
    if not isinstance(value, Augment):
        raise InvalidInputError(f"`augment` must be an Augment, such as Augment(); got {value!r}.")


#: Augmentation during the rounds of a sieve: half of the images are changed. Targets come from plain ones.
STRONG_AUGMENT = Augment(cutout=12, affine=20.0, colour=0.4, share=0.5)


class Moves(NamedTuple):
    """Random shifts and reflections of n images; each tensor has shape (n, 1)."""

    down: Tensor | None
    right: Tensor | None
    """Shifts in pixels; ``None`` without crops."""
    mirrored: Tensor | None
    """Whether an image is mirrored; ``None`` without flips."""

    def take(self, positions: Tensor | slice) -> Moves:
        """Return the moves of some of the images."""
        return Moves(*(None if part is None else part[positions] for part in self))


def draw_moves(n: int, augment: Augment, *, device: torch.device, generator: torch.Generator | None) -> Moves:
    """Draw how n images are shifted and mirrored."""

    def shifts() -> Tensor | None:
        if not augment.crop:
            return None
        reach = 2 * augment.crop + 1
        return torch.randint(reach, (n, 1), device=device, generator=generator) - augment.crop

    down, right = shifts(), shifts()
    mirrored = _uniform((n, 1), device, generator) < 0.5 if augment.flip else None
    return Moves(down, right, mirrored)


def move_images(images: Tensor, order: Tensor, moves: Moves) -> Tensor:
    """Return ``images[order]``, uint8 (n, height, width, channels), each shifted and mirrored by ``moves``.

    This is one gather: positions outside the image are reflected into it, so nothing is padded first.
    """
    n, (height, width) = len(order), images.shape[1:3]

    def positions(size: int, shift: Tensor | None) -> Tensor:
        shifted = torch.arange(size, device=images.device).repeat(n, 1)
        if shift is not None:
            shifted = (shifted + shift).abs()
        return size - 1 - (size - 1 - shifted).abs()

    rows, columns = positions(height, moves.down), positions(width, moves.right)
    if moves.mirrored is not None:
        columns = torch.where(moves.mirrored, width - 1 - columns, columns)
    return images[order[:, None, None], rows[:, :, None], columns[:, None, :]]


def to_inputs(images: Tensor) -> Tensor:
    """Scale uint8 images (n, height, width, channels) to about −2..2, as (n, channels, height, width)."""
    return (images.permute(0, 3, 1, 2).float() - 127.5) / 64.0


def distort(inputs: Tensor, augment: Augment, *, generator: torch.Generator | None) -> Tensor:
    """Apply the stronger changes to a batch of inputs (n, channels, height, width)."""
    changed = inputs
    if augment.random_changes:
        changed = _change_at_random(changed, augment.random_changes, generator)
    if augment.affine:
        changed = _rotate(changed, augment.affine, generator)
    if augment.colour:
        changed = _recolour(changed, augment.colour, generator)
    if augment.cutout:
        changed = _cut_out(changed, augment.cutout, generator)
    if augment.share < 1.0 and changed is not inputs:
        chosen = _uniform((len(inputs), 1, 1, 1), inputs.device, generator) < augment.share
        return torch.where(chosen, changed, inputs)
    return changed


def _uniform(shape: Sequence[int], device: torch.device, generator: torch.Generator | None) -> Tensor:
    """Draw uniform numbers in [0, 1); torch's default dtype has no effect."""
    return torch.rand(shape, dtype=torch.float32, device=device, generator=generator)


def _draw(inputs: Tensor, columns: int, generator: torch.Generator | None) -> Tensor:
    """Draw uniform numbers in [−1, 1), shape (columns, n, 1, 1)."""
    shape = (columns, len(inputs), 1, 1)
    return 2.0 * _uniform(shape, inputs.device, generator) - 1.0


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


#: Black and white as inputs, see :func:`to_inputs`.
_BLACK, _WHITE = -127.5 / 64.0, 127.5 / 64.0
#: Number of changes that :func:`_change_at_random` draws from.
_N_CHANGES = 11


def _change_at_random(inputs: Tensor, changes: int, generator: torch.Generator | None) -> Tensor:
    """Apply ``changes`` random changes to each image; those of its geometry need one interpolation only."""
    n = len(inputs)
    maps = torch.eye(3, dtype=inputs.dtype, device=inputs.device).repeat(n, 1, 1)
    with without_autocast(inputs):  # in half precision the positions of pixels would be inexact
        for _ in range(changes):
            which = torch.randint(_N_CHANGES, (n,), device=inputs.device, generator=generator)
            maps = maps @ _random_map(which, _draw(inputs, 5, generator)[:, :, 0, 0])
            inputs = _random_tone(inputs, which[:, None, None, None], _draw(inputs, 3, generator)[..., None])
        grid = functional.affine_grid(maps[:, :2], list(inputs.shape), align_corners=False)
    return functional.grid_sample(inputs, grid, padding_mode="reflection", align_corners=False)


def _random_map(which: Tensor, strengths: Tensor) -> Tensor:
    """Return the maps (n, 3, 3) of changes 7 to 10; ``strengths`` is (5, n) in [−1, 1)."""
    angle = math.radians(30.0) * strengths[0] * (which == 7)
    maps = torch.zeros(len(which), 3, 3, dtype=strengths.dtype, device=which.device)
    maps[:, 0, 0] = maps[:, 1, 1] = angle.cos()
    maps[:, 0, 1] = 0.3 * strengths[1] * (which == 8) - angle.sin()
    maps[:, 1, 0] = 0.3 * strengths[2] * (which == 9) + angle.sin()
    maps[:, :2, 2] = (0.5 * strengths[3:] * (which == 10)).T  # the image is 2 wide in these coordinates
    maps[:, 2, 2] = 1.0
    return maps


def _random_tone(inputs: Tensor, which: Tensor, strengths: Tensor) -> Tensor:
    """Apply changes 1 to 6, of which each image has at most one; ``strengths`` is (3, n, 1, 1, 1)."""
    grey = inputs.mean(dim=1, keepdim=True)
    middle = grey.mean(dim=(2, 3), keepdim=True)
    least, most = inputs.amin(dim=(2, 3), keepdim=True), inputs.amax(dim=(2, 3), keepdim=True)
    factor = 1.0 + 0.9 * strengths[0]
    levels = torch.exp2((4.0 + 2.0 * strengths[1]).round()) / (_WHITE - _BLACK)
    limit = -0.5 + (_WHITE + 0.5) * (strengths[2] + 1.0) / 2.0
    versions = (
        _BLACK + (inputs - least) * (_WHITE - _BLACK) / (most - least).clamp(min=1e-3),
        _BLACK + (inputs - _BLACK) * factor,
        middle + (inputs - middle) * factor,
        grey + (inputs - grey) * factor,
        _BLACK + ((inputs - _BLACK) * levels).floor() / levels,
        torch.where(inputs > limit, -inputs, inputs),
    )
    for number, version in enumerate(versions, start=1):
        inputs = torch.where(which == number, version, inputs)
    return inputs.clamp(_BLACK, _WHITE)


def _cut_out(inputs: Tensor, size: int, generator: torch.Generator | None) -> Tensor:
    height, width = inputs.shape[2:]
    centre = (_draw(inputs, 2, generator) + 1.0) / 2.0
    rows = torch.arange(height, device=inputs.device)[:, None]
    columns = torch.arange(width, device=inputs.device)[None, :]
    in_rows = (rows + 0.5 - centre[0] * height).abs() < size / 2.0
    in_columns = (columns + 0.5 - centre[1] * width).abs() < size / 2.0
    return inputs.masked_fill((in_rows & in_columns)[:, None], 0.0)


def mix_pairs(
    inputs: Tensor, targets: Tensor, *, generator: torch.Generator | None, beta: int = 1, cut: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Mix row i of a batch with row n − 1 − i (mixup); its own share is max(b, 1 − b), b ~ Beta(beta, beta).

    With ``beta`` 1 the share is uniform in [½, 1]. With ``cut`` the rows must be images. This share of them
    is not mixed. Instead, a rectangle of the other image is pasted into them (CutMix), and the targets are
    mixed in proportion to its area, which is uniform in [0, ½] up to whole pixels.

    References
    ----------
    Zhang et al., *mixup: Beyond Empirical Risk Minimization*, ICLR 2018. Yun et al., *CutMix: Regularization
    Strategy to Train Strong Classifiers with Localizable Features*, ICCV 2019.
    """
    if beta == 1:
        own = 1.0 - 0.5 * _uniform((len(inputs),), inputs.device, generator)
    else:  # the median of 2·beta − 1 uniform numbers has this distribution
        uniform = _uniform((len(inputs), 2 * beta - 1), inputs.device, generator)
        own = 0.5 + (uniform.median(dim=1).values - 0.5).abs()
    of_pixels = own.view(-1, *[1] * (inputs.ndim - 1))
    if cut:
        is_cut = _uniform(of_pixels.shape, inputs.device, generator) < cut
        of_pixels = torch.where(is_cut, 1.0 - _draw_rectangles(inputs, generator), of_pixels)
        own = of_pixels.mean(dim=(1, 2, 3))

    def mixed(rows: Tensor, share: Tensor) -> Tensor:
        share = share.to(rows.dtype)
        return share * rows + (1.0 - share) * rows.flip(0)

    return mixed(inputs, of_pixels), mixed(targets, own.view(-1, *[1] * (targets.ndim - 1)))


def _draw_rectangles(images: Tensor, generator: torch.Generator | None) -> Tensor:
    """Return ones in a random rectangle of each image, zeros elsewhere, (n, 1, height, width)."""
    height, width = images.shape[2:]
    area, down, right = (_draw(images, 3, generator) + 1.0) / 2.0
    side = (area / 2.0).sqrt()  # relative to the sides of the image

    # Distances of the pixels from the upper left corner, in units of the sides of the rectangle.
    rows = ((torch.arange(height, device=images.device)[:, None] + 0.5) / height - down * (1.0 - side)) / side
    columns = ((torch.arange(width, device=images.device) + 0.5) / width - right * (1.0 - side)) / side
    inside: Tensor = (rows >= 0.0) & (rows < 1.0) & (columns >= 0.0) & (columns < 1.0)
    return inside[:, None].to(images.dtype)
