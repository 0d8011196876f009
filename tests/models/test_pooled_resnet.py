"""The residual network with pooling."""

import pytest
import torch

from peerloss.exceptions import InvalidInputError
from peerloss.models import PooledResNet, pooled_resnet


def test_each_stage_halves_the_image():
    """The first convolution removes the border, each stage halves what is left, any size gives (n, K)."""
    model = PooledResNet((8, 12, 16), n_classes=7).eval()
    images = torch.randn(2, 3, 32, 32)
    sizes = [tuple(model.features[:end](images).shape[1:]) for end in (1, 4, 5, 6)]
    assert sizes == [(2, 30, 30), (8, 15, 15), (12, 7, 7), (16, 3, 3)]
    assert model(images).shape == (2, 7)
    assert model(torch.randn(2, 3, 28, 28)).shape == (2, 7)


def test_channels_of_the_usual_network():
    """``width`` multiplies 2, 6 and 8, which is (128, 384, 512) and ten million weights by default."""
    convolutions = [m for m in pooled_resnet(width=3).modules() if isinstance(m, torch.nn.Conv2d)]
    assert [m.out_channels for m in convolutions] == [1, *[6] * 3, *[18] * 3, *[24] * 3]
    assert sum(weight.numel() for weight in pooled_resnet().parameters()) == pytest.approx(10e6, rel=0.02)


def test_a_stage_without_its_branch_has_only_the_pooled_convolution():
    """With the last scale of a stage at zero, the residual block adds nothing."""
    stage = PooledResNet((4,)).features[3].eval()
    torch.nn.init.zeros_(stage.norm3.weight)
    x = torch.rand(2, 1, 6, 6)
    pooled = torch.nn.functional.max_pool2d(stage.conv1(x), 2)
    once = torch.nn.functional.gelu(stage.norm1(pooled))
    torch.testing.assert_close(stage(x), torch.nn.functional.gelu(once))


def test_bad_sizes_are_named():
    """The message names the argument."""
    with pytest.raises(InvalidInputError, match="`n_classes` must be an integer"):
        pooled_resnet(0)
    with pytest.raises(InvalidInputError, match="`width` must be an integer"):
        pooled_resnet(width=0)
    with pytest.raises(InvalidInputError, match="`widths` must be an integer"):
        PooledResNet((8, 0))
    with pytest.raises(InvalidInputError, match="`widths` must have at least one"):
        PooledResNet(())


def test_images_that_are_too_small_are_refused():
    """Three stages need ten pixels, one needs four; the message has the size of the image."""
    model = PooledResNet((4, 4, 4)).eval()
    assert model(torch.zeros(1, 3, 10, 10)).shape == (1, 10)
    with pytest.raises(InvalidInputError, match=r"at least 10 × 10 pixels.*got 12 × 9"):
        model(torch.zeros(1, 3, 12, 9))
    assert PooledResNet((4,)).eval()(torch.zeros(1, 3, 4, 4)).shape == (1, 10)
