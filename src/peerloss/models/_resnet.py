"""ResNets for small images: the stem keeps all 32 × 32 pixels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor, nn
from torch.nn.functional import relu

from peerloss._validation import check_count

if TYPE_CHECKING:
    from collections.abc import Sequence


class ResNet(nn.Module):
    """A residual network of basic blocks with a 3 × 3 stem and no early pooling.

    Parameters
    ----------
    depths
        Number of blocks per stage. Each stage after the first halves the image size and doubles the channels.
    n_classes
        Number of outputs.
    width
        Number of channels in the first stage.

    References
    ----------
    He, Zhang, Ren and Sun, *Deep Residual Learning for Image Recognition*, CVPR 2016.
    """

    def __init__(self, depths: Sequence[int], *, n_classes: int = 10, width: int = 64) -> None:
        super().__init__()
        check_count(n_classes, "n_classes")
        channels = check_count(width, "width")
        layers: list[nn.Module] = [_convolution(3, channels, 3), nn.BatchNorm2d(channels), nn.ReLU()]
        for stage, depth in enumerate(depths):
            for block in range(check_count(depth, "depths")):
                stride = 2 if stage > 0 and block == 0 else 1
                layers.append(_Block(channels, width * 2**stage, stride))
                channels = width * 2**stage
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Linear(channels, n_classes)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits (n, K) of images (n, 3, height, width)."""
        logits: Tensor = self.classifier(self.features(images).mean(dim=(2, 3)))
        return logits


class _Block(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = _convolution(inputs, outputs, 3, stride)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = _convolution(outputs, outputs, 3)
        self.norm2 = nn.BatchNorm2d(outputs)
        same = stride == 1 and inputs == outputs
        self.shortcut = (
            nn.Identity()
            if same
            else nn.Sequential(_convolution(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))
        )

    def forward(self, x: Tensor) -> Tensor:
        inner = relu(self.norm1(self.conv1(x)))
        return relu(self.norm2(self.conv2(inner)) + self.shortcut(x))


def _convolution(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, size, stride=stride, padding=size // 2, bias=False)


def resnet18(n_classes: int = 10, *, width: int = 64) -> ResNet:
    """Return ResNet-18 for small images; ``width`` channels in the first stage (64: 11 million weights).

    ``n_classes`` is the number of outputs.
    """
    return ResNet((2, 2, 2, 2), n_classes=n_classes, width=width)


def resnet34(n_classes: int = 10, *, width: int = 64) -> ResNet:
    """Return ResNet-34 for small images; ``width`` channels in the first stage (64: 21 million weights).

    ``n_classes`` is the number of outputs.
    """
    return ResNet((3, 4, 6, 3), n_classes=n_classes, width=width)
