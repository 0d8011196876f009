"""Network architectures."""

from peerloss.models._mlp import MLP

__all__ = ["MLP"]
