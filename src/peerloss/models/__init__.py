"""Network architectures."""

from peerloss.models._networks import MLP, ResNet, resnet18, resnet34

__all__ = ["MLP", "ResNet", "resnet18", "resnet34"]
