"""The networks of the experiments: small fully connected ones for tables, ResNets for small images."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from torch import Tensor, nn
from torch.nn.functional import gelu, max_pool2d, relu

from peerloss._deprecation import renamed_parameters
from peerloss._validation import check_count
from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Sequence


class MLP(nn.Module):
    """Fully connected layers with ReLU between them; one output means binary logits of shape (n,).

    Parameters
    ----------
    n_features
        Number of inputs.
    hidden_layer_sizes
        Widths of the hidden layers.
    n_outputs
        Number of outputs: 1 for two classes, K otherwise.
    """

    @renamed_parameters(hidden="hidden_layer_sizes")
    def __init__(
        self, n_features: int, hidden_layer_sizes: Sequence[int] = (8, 8), n_outputs: int = 1
    ) -> None:
        super().__init__()
        sizes = [check_count(n_features, "n_features")]
        sizes += [check_count(size, "hidden_layer_sizes") for size in hidden_layer_sizes]
        layers: list[nn.Module] = []
        for before, after in pairwise(sizes):
            layers += [nn.Linear(before, after), nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.Linear(sizes[-1], check_count(n_outputs, "n_outputs")))
        self.n_outputs = n_outputs

    def forward(self, x: Tensor) -> Tensor:
        """Return logits of the rows ``x``, (n,) for one output and (n, K) otherwise."""
        logits: Tensor = self.layers(x)
        return logits.squeeze(1) if self.n_outputs == 1 else logits


class ResNet(nn.Module):
    """A residual network of basic blocks with a 3 × 3 stem that keeps all 32 × 32 pixels.

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
        self.shortcut: nn.Module = nn.Identity()
        if stride > 1 or inputs != outputs:
            self.shortcut = nn.Sequential(_convolution(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        inner = relu(self.norm1(self.conv1(x)))
        return relu(self.norm2(self.conv2(inner)) + self.shortcut(x))


class PooledResNet(nn.Module):
    """A residual network of three stages that halve the image by max pooling; fast on a GPU.

    Most of its arithmetic is done on small images with many channels, which a GPU computes faster than the
    large images with few channels at the beginning of :class:`ResNet`. Each stage is a convolution, max
    pooling and a residual block of two convolutions.

    Parameters
    ----------
    widths
        Number of channels of each stage.
    n_classes
        Number of outputs.

    References
    ----------
    Jordan, *94% on CIFAR-10 in 3.29 Seconds on a Single GPU*, 2024, has networks of this kind.
    """

    def __init__(self, widths: Sequence[int] = (128, 384, 512), *, n_classes: int = 10) -> None:
        super().__init__()
        if not widths:
            raise InvalidInputError(
                "`widths` must have at least one entry, such as (128, 384, 512); got none."
            )
        check_count(n_classes, "n_classes")
        channels = max(1, check_count(widths[0], "widths") // 4)
        stem = nn.Conv2d(3, channels, 3, bias=False)  # without padding: 30, 15, 7 and 3 pixels follow 32
        layers: list[nn.Module] = [stem, nn.BatchNorm2d(channels), nn.GELU()]
        for width in widths:
            layers.append(_PooledStage(channels, check_count(width, "widths")))
            channels = width
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Linear(channels, n_classes)
        self.smallest_image = 2 + 2 ** len(widths)
        """Number of pixels of the smallest side of an image for which the last stage has an output."""

    def forward(self, images: Tensor) -> Tensor:
        """Return logits (n, K) of images (n, 3, height, width)."""
        height, width = images.shape[2:]
        least = self.smallest_image
        if min(height, width) < least:
            raise InvalidInputError(
                f"`images` must have at least {least} × {least} pixels, because each stage halves them; got "
                f"{height} × {width}. Use fewer stages (`widths`), or ResNet."
            )
        logits: Tensor = self.classifier(self.features(images).mean(dim=(2, 3)))
        return logits


class _PooledStage(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.conv1 = _convolution(inputs, outputs, 3)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = _convolution(outputs, outputs, 3)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.conv3 = _convolution(outputs, outputs, 3)
        self.norm3 = nn.BatchNorm2d(outputs)

    def forward(self, x: Tensor) -> Tensor:
        x = gelu(self.norm1(max_pool2d(self.conv1(x), 2)))
        inner = gelu(self.norm2(self.conv2(x)))
        return gelu(self.norm3(self.conv3(inner)) + x)


def _convolution(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, size, stride=stride, padding=size // 2, bias=False)


def resnet18(n_classes: int = 10, *, width: int = 64) -> ResNet:
    """Return ResNet-18 (11 million weights); ``n_classes`` and ``width`` are those of :class:`ResNet`."""
    return ResNet((2, 2, 2, 2), n_classes=n_classes, width=width)


def resnet34(n_classes: int = 10, *, width: int = 64) -> ResNet:
    """Return ResNet-34 (21 million weights); ``n_classes`` and ``width`` are those of :class:`ResNet`."""
    return ResNet((3, 4, 6, 3), n_classes=n_classes, width=width)


def pooled_resnet(n_classes: int = 10, *, width: int = 64) -> PooledResNet:
    """Return a :class:`PooledResNet` for ``n_classes`` classes.

    Its stages have 2, 6 and 8 times ``width`` channels; the default has 10 million weights.
    """
    check_count(width, "width")
    return PooledResNet((2 * width, 6 * width, 8 * width), n_classes=n_classes)
