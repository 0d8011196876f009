"""Augmentation on the device."""

from dataclasses import replace

import pytest
import torch
from scipy import stats

from peerloss.exceptions import InvalidInputError
from peerloss.training import STRONG_AUGMENT, Augment
from peerloss.training.deep._augment import (
    _random_map,
    _random_tone,
    distort,
    draw_moves,
    mix_pairs,
    move_images,
    to_inputs,
)


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


def crop_and_flip(originals, order, augment, generator):
    """Return the rows ``order``, shifted and mirrored at random."""
    moves = draw_moves(len(order), augment, device=originals.device, generator=generator)
    return move_images(originals, order, moves)


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


@pytest.mark.parametrize("augment", [Augment(), STRONG_AUGMENT, Augment(random_changes=2, cutout=2)])
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


def test_random_changes_keep_the_range_of_images():
    """Values stay between black and white, about a tenth of the images does not change, the others differ."""
    n = 1100
    inputs = to_inputs(images(n))
    changed = distort(inputs, Augment(random_changes=1), generator=seeded())
    assert float(changed.abs().max()) <= 127.5 / 64 + 1e-5
    same = torch.isclose(changed, inputs, atol=1e-4).flatten(1).all(dim=1).float().mean()
    assert abs(float(same) - 1 / 11) < 0.09  # also some that are changed hardly at all
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(distort(inputs, Augment(random_changes=1), generator=seeded()), changed)


def test_random_changes_of_tone_by_hand():
    """Each of the six changes of tone, with the strengths that the description names."""
    inputs = to_inputs(images(1))
    black, white = -127.5 / 64, 127.5 / 64

    def tone(number, *strengths):
        return _random_tone(inputs, torch.tensor(number).view(1, 1, 1, 1), torch.tensor(strengths)[:, None])

    def close(first, second):
        torch.testing.assert_close(first, second.clamp(black, white), rtol=1e-4, atol=1e-5)

    assert torch.equal(tone(0, 0.3, 0.3, 0.3), inputs)
    stretched = tone(1, 0.0, 0.0, 0.0)
    close(stretched.amin(dim=(2, 3)), torch.full((1, 3), black))
    close(stretched.amax(dim=(2, 3)), torch.full((1, 3), white))
    close(tone(2, -0.5, 0.0, 0.0), black + 0.55 * (inputs - black))
    grey = inputs.mean(dim=1, keepdim=True)
    close(tone(3, 0.5, 0.0, 0.0), grey.mean() + 1.45 * (inputs - grey.mean()))
    close(tone(4, -1.0, 0.0, 0.0), grey + 0.1 * (inputs - grey))
    assert len(tone(5, 0.0, -1.0, 0.0).unique()) <= 4  # two bits
    limit = -0.5 + (white + 0.5) / 2
    close(tone(6, 0.0, 0.0, 0.0), torch.where(inputs > limit, -inputs, inputs))


def test_random_changes_of_geometry_by_hand():
    """Rotation, two shears and a shift; other changes leave the geometry as it is."""
    strengths = torch.tensor([1.0, 0.5, -1.0, 1.0, -0.5])[:, None].expand(5, 5)
    maps = _random_map(torch.tensor([6, 7, 8, 9, 10]), strengths)
    cosine, sine = 3**0.5 / 2, 0.5
    expected = torch.eye(3).repeat(5, 1, 1)
    expected[1, :2, :2] = torch.tensor([[cosine, -sine], [sine, cosine]])
    expected[2, 0, 1] = 0.15
    expected[3, 1, 0] = -0.3
    expected[4, :2, 2] = torch.tensor([0.5, -0.25])
    torch.testing.assert_close(maps, expected)


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
    "wrong",
    [{"crop": -3}, {"crop": 1.5}, {"flip": 2}, {"cutout": -1}, {"colour": "red"}, {"random_changes": -1}],
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


@pytest.mark.parametrize("beta", [1, 2, 4])
def test_the_mixed_share_has_the_distribution_of_beta(beta):
    """max(b, 1 − b) for b ~ Beta(beta, beta), by the Kolmogorov–Smirnov distance to SciPy's distribution."""
    n = 4000
    _, soft = mix_pairs(torch.zeros(n, 1), torch.arange(n)[:, None].double(), generator=seeded(), beta=beta)
    first, last = torch.arange(n).double(), torch.arange(n).double().flip(0)
    own = ((soft[:, 0] - last) / (first - last)).numpy()
    distribution = stats.beta(beta, beta)
    distance = stats.kstest(own, lambda x: 2 * distribution.cdf(x) - 1).statistic
    assert distance < 2.0 / n**0.5  # exceeded with a probability below one in a thousand; the seed is fixed


def cut_shares(n, size=(32, 48)):
    """Return images with pasted rectangles, whose pixels are the number of their image, and targets."""
    inputs = torch.arange(float(n), dtype=torch.float64)[:, None, None, None].expand(n, 2, *size)
    return mix_pairs(inputs, torch.eye(n, dtype=torch.float64), generator=seeded(), cut=1.0)


def test_a_pasted_part_is_a_rectangle_of_the_other_image():
    """All pixels are those of the two images, and those of the other one fill a rectangle."""
    n = 40
    images, _ = cut_shares(n)
    for row, (first, second) in enumerate(images):
        assert torch.equal(first, second)
        other = first == n - 1 - row
        assert torch.equal(other, first != row)
        filled = other.any(dim=1)[:, None] & other.any(dim=0)[None, :]
        assert torch.equal(other, filled)
        heights, widths = other.sum(dim=0).max(), other.sum(dim=1).max()
        assert abs(float(heights) / 32 - float(widths) / 48) <= 1 / 32 + 1 / 48  # proportions, but for pixels


def test_targets_follow_the_area_of_the_rectangle():
    """The share of the other target is the share of its pixels, at most half of them."""
    n = 40
    images, targets = cut_shares(n)
    for row in range(n):
        area = (images[row] == n - 1 - row).double().mean()
        torch.testing.assert_close(targets[row, n - 1 - row], area, rtol=0, atol=1e-12)
        torch.testing.assert_close(targets[row].sum(), torch.tensor(1.0, dtype=torch.float64))
        assert area <= 0.5 + 1 / 32 + 1 / 48


def test_the_area_is_uniform():
    """Its distribution up to one half, by the Kolmogorov–Smirnov distance; pixels blur it a little."""
    n = 4000
    codes = torch.arange(n, dtype=torch.float64)[:, None]
    images = torch.zeros(n, 1, 64, 64)
    _, soft = mix_pairs(images, codes, generator=seeded(), cut=1.0)
    area = ((soft - codes) / (codes.flip(0) - codes))[:, 0].numpy()
    assert stats.kstest(2.0 * area, "uniform").statistic < 2.0 / n**0.5 + 1 / 64


@pytest.mark.parametrize("cut", [0.0, 0.25, 1.0])
def test_a_share_of_the_images_is_cut(cut):
    """The others are mixed: all of their pixels are between both images."""
    n = 2000
    inputs = torch.arange(float(n))[:, None, None, None].expand(n, 1, 16, 16)
    images, _ = mix_pairs(inputs, torch.eye(n), generator=seeded(), beta=4, cut=cut)
    is_mixed = (images == images[:, :, :1, :1]).flatten(1).all(dim=1) & (images[:, 0, 0, 0] % 1 != 0)
    assert abs(float(is_mixed.double().mean()) - (1.0 - cut)) < 4.0 * (cut * (1.0 - cut) / n) ** 0.5 + 0.005


def test_mixing_alone_draws_what_it_drew_before():
    """Without cuts no further random numbers are drawn, so results of earlier versions can be repeated."""
    inputs, targets = torch.rand(8, 3, 4, 4, generator=seeded()), torch.eye(8)
    first, second = seeded(), seeded()
    mix_pairs(inputs, targets, generator=first, beta=4)
    torch.rand(8, 7, generator=second)
    assert torch.equal(first.get_state(), second.get_state())
