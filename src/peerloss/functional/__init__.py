"""Losses as pure functions of logits and labels. Everything rests on the loss matrix in `base`."""

from peerloss.functional.base import (
    BASES,
    cross_entropy_matrix,
    gce_matrix,
    hinge_matrix,
    logistic_matrix,
    loss_matrix,
    mae_matrix,
    margins,
    ramp_matrix,
    sigmoid_matrix,
    squared_matrix,
    unhinged_matrix,
    zero_one_matrix,
)
from peerloss.functional.correction import backward_loss, forward_loss
from peerloss.functional.divergence import f_divergence_loss
from peerloss.functional.information import dmi_loss
from peerloss.functional.peer import base_loss, peer_loss

__all__ = [
    "BASES",
    "backward_loss",
    "base_loss",
    "cross_entropy_matrix",
    "dmi_loss",
    "f_divergence_loss",
    "forward_loss",
    "gce_matrix",
    "hinge_matrix",
    "logistic_matrix",
    "loss_matrix",
    "mae_matrix",
    "margins",
    "peer_loss",
    "ramp_matrix",
    "sigmoid_matrix",
    "squared_matrix",
    "unhinged_matrix",
    "zero_one_matrix",
]
