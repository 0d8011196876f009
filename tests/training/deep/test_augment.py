"""Augmentation on the device."""

from dataclasses import replace

import pytest
import torch

from peerloss.exceptions import InvalidInputError
from peerloss.training import STRONG_AUGMENT, Augment
from peerloss.training.deep._augment import crop_and_flip, distort, mix_pairs, to_inputs


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def images(n=20, size=8):
    """Return images of random pixels."""
    return (
        torch.randperm(n * size * size * 3, generator=seeded())
        .remainder(251)
        .to(torch.uint8)
        .view(n, size, size, 3)
    )


def naive_crop(image, shift_row, shift_column, mirrored):
    size = len(image)

    def reflect(i):
        i = abs(i)
        return size - 1 - abs(size - 1 - i)

    out = torch.empty_like(image)
    for r in range(size):
        for c in range(size):
            source = size - 1 - c if mirrored else c
            out[r, c] = image[reflect(r + shift_row), reflect(source + shift_column)]
    return out


def test_each_result_is_a_shifted_and_mirrored_original():
    """Every image equals one of the crops with reflected border, computed by a naive loop."""
    originals = images()
    order = torch.tensor([3, 0, 3, 7])
    changed = crop_and_flip(originals, order, Augment(crop=2), generator=seeded())
    assert changed.shape == (4, 8, 8, 3)
    for row, image in zip(order, changed, strict=True):
        options = [
            naive_crop(originals[row], dr, dc, mirrored)
            for dr in range(-2, 3)
            for dc in range(-2, 3)
            for mirrored in (False, True)
        ]
        assert any(torch.equal(image, option) for option in options)


def test_without_crop_and_flip_images_do_not_change():
    """The result is plain indexing."""
    order = torch.tensor([5, 1])
    same = crop_and_flip(images(), order, Augment(crop=0, flip=False), generator=None)
    assert torch.equal(same, images()[order])


def test_shifts_and_flips_are_uniform():
    """Shifts are uniform over −crop..crop and half of the images are mirrored."""
    ramp = torch.arange(8, dtype=torch.uint8)[None, None, :, None].expand(1, 8, 8, 3)
    n = 6000
    changed = crop_and_flip(ramp, torch.zeros(n, dtype=torch.long), Augment(crop=1), generator=seeded())
    middle = changed[:, 0, 3:5, 0].long()
    mirrored = (middle[:, 1] < middle[:, 0]).float().mean()
    assert abs(float(mirrored) - 0.5) < 5 * 0.5 / n**0.5
    shift = middle.min(dim=1).values - 3
    for value in (-1, 0, 1):
        assert abs(float((shift == value).float().mean()) - 1 / 3) < 5 * 0.48 / n**0.5


def test_inputs_are_scaled_and_channels_come_first():
    """0 and 255 become ±127.5/64, and the memory layout stays channels last, which is fast on GPUs."""
    pixels = torch.tensor([0, 255], dtype=torch.uint8)[:, None, None, None].expand(2, 4, 4, 3).contiguous()
    inputs = to_inputs(pixels)
    assert inputs.shape == (2, 3, 4, 4)
    assert inputs.is_contiguous(memory_format=torch.channels_last)
    assert inputs.unique().tolist() == [-127.5 / 64, 127.5 / 64]


def test_cutout_blanks_one_square():
    """Blanked pixels form a rectangle of at most the given size, the same in all channels."""
    inputs = torch.ones(50, 3, 8, 8)
    cut = distort(inputs, Augment(cutout=4), generator=seeded())
    assert set(cut.unique().tolist()) == {0.0, 1.0}
    assert torch.equal(cut[:, 0], cut[:, 1])
    for mask in cut[:, 0] == 0:
        rows, columns = mask.any(dim=1), mask.any(dim=0)
        assert torch.equal(mask, rows[:, None] & columns[None, :])
        assert 2 <= int(rows.sum()) <= 4
        assert 2 <= int(columns.sum()) <= 4


def test_colour_of_a_grey_image_only_shifts():
    """A constant grey image has no contrast or saturation: only its brightness changes, within bounds."""
    changed = distort(torch.full((30, 3, 4, 4), 0.25), Augment(colour=0.4), generator=seeded())
    shift = changed[:, 0, 0, 0] - 0.25
    torch.testing.assert_close(changed, (0.25 + shift)[:, None, None, None].expand_as(changed))
    assert float(shift.abs().max()) <= 0.4
    assert float(shift.std()) > 0.1


def test_rotation_does_not_change_a_constant_image():
    """An affine map with reflected border creates no new values; half precision does not affect it."""
    constant = torch.full((5, 3, 8, 8), 0.7)
    torch.testing.assert_close(distort(constant, Augment(affine=20.0), generator=seeded()), constant)
    picture = torch.rand(5, 3, 8, 8, generator=seeded())
    rotated = distort(picture, Augment(affine=20.0), generator=seeded())
    assert rotated.shape == picture.shape
    assert float(rotated.min()) >= 0
    assert float(rotated.max()) <= 1
    assert not torch.allclose(rotated, picture)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(distort(picture, Augment(affine=20.0), generator=seeded()), rotated)


@pytest.mark.parametrize("augment", [Augment(), STRONG_AUGMENT])
def test_augmentation_is_reproducible(augment):
    """Equal seeds give equal images, other seeds other images; the originals do not change."""
    originals = images()
    before = originals.clone()

    def make(seed):
        generator = seeded(seed)
        changed = crop_and_flip(originals, torch.arange(20), augment, generator=generator)
        return distort(to_inputs(changed), augment, generator=generator)

    assert torch.equal(make(1), make(1))
    assert not torch.equal(make(1), make(2))
    assert torch.equal(originals, before)


def test_a_share_of_the_images_is_changed_strongly():
    """About this share changes; the share does not affect how the changed images look."""
    inputs = torch.rand(400, 3, 4, 4, generator=seeded())
    half = distort(inputs, STRONG_AUGMENT, generator=seeded())
    changed = (half != inputs).flatten(1).any(dim=1)
    assert 0.4 < float(changed.float().mean()) < 0.6
    everything = distort(inputs, replace(STRONG_AUGMENT, share=1.0), generator=seeded())
    assert torch.equal(half[changed], everything[changed])
    assert torch.equal(distort(inputs, Augment(share=0.5), generator=seeded()), inputs)


@pytest.mark.parametrize(
    "wrong", [{"crop": -3}, {"crop": 1.5}, {"flip": 2}, {"cutout": -1}, {"colour": "red"}]
)
def test_settings_are_checked(wrong):
    """The message names the setting."""
    with pytest.raises(InvalidInputError, match=f"`{next(iter(wrong))}` must"):
        Augment(**wrong)


@pytest.mark.parametrize("share", [-0.1, 1.5, float("nan")])
def test_the_share_must_lie_between_0_and_1(share):
    """Other values are refused, and the message names the setting."""
    with pytest.raises(InvalidInputError, match="share"):
        Augment(share=share)


def test_mixing_keeps_the_majority_share():
    """Each row is at least half itself, inputs and targets have the same weights, and sums stay."""
    inputs = torch.arange(6.0)[:, None, None, None].expand(6, 3, 2, 2)
    targets = torch.eye(6)
    mixed, soft = mix_pairs(inputs, targets, generator=seeded())
    own = soft.diagonal()
    assert bool((own >= 0.5).all())
    torch.testing.assert_close(soft.sum(dim=1), torch.ones(6))
    torch.testing.assert_close(
        mixed[:, 0, 0, 0], own * torch.arange(6.0) + (1 - own) * torch.arange(6.0).flip(0)
    )
