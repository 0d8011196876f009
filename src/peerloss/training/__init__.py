"""Training loops: the loss is a parameter."""

from peerloss.training._loop import train

__all__ = ["train"]
