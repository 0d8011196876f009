"""Losses as ``nn.Module``: they hold state (the counted prior, inverted matrices); `functional` computes."""

from peerloss._deprecation import renamed
from peerloss.losses._cores import cores_keep, cores_loss, cores_schedule
from peerloss.losses._correction import BackwardLoss, ForwardLoss
from peerloss.losses._divergence_watch import LOGIT_LIMIT, DivergenceWatch
from peerloss.losses._information import DMILoss, FDivergenceLoss
from peerloss.losses._linear import LinearPeerLoss
from peerloss.losses._peer import PeerLoss, PlainLoss
from peerloss.losses._schedule import AlphaSchedule

__all__ = [
    "LOGIT_LIMIT",
    "AlphaSchedule",
    "BackwardLoss",
    "DMILoss",
    "DivergenceWatch",
    "FDivergenceLoss",
    "ForwardLoss",
    "LinearPeerLoss",
    "PeerLoss",
    "PlainLoss",
    "cores_keep",
    "cores_loss",
    "cores_schedule",
]

__getattr__ = renamed(__name__, {"BaseLoss": "peerloss.losses.PlainLoss"})
