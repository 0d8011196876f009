"""Losses as ``nn.Module``: they hold state (the counted prior, prepared matrices); functional computes."""

from peerloss.losses._correction import BackwardLoss, ForwardLoss
from peerloss.losses._divergence import DivergenceWatch
from peerloss.losses._f_divergence import FDivergenceLoss
from peerloss.losses._information import DMILoss
from peerloss.losses._peer import BaseLoss, PeerLoss
from peerloss.losses._schedule import AlphaSchedule

__all__ = [
    "AlphaSchedule",
    "BackwardLoss",
    "BaseLoss",
    "DMILoss",
    "DivergenceWatch",
    "FDivergenceLoss",
    "ForwardLoss",
    "PeerLoss",
]
