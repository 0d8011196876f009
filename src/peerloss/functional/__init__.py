"""Losses as pure functions of logits and labels, built on the loss matrix of `base`."""

from peerloss._deprecation import renamed
from peerloss.functional.base import (
    BASES,
    Base,
    bi_tempered_matrix,
    cross_entropy_matrix,
    gce_matrix,
    hinge_matrix,
    logistic_matrix,
    mae_matrix,
    margins,
    ramp_matrix,
    sigmoid_matrix,
    squared_matrix,
    tempered_log_softmax,
    unhinged_matrix,
    zero_one_matrix,
)
from peerloss.functional.correction import backward_loss, forward_loss
from peerloss.functional.covariance import covariance_targets
from peerloss.functional.information import dmi_loss, f_divergence_loss
from peerloss.functional.linear import linear_peer_loss
from peerloss.functional.peer import loss_matrix, peer_loss, plain_loss

__all__ = [
    "BASES",
    "Base",
    "backward_loss",
    "bi_tempered_matrix",
    "covariance_targets",
    "cross_entropy_matrix",
    "dmi_loss",
    "f_divergence_loss",
    "forward_loss",
    "gce_matrix",
    "hinge_matrix",
    "linear_peer_loss",
    "logistic_matrix",
    "loss_matrix",
    "mae_matrix",
    "margins",
    "peer_loss",
    "plain_loss",
    "ramp_matrix",
    "sigmoid_matrix",
    "squared_matrix",
    "tempered_log_softmax",
    "unhinged_matrix",
    "zero_one_matrix",
]

__getattr__ = renamed(__name__, {"base_loss": "peerloss.functional.plain_loss"})
