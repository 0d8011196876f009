"""Network architectures."""

from peerloss.models._ensemble import Ensemble
from peerloss.models._networks import MLP, PooledResNet, ResNet, pooled_resnet, resnet18, resnet34

__all__ = ["MLP", "Ensemble", "PooledResNet", "ResNet", "pooled_resnet", "resnet18", "resnet34"]
