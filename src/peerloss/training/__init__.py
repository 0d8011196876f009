"""Training: one plain loop for any model, one engine for many small nets. The loss is a parameter."""

from peerloss.training._engine import train_nets
from peerloss.training._loop import train
from peerloss.training._nets import Net
from peerloss.training._results import TrainedNets

__all__ = ["Net", "TrainedNets", "train", "train_nets"]
