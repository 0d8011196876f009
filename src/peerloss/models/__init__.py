"""Network architectures."""

from peerloss.models._networks import MLP, PooledResNet, ResNet, pooled_resnet, resnet18, resnet34

__all__ = ["MLP", "PooledResNet", "ResNet", "pooled_resnet", "resnet18", "resnet34"]
