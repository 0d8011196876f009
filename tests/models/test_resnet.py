"""ResNets for small images."""

import pytest
import torch

from peerloss.exceptions import InvalidInputError
from peerloss.models import ResNet, resnet18, resnet34


@pytest.mark.parametrize(("make", "convolutions"), [(resnet18, 17), (resnet34, 33)])
def test_depth_agrees_with_the_name(make, convolutions):
    """3 × 3 convolutions and the classifier add up to 18 and 34."""
    model = make()
    kernels = [m for m in model.modules() if isinstance(m, torch.nn.Conv2d) and m.kernel_size == (3, 3)]
    assert len(kernels) == convolutions


def test_logits_and_resolution():
    """The stem keeps the resolution, later stages halve it, any image size gives (n, K)."""
    model = ResNet((1, 1, 1), n_classes=7, width=4).eval()
    images = torch.randn(2, 3, 16, 16)
    assert model(images).shape == (2, 7)
    assert model.features(images).shape == (2, 16, 4, 4)
    assert model(torch.randn(2, 3, 12, 12)).shape == (2, 7)


def test_a_block_without_its_branch_is_the_identity():
    """With the last scale of a block at zero, only the shortcut remains."""
    block = ResNet((2,), width=4).features[4].eval()
    torch.nn.init.zeros_(block.norm2.weight)
    x = torch.rand(2, 4, 5, 5)
    torch.testing.assert_close(block(x), x)


def test_bad_sizes_are_named():
    """The message names the argument."""
    with pytest.raises(InvalidInputError, match="`n_classes` must be an integer"):
        resnet18(0)
    with pytest.raises(InvalidInputError, match="`width` must be an integer"):
        resnet34(width=0)
