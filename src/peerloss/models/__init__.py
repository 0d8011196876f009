"""Network architectures."""

from peerloss.models._mlp import MLP
from peerloss.models._resnet import ResNet, resnet18, resnet34

__all__ = ["MLP", "ResNet", "resnet18", "resnet34"]
